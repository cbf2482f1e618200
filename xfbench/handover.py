"""How near two cores are to each other: how long a word takes to the other one and back.

Threads that share a step's work hand each other small things hundreds of times a step. Where
the two cores lie decides what that takes, and a hypervisor moves virtual ones about, within
seconds, without a word in any counter (docs/findings.md#two-modes).

Run as a script, `python handover.py FIRST LAST`, it measures between these two CPUs.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

APART = 1.5  # times the nearest: measurements of two near cores differ by less, mostly
_TRIES, _ROUNDS = 20, 500  # the nearest try counts, since nothing makes two cores nearer
_LIMIT = 2.0  # seconds; a hundred times what it takes


def seconds() -> float | None:
    """Between the first and the last CPU that this process may use, there and back, at the least.

    As two Python processes see it, so that a tenth of a microsecond of it is the interpreter's.
    None where there is but one CPU, where the system does not pin, or where cores are too busy.
    """
    try:
        cpus = sorted(os.sched_getaffinity(0))
        done = subprocess.run(
            [sys.executable, "-I", "-S", __file__, str(cpus[0]), str(cpus[-1])],
            capture_output=True,
            check=True,
            timeout=_LIMIT,
        )
        return float(done.stdout)
    except (AttributeError, OSError, subprocess.SubprocessError, ValueError):
        return None


def apart(handovers: Sequence[float], nearest: float | None = None) -> bool:
    """Whether cores were, at one of these times, farther apart than they are at their nearest.

    That is the shortest of them where nothing else is known.
    """
    known = [*handovers, *([nearest] if nearest else [])]
    return bool(handovers) and max(handovers) > APART * min(known)


def _main() -> None:
    first, last = map(int, sys.argv[1:])
    if first == last:
        return
    word = mmap.mmap(-1, mmap.PAGESIZE)
    child = os.fork()
    signal.setitimer(signal.ITIMER_REAL, _LIMIT)  # ends whoever waits for one that is gone
    os.sched_setaffinity(0, {first if child else last})
    if not child:
        for _ in range(_TRIES * _ROUNDS):
            while not word[0]:
                pass
            word[0] = 0
        os._exit(0)
    nearest = float("inf")
    for _ in range(_TRIES):
        start = time.perf_counter()
        for _ in range(_ROUNDS):
            word[0] = 1
            while word[0]:
                pass
        nearest = min(nearest, (time.perf_counter() - start) / _ROUNDS)
    os.waitpid(child, 0)
    print(nearest)


if __name__ == "__main__":
    _main()
