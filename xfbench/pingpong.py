"""A word's way from one CPU to another and back, in seconds: `python pingpong.py FIRST LAST`.

It needs no package, so that it starts in some milliseconds; see `handover.py`.
"""

import mmap
import os
import signal
import sys
import time

_TRIES, _ROUNDS = 20, 500  # the nearest try counts, since nothing makes two CPUs nearer
_LIMIT = 1.0  # seconds; fifty times what it takes


def main() -> None:
    """Print the least of several tries, each the mean of many ways there and back."""
    first, last = map(int, sys.argv[1:])
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
    main()
