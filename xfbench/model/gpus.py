"""The NVIDIA devices that a launch's ranks computed on, and whether they were free.

A record stores what NVML reported. This module draws conclusions from it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from pydantic import Field

from xfbench.model.sealed import DocumentPart

# Share of the time before the launch used the device. The driver alone keeps it less busy.
_MAX_BUSY_SHARE = 0.05
_MAX_SLOWED_SHARE = 0.01  # share of the time in which slowdowns were counted
# Each of these cuts the clock to a fraction. "hardware slowdown" also appears at any clock change.
_FORCED_SLOWDOWNS = ("software thermal slowdown", "hardware thermal slowdown", "power brake")


class Gpu(DocumentPart):
    """A rank's NVIDIA device, as NVML reported it after the last step.

    A field is null if NVML did not report it.

    `uuid_hash` tells devices apart; it is a hash of the UUID of the GPU or of its MIG instance.

    `clock_hz` is the clock of the multiprocessors.
    `most_clock_hz` is the highest clock of the multiprocessors.
    `slowed_by` has the causes that held the clock down after the last step.
    `slowed_seconds` has, for each cause, how long it held the clock down.
    `slowed_of_seconds` is the duration in which `slowed_seconds` were counted: the timed steps, and
    the steps by which the warm-up was extended; null: the launch from before its build on, in
    records of earlier versions.
    `utilization` is the share of time in which a kernel ran during the timed steps, as the mean of
    NVML's samples between windows; null: they took less than a second, or NVML does not tell.
    `busy_before` is the share of time that the device was busy before the launch used it.
    `memory_bytes` is the memory in use by all processes.
    `others` has "another process" for each process on the device that is not of the launch (names
    of programs in records of earlier versions); null: unknown, for example in a container.
    """

    rank: int = 0
    uuid_hash: str | None = None
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
    slowed_of_seconds: float | None = None
    others: tuple[str, ...] | None = ()
    utilization: float | None = None


def count_devices(gpus: Sequence[Gpu], ranks: int) -> int:
    """Return on how many devices the ranks computed. Ranks without a known GPU have their own."""
    hashes = {gpu.uuid_hash for gpu in gpus}
    return len(hashes) if hashes and None not in hashes else ranks


def mean_utilization(gpus: Sequence[Gpu]) -> float | None:
    """Return the mean utilization of the ranks' GPUs. None if it is unknown for a rank."""
    shares = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    return statistics.fmean(shares) if shares and len(shares) == len(gpus) else None


def count_other_processes(names: Sequence[str]) -> str:
    """Return how many other processes there were, such as "2 other processes"."""
    return "another process" if len(names) == 1 else f"{len(names)} other processes"


def invalid_reason(gpus: Sequence[Gpu], wall_seconds: float) -> str | None:
    """Return why a device was shared, busy or slowed down, in one line; None if none was.

    `wall_seconds` is the duration of the training loop. Records of earlier versions need it.
    """
    for gpu in gpus:
        duration_s = gpu.slowed_of_seconds or wall_seconds
        if gpu.others:
            return (
                f"the GPU of rank {gpu.rank} was shared with {count_other_processes(gpu.others)}: "
                "wait until it is free, or request an exclusive GPU"
            )
        if (gpu.busy_before or 0.0) > _MAX_BUSY_SHARE:
            return (
                f"the GPU of rank {gpu.rank} was busy for {gpu.busy_before:.0%} of the time before "
                "the launch used it: wait until it is free, or request an exclusive GPU"
            )
        thermal_s = gpu.slowed_seconds.get("thermal", 0.0)
        if thermal_s > _MAX_SLOWED_SHARE * duration_s or set(gpu.slowed_by) & set(
            _FORCED_SLOWDOWNS
        ):
            causes = [cause for cause in _FORCED_SLOWDOWNS if cause in gpu.slowed_by] or ["thermal"]
            return (
                f"the GPU of rank {gpu.rank} was slowed down ({', '.join(causes)}; "
                f"{thermal_s:.1f} s of "
                f"{duration_s:.1f} s{_temperature_text(gpu)}): check its cooling and its "
                "power supply"
            )
    return None


def noise_causes(gpus: Sequence[Gpu], wall_seconds: float) -> Iterator[str]:
    """Yield each cause that may have changed the launch's figures, as one line.

    A clock that an administrator has set counts as a cause. `wall_seconds` is the duration of the
    training loop. Records of earlier versions need it.
    """
    for gpu in gpus:
        duration_s = gpu.slowed_of_seconds or wall_seconds
        for cause, slowed_s in gpu.slowed_seconds.items():
            if slowed_s > _MAX_SLOWED_SHARE * duration_s and cause != "thermal":
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
