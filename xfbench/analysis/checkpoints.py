"""Costs of checkpoints: their size, the seconds to save and to load them, and their share."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xfbench.model.record import Checkpoints, Record


@dataclass(frozen=True)
class CheckpointCosts:
    """The checkpoint costs of one cell.

    - `format`: format of the checkpoints in the last launch.
    - `bytes`: size of one checkpoint of the last launch, in bytes.
    - `file_system`: types of file system that the launches used, separated by commas.

    A launch may take several checkpoints. The value of a launch is that of its median checkpoint.
    These fields are medians of the launches' values:

    - `save_seconds`: duration of saving until all bytes are on the medium.
    - `load_seconds`: duration of reading the checkpoint back.
    - `save_bandwidth`, `load_bandwidth`: bytes per second.

    `share` is the time for saving all checkpoints of a launch, divided by the duration of its
    training, as the median over the launches. The duration of the training includes saving, but not
    reading back, comparing and deleting checkpoints.
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
    """Return the costs from a cell's ok launches, or None if no launch took a checkpoint."""
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
