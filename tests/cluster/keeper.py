"""`python keeper.py PARENT COMMAND...`: runs a command, and lets nothing of it outlive itself.

Where there is no namespace that processes end with, this is what they end with: all that the
command starts, however far it goes, becomes a child of this process at the latest when its own
parent has ended. All of it is killed when the command has ended, when this process is asked to
end, or when PARENT, the process that started it, has gone.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

import psutil

_PARENT_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36  # prctl(2)


class EndRequest(Exception):
    """This process was asked to end."""


def _request_end(*_):
    raise EndRequest


def run_command(parent, argv):
    """Run the command; its exit status."""
    libc = ctypes.CDLL(None)
    libc.prctl(_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, _request_end)
    libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    try:
        if os.getppid() != parent:
            return 1
        command_pid = os.posix_spawnp(argv[0], argv, os.environ)
        while True:
            pid, status = os.wait()
            if pid == command_pid:
                return os.waitstatus_to_exitcode(status) & 0xFF
    except (EndRequest, KeyboardInterrupt):
        return 1
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _kill_all()


def _kill_all():
    while descendants := psutil.Process().children(recursive=True):
        for process in descendants:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(run_command(int(sys.argv[1]), sys.argv[2:]))
