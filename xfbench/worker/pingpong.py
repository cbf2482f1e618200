"""A script that measures the round-trip time of a message between two CPUs.

It measures once for each line of input, and prints the time in seconds. The CPUs are the first and
the last that the process may use. If there is only one CPU, the script ends immediately. It imports
only the standard library, so that it starts in a few milliseconds. See `core_latency.py`.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import time

_REPEATS, _ROUNDS = 20, 500  # the minimum of the repeats is used, because noise only adds time
_LIMIT = 1.0  # seconds; hundreds of times the usual duration of a measurement


def measure_for_each_input_line() -> None:
    """Print one round-trip time for each line of standard input, until the input ends."""
    cpus = sorted(os.sched_getaffinity(0))
    for _ in sys.stdin if len(cpus) > 1 else ():
        print(measure_round_trip_seconds(cpus[0], cpus[-1]), flush=True)


def measure_round_trip_seconds(first_cpu: int, last_cpu: int) -> float:
    """Return the round-trip time between two CPUs in seconds.

    This is the smallest of `_REPEATS` means, each over `_ROUNDS` round trips.
    """
    word = mmap.mmap(-1, mmap.PAGESIZE)
    child = os.fork()
    signal.setitimer(signal.ITIMER_REAL, _LIMIT)  # ends a process whose partner is gone
    os.sched_setaffinity(0, {first_cpu if child else last_cpu})
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
    measure_for_each_input_line()
