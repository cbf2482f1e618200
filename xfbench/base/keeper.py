"""The keeper: a process that kills a driver's commands after the driver has died.

The keeper also works if SIGKILL ended the driver.

The driver is the process that runs commands. It starts the keeper and writes to its input:

- "+MARK" before commands start that have this mark in their environment.
- "-MARK" when all these commands have ended.

If the input ends while a mark is still set, the keeper kills all processes with that mark. The
keeper only waits for input, so it takes no time from training. While the driver lives, it ends its
commands itself (`processes.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

MARK = "XFBENCH_RUN"
_MAX_PASSES, _PAUSE_S = 200, 0.02


def kill_marked(marks: Collection[str]) -> None:
    """Kill all processes that have one of `marks` in their environment.

    A process may start another one before it is killed. So the search is repeated until it finds no
    process, at most `_MAX_PASSES` times.
    """
    assignments = {f"{MARK}={mark}".encode() for mark in marks}
    for _ in range(_MAX_PASSES if assignments else 0):
        pids = [pid for pid in _other_pids() if assignments & _read_environment(pid)]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def _other_pids() -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            yield int(folder.name)


def _read_environment(pid: int) -> set[bytes]:
    """Return the "NAME=VALUE" entries with which a process was started.

    Returns an empty set if the process has ended or belongs to another user.
    """
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def track_marks_then_kill(lines: Iterable[bytes]) -> None:
    """Read the driver's lines until they end, then kill the processes of the remaining marks.

    The line "+MARK" adds a mark, and "-MARK" removes it.
    """
    marks: set[str] = set()
    for line in lines:
        sign, mark = line[:1], line[1:].strip().decode(errors="replace")
        if sign == b"+":
            marks.add(mark)
        else:
            marks.discard(mark)
    kill_marked(marks)


if __name__ == "__main__":
    track_marks_then_kill(sys.stdin.buffer)
