"""The one place that starts processes: commands as values, their output, and their end.

A command is an argument list, never a shell line. When `run` returns, nothing that the
command started is left running, whatever it did: every process carries a mark in its
environment and is found by it, also when it has left its process group.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from xfbench.errors import XfbenchError

_MARK = "XFBENCH_RUN"
_GRACE_SECONDS = 2.0
_ALARM = -1
_of_thread = threading.local()


class CommandError(XfbenchError):
    """A command that was to succeed did not; the message ends with its last words."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Command:
    """What is started: arguments, the whole environment, and the folder it runs in."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path

    def with_environment(self, variables: Mapping[str, str]) -> Command:
        return replace(self, environment={**self.environment, **variables})

    def as_shell(self) -> str:
        """The same command as a line for a POSIX shell, every word quoted."""
        variables = [f"{key}={value}" for key, value in sorted(self.environment.items())]
        return shlex.join(["env", "-i", *variables, *self.argv])


@dataclass(frozen=True)
class Outcome:
    """How commands ended: exit status (negative: the signal), or the time limit.

    `rank` is the number of the one that failed first; `words` say how, where a status does not.
    """

    status: int
    timed_out: bool = False
    rank: int = 0
    words: str = ""

    def __str__(self) -> str:
        if self.words:
            return self.words
        if self.timed_out:
            return "its time limit ended it"
        if self.status < 0:
            return f"it was ended by {signal.Signals(-self.status).name}"
        return f"it ended with exit status {self.status}"


def run(
    commands: Sequence[Command],
    *,
    beside: Sequence[Command] = (),
    stdout: Sequence[Path],
    stderr: Sequence[Path],
    time_limit: float,
    alarm: socket.socket | None = None,
) -> Outcome:
    """Run `commands` at once, each with its output in two files, for at most `time_limit` seconds.

    What is to run `beside` them has its output in the files that come last, and ends with them.
    Where one fails, the others are ended: the outcome is that of the first that did. They are
    ended, too, when the `alarm` can be read: why is known to whoever raised it; so are those of
    `threads` that are given up. Raises CommandError if one cannot be started. An interrupt ends
    them and is passed on.
    """
    alarms = [one for one in (alarm, getattr(_of_thread, "alarm", None)) if one]
    mark = secrets.token_hex(8)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command, out, err in zip((*commands, *beside), stdout, stderr, strict=True):
            started.append(_start(command, mark, out, err))
        return _first_to_fail(started, len(commands), time.monotonic() + time_limit, alarms)
    finally:
        for process in started:
            _end(process)
        _end_marked(mark)


@contextlib.contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that may `run` commands; an error or an interrupt in the block ends them all.

    An interrupt is heard by the main thread alone, which would wait for the others.
    """
    heard, given_up = socket.socketpair()
    pool = ThreadPoolExecutor(count, initializer=_hears, initargs=(heard,))
    try:
        yield pool
    except BaseException:
        given_up.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        given_up.close()
        heard.close()


def _hears(alarm: socket.socket) -> None:
    _of_thread.alarm = alarm


def _start(command: Command, mark: str, stdout: Path, stderr: Path) -> subprocess.Popen[bytes]:
    with stdout.open("wb") as out, stderr.open("wb") as err:
        try:
            return subprocess.Popen(
                command.argv,
                env={**command.environment, _MARK: mark},
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            raise CommandError(f"{command.argv[0]}: {error.strerror}") from error


def _first_to_fail(
    started: Sequence[subprocess.Popen[bytes]],
    count: int,
    end: float,
    alarms: Sequence[socket.socket],
) -> Outcome:
    """Wait for the first `count`, or for one that fails, without waking up in between."""
    left = count
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for number, process in enumerate(started):
            descriptor = os.pidfd_open(process.pid)
            stack.callback(os.close, descriptor)
            selector.register(descriptor, selectors.EVENT_READ, number)
        for alarm in alarms:
            selector.register(alarm, selectors.EVENT_READ, _ALARM)
        while left:
            ended = selector.select(max(0.0, end - time.monotonic()))
            if not ended:
                return Outcome(0, timed_out=True)
            for key, _ in ended:
                if key.data == _ALARM:
                    return Outcome(1, words="the alarm ended it")
                selector.unregister(key.fileobj)
                left -= key.data < count
                status = started[key.data].wait()
                if status:
                    return Outcome(status, rank=key.data)
    return Outcome(0)


def output(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float,
    apart: bool = False,
) -> str:
    """Standard output of a command that must succeed within `timeout` seconds.

    One that is `apart` does not hear the terminal's interrupt. Raises CommandError if it does not.
    """
    try:
        process = subprocess.run(
            argv,
            env=environment,
            cwd=cwd,
            timeout=timeout,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            start_new_session=apart,
        )
    except OSError as error:
        raise CommandError(f"{argv[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{argv[0]}: no answer within {timeout:g} s") from error
    if process.returncode:
        words = (process.stderr or process.stdout).decode(errors="replace").strip()
        raise CommandError(f"{Path(argv[0]).name} failed: {words[-2000:]}", process.returncode)
    return process.stdout.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and its process group: asked first, then made to."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
    _signal_group(process.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _end_marked(mark: str) -> None:
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark:
                process.kill()
        except (psutil.Error, OSError):
            continue
