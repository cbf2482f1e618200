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
_PASSES, _PAUSE_SECONDS = 200, 0.02


def end_marked(marks: Collection[str]) -> None:
    """Kill every process that has one of these marks, until there is none, or for some seconds.

    What it starts meanwhile has the mark too, and is found by the next look.
    """
    wanted = {f"{MARK}={one}".encode() for one in marks}
    for _ in range(_PASSES if wanted else 0):
        found = [process for process in _others() if wanted & _variables(process)]
        if not found:
            return
        for process in found:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


def _others() -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            yield int(folder.name)


def _variables(process: int) -> set[bytes]:
    """What a process was started with; of one that has ended, or is somebody else's, nothing."""
    try:
        return set(Path(f"/proc/{process}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def keep(lines: Iterable[bytes]) -> None:
    """Hear of marks until nobody can tell of any more, and end what is left then."""
    marks: set[str] = set()
    for line in lines:
        sign, mark = line[:1], line[1:].strip().decode(errors="replace")
        if sign == b"+":
            marks.add(mark)
        else:
            marks.discard(mark)
    end_marked(marks)


if __name__ == "__main__":
    keep(sys.stdin.buffer)
