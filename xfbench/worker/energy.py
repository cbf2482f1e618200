"""Energy used by the training device, and the time for which causes held its clock down.

Both are read from counters of the device and never estimated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict, NamedTuple, Optional, Tuple

from xfbench.worker import nvml

# By name of the counter: its value, and the value at which it wraps to 0 (None: never), in joules.
Reading = Dict[str, Tuple[float, Optional[float]]]

_MARK_SECONDS = 0.25  # between readings, so that they take little time
_POWERCAP = Path("/sys/class/powercap")


class DeviceUse(NamedTuple):
    """What the training device did.

    - `joules`: the energy that it used in `seconds`. None if unknown.
    - `slowed_seconds`: by cause, for how long in `slowed_of_seconds` the cause held its clock down.
    """

    joules: float | None
    seconds: float | None
    slowed_seconds: Dict[str, float]
    slowed_of_seconds: float


def read_counters(device: str, gpu: nvml.Device | None = None) -> Reading:
    """Return the energy counters of the processor packages (RAPL) or of the rank's GPU (NVML).

    If `device` is "cuda", the result is the counter of `gpu`. The result is empty if there is no
    counter or a counter cannot be read. Reading RAPL often needs root.
    """
    if device != "cuda":
        return _read_rapl()
    used = nvml.energy_joules(gpu) if gpu else None
    return {} if used is None else {"nvml": (used, None)}


class EnergyMeter:
    """The use of the device while the meter runs.

    The meter runs from its start or `restart` on, except between `pause` and `resume`. Whether a
    window belongs to the warm-up is known only later. Therefore `mark` notes the energy so far, and
    `read` leaves out the energy before a mark. The device waits during a reading, so call no method
    within a window. NVML needs some milliseconds for slowdowns, so marks leave them out.
    """

    def __init__(self, device: str, gpu: nvml.Device | None, clock: Callable[[], float]) -> None:
        """Start. `clock` returns the time in seconds.

        `device` is "cpu" or "cuda". `gpu` is the rank's GPU.
        """
        self._device, self._gpu, self._clock = device, gpu, clock
        self.restart()

    def restart(self, windows: int = 0) -> None:
        """Start again from 0, after this number of windows."""
        self.resume()
        self._joules: float | None = 0.0
        self._seconds = 0.0
        self._slowed_seconds = dict.fromkeys(self._slowed_before, 0.0)
        self._marks: list[tuple[int, float | None, float]] = [(windows, 0.0, 0.0)]

    def pause(self) -> None:
        """Stop counting."""
        self._joules, self._seconds = self._energy_and_seconds()
        slowed = _increases(self._slowed_before, self._read_slowdowns())
        self._slowed_seconds = {
            cause: seconds + slowed[cause]
            for cause, seconds in self._slowed_seconds.items()
            if cause in slowed
        }

    def resume(self) -> None:
        """Go on counting."""
        self._slowed_before = self._read_slowdowns()
        self._before = read_counters(self._device, self._gpu)
        self._since = self._clock()

    def mark(self, windows: int) -> None:
        """Note the energy after this number of windows, unless the last mark is too recent."""
        counted = self._seconds + self._clock() - self._since
        if self._before and counted - self._marks[-1][2] >= _MARK_SECONDS:
            self._marks.append((windows, *self._energy_and_seconds()))

    def read(self, first_window: int = 0) -> DeviceUse:
        """Return the use of the device.

        The energy is that from the first mark after the warm-up on, which are the windows before
        number `first_window`. If there is no such mark, it is unknown. The slowdowns are those
        since `restart`.
        """
        self.pause()
        self.resume()
        joules = seconds = None
        for windows, joules_before, seconds_before in self._marks:
            if windows >= first_window:
                is_known = self._joules is not None and joules_before is not None
                joules = (self._joules or 0.0) - (joules_before or 0.0) if is_known else None
                seconds = self._seconds - seconds_before
                break
        return DeviceUse(joules, seconds, self._slowed_seconds, self._seconds)

    def _energy_and_seconds(self) -> tuple[float | None, float]:
        """Return the joules and seconds since `restart`. Call this only while the meter runs."""
        used = joules_used(self._before, read_counters(self._device, self._gpu))
        seconds = self._seconds + self._clock() - self._since
        return None if used is None or self._joules is None else self._joules + used, seconds

    def _read_slowdowns(self) -> Dict[str, float]:
        return nvml.slowed_seconds(self._gpu) if self._gpu else {}


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


def _increases(before: Dict[str, float], after: Dict[str, float]) -> Dict[str, float]:
    """Return by how much each value increased. A value that decreased or is missing is left out."""
    return {
        name: after[name] - value
        for name, value in before.items()
        if name in after and after[name] >= value
    }


def _read_rapl(folder: Path = _POWERCAP) -> Reading:
    counters: Reading = {}
    for package in sorted(folder.glob("intel-rapl:[0-9]*")):
        if package.name.count(":") > 1:  # part of a package, whose counter includes this part
            continue
        try:
            used, span = (
                int((package / name).read_bytes()) / 1e6
                for name in ("energy_uj", "max_energy_range_uj")
            )
        except (OSError, ValueError):
            return {}
        counters[package.name] = (used, span)
    return counters
