"""Energy used by the training device, read from its counters and never estimated."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

from xfbench.worker import nvml

# By name of the counter: its value, and the value at which it wraps to 0 (None: never), in joules.
Reading = Dict[str, Tuple[float, Optional[float]]]

_MARK_SECONDS = 0.25  # between readings, so that they take little time
_POWERCAP = Path("/sys/class/powercap")


def read_counters(device: str, rank: int = 0) -> Reading:
    """Return the energy counters of the processor packages (RAPL) or of the rank's GPU (NVML).

    `device` "cuda" selects the GPU. The result is empty if there is no counter or a counter cannot
    be read. Reading RAPL often needs root.
    """
    if device != "cuda":
        return _read_rapl()
    used = nvml.energy_joules(rank)
    return {} if used is None else {"nvml": (used, None)}


class EnergyMeter:
    """The energy used while the meter runs, and the duration of that time.

    The meter runs from its start or `restart` on, except between `pause` and `resume`. Whether a
    window belongs to the warm-up is known only later. Therefore `mark` notes the energy so far, and
    `read` leaves out what was used before a mark.
    """

    def __init__(self, device: str, rank: int, clock: Callable[[], float]) -> None:
        """Start. `clock` returns the time in seconds."""
        self._device, self._rank, self._clock = device, rank, clock
        self.restart()

    def restart(self, windows: int = 0) -> None:
        """Start again from 0, after this number of windows."""
        self._joules: float | None = 0.0
        self._seconds = 0.0
        self._marks: list[tuple[int, float | None, float]] = [(windows, 0.0, 0.0)]
        self.resume()

    def pause(self) -> None:
        """Stop counting."""
        used = joules_used(self._before, read_counters(self._device, self._rank))
        self._seconds += self._clock() - self._since
        self._joules = None if used is None or self._joules is None else self._joules + used

    def resume(self) -> None:
        """Go on counting."""
        self._before, self._since = read_counters(self._device, self._rank), self._clock()

    def mark(self, windows: int) -> None:
        """Note the energy after this number of windows, unless the last mark is too recent."""
        counted = self._seconds + self._clock() - self._since
        if self._before and counted - self._marks[-1][2] >= _MARK_SECONDS:
            self.pause()
            self.resume()
            self._marks.append((windows, self._joules, self._seconds))

    def read(self, first_window: int = 0) -> tuple[float | None, float | None]:
        """Return (joules, seconds) of the windows from the first mark after the warm-up on.

        The warm-up are the windows before number `first_window`. The joules are None if they cannot
        be measured, and both are None if there is no such mark.
        """
        self.pause()
        self.resume()
        for windows, joules, seconds in self._marks:
            if windows >= first_window:
                used = None if self._joules is None or joules is None else self._joules - joules
                return used, self._seconds - seconds
        return None, None


def joules_used(before: Reading, after: Reading) -> float | None:
    """Return the joules used between two readings. None if the readings cannot be compared.

    Readings cannot be compared if `before` is empty, if their counters differ, or if a counter that
    never wraps decreased.
    """
    if not before or before.keys() != after.keys():
        return None
    used = 0.0
    for name, (start, span) in before.items():
        end = after[name][0]
        if end < start and span is None:
            return None
        used += end - start + (span or 0.0 if end < start else 0.0)
    return used


def _read_rapl(folder: Path = _POWERCAP) -> Reading:
    counters: Reading = {}
    for package in sorted(folder.glob("intel-rapl:[0-9]*")):
        if package.name.count(":") > 1:  # part of a package, whose counter includes this part
            continue
        try:
            used, span = (
                int((package / name).read_text()) / 1e6
                for name in ("energy_uj", "max_energy_range_uj")
            )
        except (OSError, ValueError):
            return {}
        counters[package.name] = (used, span)
    return counters
