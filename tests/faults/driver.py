"""The `xfbench` command, which measures neither what the machine can do nor how near cores are."""

import sys

from xfbench.cli import main
from xfbench.host import core_latency, machine, roofline

RANK_PEAKS = {"float32": 1e15, "float64": 1e15, "bandwidth": 1e12}


def build_peaks():
    """By number of threads, as many as a rank may have here."""
    return dict.fromkeys(range(1, machine.usable_cores() + 1), RANK_PEAKS)


def build_command(*arguments):
    """What starts it."""
    return [sys.executable, "-m", "tests.faults.driver", *map(str, arguments)]


if __name__ == "__main__":
    roofline._PEAKS |= build_peaks()
    core_latency.measure_latency = lambda: None
    main()
