"""Ends what a driver has started when the driver itself is gone, though it were by SIGKILL.

A process of its own, which the driver starts and tells marks: "+MARK" before commands begin that
carry it in their environment, "-MARK" when nothing of them is left. Where its input ends before
that, it kills whatever has the mark. It waits for its input alone, and takes nothing from training.
A driver that is still there ends its commands itself (`command.py`).
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
    """Kill every process that has one of these marks, until there is none, or for some seconds.

    What it starts meanwhile has the mark too, and is found by the next look.
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
    """What a process was started with; of one that has ended, or is somebody else's, nothing."""
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def watch_marks(lines: Iterable[bytes]) -> None:
    """Hear of marks until nobody can tell of any more, and end what is left then."""
    marks: set[str] = set()
    for line in lines:
        sign, mark = line[:1], line[1:].strip().decode(errors="replace")
        if sign == b"+":
            marks.add(mark)
        else:
            marks.discard(mark)
    kill_marked(marks)


if __name__ == "__main__":
    watch_marks(sys.stdin.buffer)
