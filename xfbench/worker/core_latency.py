"""Core-to-core latency: measure it while a launch trains, and decide whether cores were far apart.

A helper process measures the latency. It starts before the framework, so that it does not disturb
the framework and does not inherit the framework's threads or memory. It sleeps between
measurements.
"""

from __future__ import annotations

import contextlib
import pkgutil
import subprocess
import sys
from collections.abc import Sequence

from xfbench.worker import observe

FAR_RATIO = 1.5  # latency of far to near cores; measurements of near cores mostly differ by less
_RARE_SHARE = 0.1  # share of the times that may come from two threads of the same core


class CoreLatencyProbe:
    """A helper process that measures latency between the first and last CPU of this process."""

    def __init__(self) -> None:
        source = pkgutil.get_data("xfbench.worker", "pingpong.py")  # from the archive
        assert source
        self._process: subprocess.Popen[str] | None = None
        with contextlib.suppress(OSError):  # too many processes, or too little memory
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", source.decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                universal_newlines=True,
            )
            observe.exclude_process_from_counts(self._process.pid)

    def measure_seconds(self) -> float | None:
        """Return the shortest round trip in seconds. The measurement takes a few milliseconds.

        Returns None if there is only one CPU, or if the cores are too busy.
        """
        if not self._process:
            return None
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            return float(self._process.stdout.readline())
        except (OSError, ValueError):
            return None

    def end_process(self) -> None:
        """End the process. The system then counts its time and memory as those of a child."""
        if self._process:
            self._process.communicate()


def near_cores_latency_seconds(latencies: Sequence[float]) -> float | None:
    """Return the latency of near cores in seconds, ignoring rare smaller values."""
    return sorted(latencies)[int(_RARE_SHARE * len(latencies))] if latencies else None


def has_far_core_latency(latencies: Sequence[float], nearest_latency: float | None = None) -> bool:
    """Return whether cores were farther apart at any of these times than when nearest.

    `least` is the latency in seconds when the cores are nearest, if known. The latencies are
    compared with `least` or with the smallest of `latencies`, whichever is smaller.
    """
    all_latencies = [*latencies, *([nearest_latency] if nearest_latency else [])]
    return bool(latencies) and max(latencies) > FAR_RATIO * min(all_latencies)
