"""The `xfbench` command without the measurements of peaks and core-to-core latency."""

import sys

from xfbench.cli import main
from xfbench.host import core_latency, machine, roofline

RANK_PEAKS = {"float32": 1e15, "float64": 1e15, "bandwidth": 1e12}


def build_peaks():
    """Return fake peaks by number of threads, up to the usable cores."""
    return dict.fromkeys(range(1, machine.usable_cores() + 1), RANK_PEAKS)


def build_command(*arguments):
    """Return the command line that starts this module."""
    return [sys.executable, "-m", "tests.faults.driver", *map(str, arguments)]


if __name__ == "__main__":
    roofline._PEAKS |= build_peaks()
    core_latency.measure_core_latency_s = lambda: None
    main()
