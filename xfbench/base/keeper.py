"""The keeper: kills the commands of a driver that has died, even of SIGKILL.

The keeper is a separate process that the driver starts. The driver writes "+MARK" to it before it
starts commands with that mark in their environment, and "-MARK" when they have all ended. If its
input ends first, the keeper kills all processes with the mark. It only waits for input, so it takes
no time from training. A living driver ends its commands itself (`processes.py`).
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
    """Kill all processes with one of these marks, until none is left or some seconds have passed.

    Processes that they start meanwhile inherit the mark, and the next pass kills them.
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
    """Return the initial environment of a process; empty if it has ended or is another user's."""
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def track_marks_then_kill(lines: Iterable[bytes]) -> None:
    """Read marks until the input ends, then kill the processes that still have one."""
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
