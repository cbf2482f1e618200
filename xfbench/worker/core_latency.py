"""Core-to-core latency: measure it while a launch trains, and decide whether cores were far apart.

A helper process measures the latency and sleeps between measurements. The helper starts before the
framework, so that it does not inherit the framework's threads or memory and does not disturb the
framework.
"""

from __future__ import annotations

import contextlib
import pkgutil
import subprocess
import sys
from collections.abc import Sequence

from xfbench.worker import observe

FAR_RATIO = 1.5  # latency of far cores, relative to near cores; near cores mostly vary by less
_RARE_SHARE = 0.1  # share of latencies that may be those of two threads of the same core


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
                encoding="utf-8",
                errors="replace",
            )
            observe.exclude_process_from_counts(self._process.pid)

    def measure_round_trip_seconds(self) -> float | None:
        """Return the shortest round-trip time in seconds. The measurement takes a few milliseconds.

        Returns None if there is only one CPU, if the cores are too busy, or if the helper did not
        start.
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
        """End the helper. Its CPU time and memory then count as those of an ended child."""
        if self._process:
            self._process.communicate()


def near_cores_latency_seconds(latencies: Sequence[float]) -> float | None:
    """Return the latency of near cores in seconds. None if `latencies` is empty.

    The smallest tenth of `latencies` (in seconds) is left out. The result is the smallest of the
    others.
    """
    return sorted(latencies)[int(_RARE_SHARE * len(latencies))] if latencies else None


def has_far_core_latency(latencies: Sequence[float], nearest_latency: float | None = None) -> bool:
    """Return whether any of `latencies` shows that the cores were far apart.

    A latency shows this if it is more than FAR_RATIO times the smallest latency. The smallest
    latency is taken from `latencies` and `nearest_latency` together.

    - `latencies`: measured latencies in seconds
    - `nearest_latency`: the latency in seconds when the cores are near; None if unknown
    """
    all_latencies = [*latencies, *([nearest_latency] if nearest_latency else [])]
    return bool(latencies) and max(latencies) > FAR_RATIO * min(all_latencies)
