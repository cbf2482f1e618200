"""`python keeper.py PARENT COMMAND...`: run a command and kill all its descendants at the end.

This replaces a process namespace. Every descendant of the command becomes a child of this process
when its own parent ends. All of them are killed when the command ends, when this process receives
SIGTERM, or when PARENT, the process that started it, ends.
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
    """This process received SIGTERM."""


def _request_end(*_):
    raise EndRequest


def run_command(parent, argv):
    """Run the command and return its exit status."""
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
