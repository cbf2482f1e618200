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
    """What the training device did in a certain time.

    - `joules`: the energy that it used. None if unknown.
    - `slowed_seconds`: by cause, for how long the cause held its clock down.
    - `seconds`: the duration of the time.
    """

    joules: float | None
    slowed_seconds: Dict[str, float]
    seconds: float


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
    window belongs to the warm-up is known only later. Therefore `mark` notes the use so far, and
    `read` leaves out the use before a mark. Call no method within a window.
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
        self._use = DeviceUse(0.0, dict.fromkeys(self._slowed_before, 0.0), 0.0)
        self._marks = [(windows, self._use)]

    def pause(self) -> None:
        """Stop counting."""
        joules = joules_used(self._before, read_counters(self._device, self._gpu))
        seconds, use = self._clock() - self._since, self._use
        slowed = _increases(self._slowed_before, self._read_slowdowns())
        self._use = DeviceUse(
            None if joules is None or use.joules is None else use.joules + joules,
            {
                cause: earlier + slowed[cause]
                for cause, earlier in use.slowed_seconds.items()
                if cause in slowed
            },
            use.seconds + seconds,
        )

    def resume(self) -> None:
        """Go on counting."""
        self._before = read_counters(self._device, self._gpu)
        self._since = self._clock()
        self._slowed_before = self._read_slowdowns()

    def mark(self, windows: int) -> None:
        """Note the use after this number of windows, unless the last mark is too recent."""
        counted = self._use.seconds + self._clock() - self._since
        is_counting = self._before or self._slowed_before
        if is_counting and counted - self._marks[-1][1].seconds >= _MARK_SECONDS:
            self.pause()
            self.resume()
            self._marks.append((windows, self._use))

    def read(self, first_window: int = 0) -> DeviceUse | None:
        """Return the use in the windows from the first mark after the warm-up on.

        The warm-up are the windows before number `first_window`. None if there is no such mark.
        """
        self.pause()
        self.resume()
        for windows, before in self._marks:
            if windows >= first_window:
                return _use_since(before, self._use)
        return None

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


def _use_since(before: DeviceUse, now: DeviceUse) -> DeviceUse:
    is_known = now.joules is not None and before.joules is not None
    return DeviceUse(
        (now.joules or 0.0) - (before.joules or 0.0) if is_known else None,
        _increases(before.slowed_seconds, now.slowed_seconds),
        now.seconds - before.seconds,
    )


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
                int((package / name).read_text()) / 1e6
                for name in ("energy_uj", "max_energy_range_uj")
            )
        except (OSError, ValueError):
            return {}
        counters[package.name] = (used, span)
    return counters
