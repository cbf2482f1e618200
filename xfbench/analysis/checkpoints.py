"""Costs of checkpoints: size, seconds to save and to load, and share of a run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xfbench.model.record import Checkpoints, Record


@dataclass(frozen=True)
class CheckpointCosts:
    """Checkpoint costs of one cell: medians over launches of each launch's median checkpoint.

    `save_seconds` ends when all bytes are on the medium; `load_seconds` reads them from there. The
    bandwidths are in bytes per second. `share` is the part of the launch's training that saving
    takes: of its `wall_seconds` without the loading and comparing that only a check needs.
    `file_system` lists all types of file system that the launches used.
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
    """Return the checkpoint costs of a cell's ok launches, or None if no checkpoint was taken."""
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
