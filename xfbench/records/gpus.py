"""The NVIDIA devices that a launch's ranks computed on, and whether they were its alone and free.

What NVML told is in the record as it was told; what follows from it is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from xfbench.records.sealed import Part

# Of the time before anything of the launch was on the device: a driver's housekeeping takes less.
_BUSY = 0.05
_HELD = 0.01  # of the time that its steps took
# Any of these takes clocks to a fraction; "hardware slowdown" alone also stands at a mere change.
_FORCED = ("software thermal slowdown", "hardware thermal slowdown", "power brake")


class Gpu(Part):
    """A rank's NVIDIA device, as NVML told of it when the last step was done; null: it does not.

    `clock_hz` of its multiprocessors, of `most_clock_hz`; `slowed_by`: what held it down just
    then, and `slowed_seconds`, by cause, for how long while the rank trained. `busy_before`: which
    share of the time it worked before anything of the launch was on it. `memory_bytes` are in use
    by all, of `memory_of_bytes`. `others`: processes that are none of the launch's.
    """

    rank: int = 0
    name: str | None
    driver: str | None
    clock_hz: float | None
    most_clock_hz: float | None
    temperature_celsius: float | None
    power_limit_watts: float | None
    memory_bytes: int | None
    memory_of_bytes: int | None
    busy_before: float | None
    slowed_by: tuple[str, ...] = ()
    slowed_seconds: dict[str, float] = Field(default_factory=dict)
    others: tuple[str, ...] = ()


def defect(gpus: Sequence[Gpu], wall_seconds: float) -> str | None:
    """Why figures are not those of the devices; None where they are. Whoever was the cause."""
    for one in gpus:
        if one.others:
            return (
                f"the GPU of rank {one.rank} was shared with {', '.join(one.others)}: "
                "wait until it has ended, or ask for a GPU of your own"
            )
        if (one.busy_before or 0.0) > _BUSY:
            return (
                f"the GPU of rank {one.rank} was busy for {one.busy_before:.0%} of the time before "
                "the launch was on it: wait until it is free, or ask for a GPU of your own"
            )
        hot = one.slowed_seconds.get("thermal", 0.0)
        if hot > _HELD * wall_seconds or set(one.slowed_by) & set(_FORCED):
            named = [cause for cause in _FORCED if cause in one.slowed_by] or ["thermal"]
            return (
                f"the GPU of rank {one.rank} was slowed down ({', '.join(named)}; {hot:.1f} s of "
                f"{wall_seconds:.1f} s{_warm(one)}): see to its cooling and its power supply"
            )
    return None


def disturbances(gpus: Sequence[Gpu], wall_seconds: float) -> Iterator[str]:
    """What may have changed a launch's figures, a line each: how a site runs its devices, too."""
    for one in gpus:
        for cause, seconds in one.slowed_seconds.items():
            if seconds > _HELD * wall_seconds and cause != "thermal":
                limit = f" of {one.power_limit_watts:.0f} W" if one.power_limit_watts else ""
                what = f"power limit{limit}" if cause == "power" else cause
                yield f"{what} held the clock of rank {one.rank}'s GPU down for {seconds:.1f} s"
        if "application clocks" in one.slowed_by and one.clock_hz and one.most_clock_hz:
            yield (
                f"the clock of rank {one.rank}'s GPU is set to {one.clock_hz / 1e6:.0f} MHz "
                f"of {one.most_clock_hz / 1e6:.0f}"
            )


def _warm(one: Gpu) -> str:
    return "" if one.temperature_celsius is None else f", {one.temperature_celsius:.0f} °C"
