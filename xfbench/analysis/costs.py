"""Costs that throughput does not show: start-up, time to a solution, memory and energy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xfbench.analysis.censored import censored_median
from xfbench.analysis.learning import TimeToTarget, is_learning_run, time_to_test_accuracy
from xfbench.model import gpus
from xfbench.model.record import Record

_MIN_GPU_ENERGY_SECONDS = 1.0


@dataclass(frozen=True)
class Costs:
    """The costs of one cell, from its ok launches.

    Most values are medians over the launches. Except for `accuracy_seconds`, they are None unless
    every launch has the value.

    - `startup_seconds`: from the start of the process until the framework is loaded.
    - `build_seconds`: duration of building the network.
    - `first_step_loaded`: the share of launches whose first step loaded its program instead of
      compiling it. A launch counts as compiled if its framework does not say.
    - `solution_seconds`: start-up, building and the steps of all epochs, without evaluations.
    - `accuracy_seconds`: start-up, building and training until the test accuracy is at least
      `target`, without evaluations. Between two evaluations, the accuracy is interpolated. A launch
      that missed `target` is censored. The median exists if more than half of the launches reached
      it (see `censored_median`).
    - `accuracy_reached`, `accuracy_runs`: how many launches reached `target`, and of how many.
      Launches that diverged missed it.
    - `peak_rss_bytes`: peak memory. This is the maximum over the launches, not the median.
    - `peak_device_bytes`: peak memory of the framework's data on a GPU, the maximum over the
      launches.
    - `joules_per_image`: energy of the training devices for one image.
    - `gpu_utilization`: share of the timed steps in which a kernel ran on a GPU, as the mean over
      the GPUs.
    - `target`: test accuracy from 0 to 1.
    """

    startup_seconds: float | None
    build_seconds: float | None
    first_step_seconds: float | None
    first_step_loaded: float
    solution_seconds: float | None
    accuracy_seconds: float | None
    accuracy_reached: int
    accuracy_runs: int
    peak_rss_bytes: int | None
    peak_device_bytes: int | None
    joules_per_image: float | None
    gpu_utilization: float | None
    target: float


def costs_of_launches(records: Sequence[Record], target_accuracy: float) -> Costs:
    """Return the costs of one cell, from the records of its launches.

    `target_accuracy`: the test accuracy, from 0 to 1, that ends `Costs.accuracy_seconds`.
    """
    ok_records = [record for record in records if record.status == "ok" and record.measurement]

    def largest_if_all_known(name: str) -> int | None:
        values = [getattr(record.measurement, name) for record in ok_records]
        return None if None in values else max(values, default=None)

    def median_if_all_known(figure: Callable[[Record], float | None]) -> float | None:
        values = [figure(record) for record in ok_records]
        numbers = [value for value in values if value is not None]
        return statistics.median(numbers) if numbers and len(numbers) == len(values) else None

    def median_field_if_all_known(name: str) -> float | None:
        return median_if_all_known(lambda record: getattr(record.measurement, name))

    runs = [record for record in records if is_learning_run(record)]
    times = [time_to_test_accuracy(run, target_accuracy) for run in runs]
    return Costs(
        startup_seconds=median_field_if_all_known("startup_seconds"),
        build_seconds=median_field_if_all_known("build_seconds"),
        first_step_seconds=median_field_if_all_known("first_step_seconds"),
        first_step_loaded=sum(map(_is_first_step_loaded, ok_records)) / max(1, len(ok_records)),
        solution_seconds=median_if_all_known(_startup_build_and_training_seconds),
        accuracy_seconds=_median_with_startup_and_build(runs, times),
        accuracy_reached=sum(time.is_reached for time in times),
        accuracy_runs=len(runs),
        peak_rss_bytes=largest_if_all_known("peak_rss_bytes"),
        peak_device_bytes=largest_if_all_known("peak_device_bytes"),
        joules_per_image=median_if_all_known(_joules_per_image),
        gpu_utilization=median_if_all_known(gpu_utilization),
        target=target_accuracy,
    )


def gpu_utilization(record: Record) -> float | None:
    """Return the mean utilization of the GPUs in the timed steps; None if unknown."""
    return gpus.mean_utilization(record.observed.gpus) if record.observed else None


def _is_first_step_loaded(record: Record) -> bool:
    return record.observed is not None and record.observed.step_program == "loaded"


def _startup_build_and_training_seconds(record: Record) -> float | None:
    """Return the seconds of start-up, building and the steps of all epochs, without evaluations.

    Returns None if there are no epochs, or if a duration is unknown.
    """
    start_seconds = _startup_and_build_seconds(record)
    if start_seconds is None or not record.learning:
        return None
    return start_seconds + sum(epoch.seconds for epoch in record.learning)


def _median_with_startup_and_build(
    runs: Sequence[Record], times: Sequence[TimeToTarget]
) -> float | None:
    """Return the median of the times of training, start-up and building included.

    Returns None if the median is not known, or the start-up of a run that reached its target.
    """
    totals = []
    for run, time in zip(runs, times, strict=True):
        start_seconds = _startup_and_build_seconds(run)
        if start_seconds is None and time.is_reached:
            return None
        totals.append((time.seconds + (start_seconds or 0.0), time.is_reached))
    return censored_median(totals)


def _startup_and_build_seconds(record: Record) -> float | None:
    measurement = record.measurement
    if measurement is None or measurement.startup_seconds is None:
        return None
    return measurement.startup_seconds + measurement.build_seconds


def _joules_per_image(record: Record) -> float | None:
    """Return the mean device power in the timed steps, times the median step's seconds per image.

    Returns None if the energy of the timed steps is unknown. Records of earlier versions have the
    energy of the whole training loop, in which compiling needs less power than training. NVML's
    counter changes up to ten times a second, so that it says little about a shorter time than
    `_MIN_GPU_ENERGY_SECONDS`.
    """
    measurement, request = record.measurement, record.request
    if measurement is None or request is None or not measurement.step_seconds:
        return None
    joules, seconds = measurement.energy_joules, measurement.energy_seconds
    if joules is None or not seconds:
        return None
    if request.device == "cuda" and seconds < _MIN_GPU_ENERGY_SECONDS:
        return None
    power = joules / seconds
    return power * statistics.median(measurement.step_seconds) / request.global_batch_size
