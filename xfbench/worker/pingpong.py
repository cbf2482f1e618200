"""A word's way from one CPU to another and back, in seconds: a line for each line that is asked.

Between the first and the last CPU that it may use. It needs no package, so that it starts in some
milliseconds; see `handover.py`. Where there is but one CPU it ends at once.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import time

_REPEATS, _ROUNDS = 20, 500  # the nearest try counts, since nothing makes two CPUs nearer
_LIMIT = 1.0  # seconds; hundreds of times what it takes


def main() -> None:
    """Answer as long as somebody asks."""
    cpus = sorted(os.sched_getaffinity(0))
    for _ in sys.stdin if len(cpus) > 1 else ():
        print(core_latency_seconds(cpus[0], cpus[-1]), flush=True)


def core_latency_seconds(first: int, last: int) -> float:
    """The least of several tries, each the mean of many ways there and back."""
    word = mmap.mmap(-1, mmap.PAGESIZE)
    child = os.fork()
    signal.setitimer(signal.ITIMER_REAL, _LIMIT)  # ends whoever waits for one that is gone
    os.sched_setaffinity(0, {first if child else last})
    if not child:
        for _ in range(_REPEATS * _ROUNDS):
            while not word[0]:
                pass
            word[0] = 0
        os._exit(0)
    nearest = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for _ in range(_ROUNDS):
            word[0] = 1
            while word[0]:
                pass
        nearest = min(nearest, (time.perf_counter() - start) / _ROUNDS)
    os.waitpid(child, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return nearest


if __name__ == "__main__":
    main()
