"""Costs that throughput does not show: start-up, time to a solution, memory and energy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xfbench.model.record import Record


@dataclass(frozen=True)
class Costs:
    """The costs of one cell, from its ok launches.

    Each value is the median over the launches. It is None unless every launch has the value.

    - `startup_seconds`: from the start of the process until the framework is loaded.
    - `build_seconds`: duration of building the network.
    - `solution_seconds`: start-up, building and the steps of all epochs, without evaluations.
    - `accuracy_seconds`: start-up, building and the steps of epochs until the test accuracy is at
      least `target`, without evaluations. It is None unless every launch reached `target`.
    - `peak_rss_bytes`: peak memory. This is the maximum over the launches, not the median.
    - `joules_per_image`: energy of the training devices for one image.
    - `target`: test accuracy from 0 to 1.
    """

    startup_seconds: float | None
    build_seconds: float | None
    first_step_seconds: float | None
    solution_seconds: float | None
    accuracy_seconds: float | None
    peak_rss_bytes: int | None
    joules_per_image: float | None
    target: float


def costs_of_launches(records: Sequence[Record], target_accuracy: float) -> Costs:
    """Return the costs of one cell, from the records of its launches.

    `target_accuracy`: the test accuracy, from 0 to 1, that ends `Costs.accuracy_seconds`.
    """
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
            lambda record: _startup_build_and_training_seconds(record, None)
        ),
        accuracy_seconds=median_if_all_known(
            lambda record: _startup_build_and_training_seconds(record, target_accuracy)
        ),
        peak_rss_bytes=max(peaks, default=None),
        joules_per_image=median_if_all_known(_joules_per_image),
        target=target_accuracy,
    )


def _startup_build_and_training_seconds(
    record: Record, until_accuracy: float | None
) -> float | None:
    """Return the seconds of start-up, building and the steps of epochs, without evaluations.

    - `until_accuracy`: the first epoch with at least this test accuracy is the last that counts.
      If it is None, all epochs count.
    - Returns None if no epoch reaches `until_accuracy`, or if a duration is unknown.
    """
    measurement, learning = record.measurement, record.learning
    if measurement is None or not learning or measurement.startup_seconds is None:
        return None
    elapsed_seconds = measurement.startup_seconds + measurement.build_seconds
    for epoch in learning:
        elapsed_seconds += epoch.seconds
        if until_accuracy is not None and (epoch.test_accuracy or 0.0) >= until_accuracy:
            return elapsed_seconds
    return elapsed_seconds if until_accuracy is None else None


def _joules_per_image(record: Record) -> float | None:
    """Return the mean device power in the timed steps, times the median step's seconds per image.

    Returns None if the energy is unknown, or if it includes the energy for checkpoints, as in
    records of earlier versions.
    """
    measurement, request = record.measurement, record.request
    if measurement is None or request is None or measurement.energy_joules is None:
        return None
    if record.checkpoints and measurement.energy_seconds is None:
        return None
    power = measurement.energy_joules / (measurement.energy_seconds or measurement.wall_seconds)
    return power * statistics.median(measurement.step_seconds) / request.global_batch_size
