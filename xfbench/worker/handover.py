"""Measure the latency between two cores while a launch trains.

A helper process measures it. It starts before the framework, so that it does not disturb the
framework and inherits none of its threads or memory. It sleeps until it is asked.
"""

from __future__ import annotations

import contextlib
import pkgutil
import subprocess
import sys

from xfbench.worker import observe


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
            observe.exclude_process(self._process.pid)

    def seconds(self) -> float | None:
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

    def end(self) -> None:
        """End the process. Then its time and memory count as those of a child."""
        if self._process:
            self._process.communicate()
