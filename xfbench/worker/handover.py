"""How near to each other two cores are while a launch trains.

Asked of a process of its own, which is there before the framework: so neither its start nor the
framework's threads and memory have a part in it, and it waits without working until it is asked.
"""

from __future__ import annotations

import contextlib
import pkgutil
import subprocess
import sys

from xfbench.worker import observe


class CoreLatencyProbe:
    """The first and the last CPU that this process may use."""

    def __init__(self) -> None:
        source = pkgutil.get_data("xfbench.worker", "pingpong.py")  # of the archive
        assert source
        self._process: subprocess.Popen[str] | None = None
        with contextlib.suppress(OSError):  # no process may be started, or there is no memory
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", source.decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                universal_newlines=True,
            )
            observe.exclude_process(self._process.pid)

    def seconds(self) -> float | None:
        """A word's way there and back, at the least; a few milliseconds' work.

        None where there is but one CPU, or where cores are too busy.
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
        """Nobody asks any more; from here on the process's time and memory count."""
        if self._process:
            self._process.communicate()
