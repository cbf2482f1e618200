"""What checkpoints cost: size, seconds to save and to load, their share of a run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xfbench.records.record import Checkpoints, Record


@dataclass(frozen=True)
class CheckpointCosts:
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


def checkpoint_costs(records: Sequence[Record]) -> CheckpointCosts | None:
    """What they cost in a cell's launches that are ok; None where none was taken."""
    launches = [
        (record.checkpoints, record.measurement.wall_seconds)
        for record in records
        if record.status == "ok" and record.checkpoints and record.measurement
    ]
    if not launches:
        return None

    def median(figure: Callable[[Checkpoints], float]) -> float:
        return statistics.median(figure(checkpoints) for checkpoints, _ in launches)

    return CheckpointCosts(
        format=launches[-1][0].format,
        file_system=", ".join(
            dict.fromkeys(checkpoints.file_system for checkpoints, _ in launches)
        ),
        bytes=launches[-1][0].bytes,
        save_seconds=median(lambda checkpoints: statistics.median(checkpoints.save_seconds)),
        load_seconds=median(lambda checkpoints: statistics.median(checkpoints.load_seconds)),
        save_bandwidth=median(
            lambda checkpoints: checkpoints.bytes / statistics.median(checkpoints.save_seconds)
        ),
        load_bandwidth=median(
            lambda checkpoints: checkpoints.bytes / statistics.median(checkpoints.load_seconds)
        ),
        share=statistics.median(
            _save_share(checkpoints, wall_seconds) for checkpoints, wall_seconds in launches
        ),
    )


def _save_share(checkpoints: Checkpoints, wall_seconds: float) -> float:
    saving_seconds = sum(checkpoints.save_seconds)
    return saving_seconds / (wall_seconds - checkpoints.wall_seconds + saving_seconds)
