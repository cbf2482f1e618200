"""How busy the rank's GPU is while it trains, as NVML samples it.

NVML reports the share of its last sample period in which a kernel ran. The period is 1/6 s to 1 s,
depending on the device. Therefore a sample is taken only when windows have filled the last second.
"""

from __future__ import annotations

from statistics import mean
from typing import Callable, List, Tuple

from xfbench.worker import nvml

_PERIOD_SECONDS = 1.0  # the longest sample period of NVML


class UtilizationMeter:
    """The utilization of a GPU during windows.

    Call no method within a window, because the device waits during a sample.
    """

    def __init__(self, gpu: nvml.Device | None, clock: Callable[[], float]) -> None:
        """Start before the first window. `clock` returns the time in seconds."""
        self._gpu, self._clock = gpu, clock
        self._samples: List[Tuple[int, float]] = []
        self.interrupt(0)

    def interrupt(self, windows: int) -> None:
        """Note that the device did something other than windows until now.

        `windows` is the number of windows so far.
        """
        self._windows, self._since = windows, self._clock()

    def mark(self, windows: int) -> None:
        """Take a sample after this number of windows, if they have filled the last second."""
        if self._gpu is None or self._clock() - self._since < _PERIOD_SECONDS:
            return
        share = nvml.busy_share(self._gpu)
        if share is not None:
            self._samples.append((self._windows, share))
        self.interrupt(windows)

    def read(self, first_window: int = 0) -> float | None:
        """Return the mean of the samples that cover no window before number `first_window`.

        The result is None if there is no such sample.
        """
        shares = [share for windows, share in self._samples if windows >= first_window]
        return mean(shares) if shares else None
