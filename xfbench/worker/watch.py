"""The watcher of a rank that a launcher started: a parent process, whose child does the work.

The watcher answers the driver's heartbeats and reports the child's exit status. If the driver is
gone, for example because another rank failed, the watcher ends the child. Launchers may not
notice a lost node for minutes. The watcher only waits for events, so it takes no CPU time.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Callable

from xfbench.worker import distributed

# The variable names a file in the run folder. All users can read command lines, but only this user
# can read the file, which has the address and the token.
ADDRESS_FILE, FILE_NAME = "XFBENCH_WATCH", "watch"
# The driver sends a heartbeat every second. Silence for longer means that the driver or the network
# is gone.
SILENCE_SECONDS = 8.0
_CONNECT_SECONDS = 60.0
_PARENT_DEATH_SIGNAL = 1  # prctl(2)


def run_watched(rank: int, work: Callable[[], int]) -> int:
    """Run `work` in a child process with output files for `rank`. Return the child's exit status.

    If a signal ends the child, the result is 1.

    If the environment variable `XFBENCH_WATCH` is not set, the driver started this process itself.
    Then `work` runs in this process. Raises OSError if the file cannot be read or the driver cannot
    be reached.
    """
    address_file = os.environ.get(ADDRESS_FILE)
    if not address_file:
        return work()
    host, port, token = Path(address_file).read_text(encoding="ascii").rsplit(":", 2)
    driver = socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS)
    driver.settimeout(_CONNECT_SECONDS)
    driver.sendall(f"{token} {rank} {socket.gethostname()}\n".encode(errors="replace"))
    parent, woken = os.getpid(), _SignalPipe()
    child = os.fork()
    if child == 0:
        woken.close()
        driver.close()
        _redirect_output_and_tie_to_parent(rank, parent)
        return work()
    with suppress(OSError):  # the child may have set its group already, or may have ended
        os.setpgid(child, child)
    status = _wait_for_child_or_kill_it(child, driver, woken)
    with suppress(OSError):
        driver.sendall(f"ended {status}\n".encode())
    driver.close()
    return status if 0 <= status < 256 else 1


class _SignalPipe:
    """A pipe for signals that report the end of a child or ask this process to end.

    `descriptor` becomes readable when a signal arrives.
    """

    def __init__(self) -> None:
        self.descriptor, self.write_descriptor = os.pipe()
        os.set_blocking(self.write_descriptor, False)
        os.set_blocking(self.descriptor, False)
        self.numbers = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self.before = [signal.signal(number, lambda *_: None) for number in self.numbers]
        signal.set_wakeup_fd(self.write_descriptor)

    def read_signals(self) -> set[int]:
        """Return the numbers of the signals that arrived since the last call."""
        with suppress(BlockingIOError):
            return set(os.read(self.descriptor, 4096))
        return set()

    def close(self) -> None:
        """Restore the previous signal handlers, and close the pipe."""
        signal.set_wakeup_fd(-1)
        for number, handler in zip(self.numbers, self.before):
            signal.signal(number, handler)
        os.close(self.descriptor)
        os.close(self.write_descriptor)


def _redirect_output_and_tie_to_parent(rank: int, parent: int) -> None:
    """Give the child its own process group and output files. It is killed when its parent ends."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(
            str(distributed.path_for_rank(Path(name), rank)), os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        )
        os.dup2(file, descriptor)
        os.close(file)
    sys.stdout.flush()


def _wait_for_child_or_kill_it(child: int, driver: socket.socket, signal_pipe: _SignalPipe) -> int:
    """Wait until `child` ends. Kill it if the driver is gone or a signal asks this process to end.

    Return the child's exit status. If a signal ended the child, return minus the signal's number.
    """
    while True:
        ready = select.select([driver.fileno(), signal_pipe.descriptor], [], [], SILENCE_SECONDS)[0]
        alive = bool(ready)
        if signal_pipe.descriptor in ready:
            alive = not signal_pipe.read_signals() - {signal.SIGCHLD}
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return _exit_status_or_minus_signal(status)
        if driver.fileno() in ready:
            try:
                alive = alive and bool(driver.recv(4096))
                driver.sendall(b".\n")
            except OSError:
                alive = False
        if not alive:
            with suppress(OSError):
                os.killpg(child, signal.SIGKILL)
            return _exit_status_or_minus_signal(os.waitpid(child, 0)[1])


def _exit_status_or_minus_signal(wait_status: int) -> int:
    return -os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else os.WEXITSTATUS(wait_status)
