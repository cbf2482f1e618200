"""Costs besides time per step: start-up, time to a solution, memory and energy.

Throughput does not replace these figures: a fast framework may be slow to start.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xfbench.model.record import Record


@dataclass(frozen=True)
class Costs:
    """Costs of one cell: medians over its launches, the maximum for memory; None if unknown.

    `startup_seconds` ends when the framework is loaded, `build_seconds` when the network is built;
    the first step follows. `solution_seconds` covers all of that and the steps of all epochs.
    `accuracy_seconds` covers the same up to the first epoch with a test accuracy of at least
    `target`. It is None unless every launch reached it. Evaluations are not counted.
    """

    startup_seconds: float | None
    build_seconds: float | None
    first_step_seconds: float | None
    solution_seconds: float | None
    accuracy_seconds: float | None
    peak_rss_bytes: int | None
    joules_per_image: float | None
    target: float


def time_memory_and_energy_costs(records: Sequence[Record], target_accuracy: float) -> Costs:
    """Return the costs of a cell from its ok launches."""
    ok_records = [record for record in records if record.status == "ok" and record.measurement]
    peaks = [record.measurement.peak_rss_bytes for record in ok_records if record.measurement]

    def median_if_all_known(figure: Callable[[Record], float | None]) -> float | None:
        values = [figure(record) for record in ok_records]
        numbers = [value for value in values if value is not None]
        return statistics.median(numbers) if numbers and len(numbers) == len(values) else None

    def median_field_if_all_known(name: str) -> float | None:
        return median_if_all_known(lambda record: getattr(record.measurement, name))

    return Costs(
        startup_seconds=median_field_if_all_known("startup_seconds"),
        build_seconds=median_field_if_all_known("build_seconds"),
        first_step_seconds=median_field_if_all_known("first_step_seconds"),
        solution_seconds=median_if_all_known(
            lambda record: _seconds_to_accuracy_or_end(record, None)
        ),
        accuracy_seconds=median_if_all_known(
            lambda record: _seconds_to_accuracy_or_end(record, target_accuracy)
        ),
        peak_rss_bytes=max(peaks, default=None),
        joules_per_image=median_if_all_known(_joules_per_image),
        target=target_accuracy,
    )


def _seconds_to_accuracy_or_end(record: Record, target_accuracy: float | None) -> float | None:
    """Return seconds from process start to the end of training, or of the epoch at `target`."""
    measurement, learning = record.measurement, record.learning
    if measurement is None or not learning or measurement.startup_seconds is None:
        return None
    elapsed_seconds = measurement.startup_seconds + measurement.build_seconds
    for epoch in learning:
        elapsed_seconds += epoch.seconds
        if target_accuracy is not None and (epoch.test_accuracy or 0.0) >= target_accuracy:
            return elapsed_seconds
    return elapsed_seconds if target_accuracy is None else None


def _joules_per_image(record: Record) -> float | None:
    """Return the mean device power during training times the seconds per image of the median step.

    Returns None if checkpoints were taken, because the power includes theirs.
    """
    measurement, request = record.measurement, record.request
    if measurement is None or request is None or measurement.energy_joules is None:
        return None
    if record.checkpoints:
        return None
    power = measurement.energy_joules / measurement.wall_seconds
    return power * statistics.median(measurement.step_seconds) / request.global_batch_size
