"""What checkpoints cost: size, seconds to save and to load, their share of a run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xfbench.records.record import Checkpoints, Record


@dataclass(frozen=True)
class Checkpointing:
    """Of one cell: medians over its launches, of the launch's median checkpoint.

    `save_seconds` until all was on the medium, `load_seconds` from there; the bandwidths are
    their bytes per second. `share` is what saving took of the launch's training: of its
    `wall_seconds` without the loading and comparing that only a check needs. `file_system`: all
    types that there were.
    """

    format: str
    file_system: str
    bytes: int
    save_seconds: float
    load_seconds: float
    save_bandwidth: float
    load_bandwidth: float
    share: float


def checkpointing(records: Sequence[Record]) -> Checkpointing | None:
    """What they cost in a cell's launches that are ok; None where none was taken."""
    taken = [
        (record.checkpoints, record.measurement.wall_seconds)
        for record in records
        if record.status == "ok" and record.checkpoints and record.measurement
    ]
    if not taken:
        return None

    def median(of: Callable[[Checkpoints], float]) -> float:
        return statistics.median(of(one) for one, _ in taken)

    return Checkpointing(
        format=taken[-1][0].format,
        file_system=", ".join(dict.fromkeys(one.file_system for one, _ in taken)),
        bytes=taken[-1][0].bytes,
        save_seconds=median(lambda one: statistics.median(one.save_seconds)),
        load_seconds=median(lambda one: statistics.median(one.load_seconds)),
        save_bandwidth=median(lambda one: one.bytes / statistics.median(one.save_seconds)),
        load_bandwidth=median(lambda one: one.bytes / statistics.median(one.load_seconds)),
        share=statistics.median(_share(one, wall) for one, wall in taken),
    )


def _share(told: Checkpoints, wall_seconds: float) -> float:
    saving = sum(told.save_seconds)
    return saving / (wall_seconds - told.wall_seconds + saving)
