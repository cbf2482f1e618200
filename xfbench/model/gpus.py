"""The NVIDIA devices that a launch's ranks computed on, and whether they were its alone and free.

What NVML told is in the record as it was told; what follows from it is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from xfbench.model.sealed import DocumentPart

# Of the time before anything of the launch was on the device: a driver's housekeeping takes less.
_MAX_BUSY_SHARE = 0.05
_MAX_SLOWED_SHARE = 0.01  # of the time that its steps took
# Any of these takes clocks to a fraction; "hardware slowdown" alone also stands at a mere change.
_FORCED_SLOWDOWNS = ("software thermal slowdown", "hardware thermal slowdown", "power brake")


class Gpu(DocumentPart):
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


def invalid_reason(gpus: Sequence[Gpu], wall_seconds: float) -> str | None:
    """Why figures are not those of the devices; None where they are. Whoever was the cause."""
    for gpu in gpus:
        if gpu.others:
            return (
                f"the GPU of rank {gpu.rank} was shared with {', '.join(gpu.others)}: "
                "wait until it has ended, or ask for a GPU of your own"
            )
        if (gpu.busy_before or 0.0) > _MAX_BUSY_SHARE:
            return (
                f"the GPU of rank {gpu.rank} was busy for {gpu.busy_before:.0%} of the time before "
                "the launch was on it: wait until it is free, or ask for a GPU of your own"
            )
        thermal_s = gpu.slowed_seconds.get("thermal", 0.0)
        if thermal_s > _MAX_SLOWED_SHARE * wall_seconds or set(gpu.slowed_by) & set(
            _FORCED_SLOWDOWNS
        ):
            causes = [cause for cause in _FORCED_SLOWDOWNS if cause in gpu.slowed_by] or ["thermal"]
            return (
                f"the GPU of rank {gpu.rank} was slowed down ({', '.join(causes)}; "
                f"{thermal_s:.1f} s of "
                f"{wall_seconds:.1f} s{_temperature_text(gpu)}): see to its cooling and its "
                "power supply"
            )
    return None


def noise_causes(gpus: Sequence[Gpu], wall_seconds: float) -> Iterator[str]:
    """What may have changed a launch's figures, a line each: how a site runs its devices, too."""
    for gpu in gpus:
        for cause, slowed_s in gpu.slowed_seconds.items():
            if slowed_s > _MAX_SLOWED_SHARE * wall_seconds and cause != "thermal":
                limit = f" of {gpu.power_limit_watts:.0f} W" if gpu.power_limit_watts else ""
                description = f"power limit{limit}" if cause == "power" else cause
                yield (
                    f"{description} held the clock of rank {gpu.rank}'s GPU down for "
                    f"{slowed_s:.1f} s"
                )
        if "application clocks" in gpu.slowed_by and gpu.clock_hz and gpu.most_clock_hz:
            yield (
                f"the clock of rank {gpu.rank}'s GPU is set to {gpu.clock_hz / 1e6:.0f} MHz "
                f"of {gpu.most_clock_hz / 1e6:.0f}"
            )


def _temperature_text(gpu: Gpu) -> str:
    return "" if gpu.temperature_celsius is None else f", {gpu.temperature_celsius:.0f} °C"
