"""The `xfbench` command without the measurements of peaks and core-to-core latency."""

import sys

from tests.fake_peaks import build_peaks
from xfbench.cli import main
from xfbench.host import core_latency, roofline


def build_command(*arguments):
    """Return the command line that starts this module."""
    return [sys.executable, "-m", "tests.faults.driver", *map(str, arguments)]


if __name__ == "__main__":
    roofline._PEAKS |= build_peaks()
    core_latency.measure_core_latency_s = lambda: None
    main()
