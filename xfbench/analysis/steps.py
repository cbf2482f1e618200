"""What the step times of launches say beside their median: slow steps, and two modes."""

from __future__ import annotations

import math
import statistics as stdlib_statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from xfbench.model.record import Record
from xfbench.statistics import has_valid_steps

# A percentile needs so many steps that one of them is beyond it.
_MIN_STEPS_BY_PERCENTILE = {95: 20, 99: 100}
_MIN_STEPS_OF_MODES = 20
_TRIMMED_PART = 20  # one in so many steps at each end may be far off
_MIN_MODE_STEPS, _MIN_MODE_SHARE = 4, 0.1
_MIN_MODE_RATIO = 1.05  # of the slower mode to the faster one
_MIN_MODE_DISTANCE = 6.0  # in standard deviations within a mode


@dataclass(frozen=True)
class Steps:
    """The timed steps of a cell's launches. Each value is a median over the launches that have it.

    With windows of several steps, a step is the mean of a window.

    - `median_seconds`: duration of the median step.
    - `p95_seconds`, `p99_seconds`: the duration that 95 % (99 %) of the steps do not exceed. None
      without a launch of at least 20 (100) steps.
    - `sustained_images_per_second`: all images divided by all seconds.
    - `two_modes`: number of launches whose steps form two groups (see `has_two_modes`).
    """

    median_seconds: float
    p95_seconds: float | None
    p99_seconds: float | None
    sustained_images_per_second: float
    two_modes: int


def describe_steps(records: Iterable[Record]) -> Steps | None:
    """Return what the steps of the ok launches say, or None without launches."""
    series = [
        record
        for record in records
        if record.status == "ok"
        and record.measurement
        and record.measurement.step_seconds
        and has_valid_steps(record)
    ]
    if not series:
        return None
    steps = [record.measurement.step_seconds for record in series if record.measurement]
    return Steps(
        median_seconds=stdlib_statistics.median(map(stdlib_statistics.median, steps)),
        p95_seconds=_median_percentile(steps, 95),
        p99_seconds=_median_percentile(steps, 99),
        sustained_images_per_second=stdlib_statistics.median(map(_sustained_rate, series)),
        two_modes=sum(map(has_two_modes, steps)),
    )


def _sustained_rate(record: Record) -> float:
    """Return all images over all seconds. Ranks that do not wait for one another are added up."""
    request, measurement = record.request, record.measurement
    assert request and measurement
    if measurement.rank_step_seconds:
        return sum(
            request.batch_size_per_rank * len(seconds) / sum(seconds)
            for seconds in measurement.rank_step_seconds
        )
    seconds = measurement.step_seconds
    return request.global_batch_size * len(seconds) / sum(seconds)


def _median_percentile(series: Iterable[Sequence[float]], percent: int) -> float | None:
    values = [
        sorted(seconds)[-(-percent * len(seconds) // 100) - 1]
        for seconds in series
        if len(seconds) >= _MIN_STEPS_BY_PERCENTILE[percent]
    ]
    return stdlib_statistics.median(values) if values else None


def has_two_modes(seconds: Sequence[float]) -> bool:
    """Return whether the steps form two groups, a fast one and a slow one.

    The logarithms of the steps, without a twentieth at each end, are split where the variance
    within the two groups is smallest (Fisher 1958). The groups are modes under these conditions:

    - There are at least 20 steps. Each group has at least a tenth of the remaining ones, and at
      least four.
    - The means of the groups differ by more than 5 %, and by at least six standard deviations
      within a group (root mean square; Ashman, Bird and Zepf 1994 call this D).

    The two halves of a bell curve are 2.7 standard deviations apart, those of a uniform
    distribution 3.5.
    """
    if len(seconds) < _MIN_STEPS_OF_MODES or min(seconds) <= 0:
        return False
    if max(seconds) <= _MIN_MODE_RATIO * min(seconds):
        return False
    trimmed = len(seconds) // _TRIMMED_PART
    logs = np.sort(np.log(seconds))[trimmed : len(seconds) - trimmed]
    count = len(logs)
    least = max(_MIN_MODE_STEPS, math.ceil(_MIN_MODE_SHARE * count))
    sizes = np.arange(least, count - least + 1)
    sums, squares = np.cumsum(logs)[sizes - 1], np.cumsum(logs**2)[sizes - 1]
    fast, slow = sums / sizes, (logs.sum() - sums) / (count - sizes)
    fast_squares = squares - sizes * fast**2
    slow_squares = (logs**2).sum() - squares - (count - sizes) * slow**2
    at = int((fast_squares + slow_squares).argmin())
    distance = float(slow[at] - fast[at])
    variance = (fast_squares[at] / sizes[at] + slow_squares[at] / (count - sizes[at])) / 2
    return bool(
        distance > math.log(_MIN_MODE_RATIO) and distance**2 >= _MIN_MODE_DISTANCE**2 * variance
    )
