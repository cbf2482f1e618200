"""Figures computed from records. The unit of replication is the launch, never the step.

The steps of one launch are not independent. Therefore a launch gives one value: its median step
after warm-up. No launch is left out because of its figure. The figure of a cell is its median
launch. Its confidence interval does not assume a distribution (`median_interval`).

`pairwise.py` compares cells. No figure is stored: all figures are computed from records when
needed.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from xfbench.model.record import Measurement, Record
from xfbench.model.request import Request
from xfbench.worker.steady import has_level_change


class Block(NamedTuple):
    """What identifies the launches, one of each cell, that ran one after another.

    - `session`: the session of the launches (see `next_block`).
    - `seed`, `launch`: their seed and launch number.
    - `repetition`: 0 for the first launch of a cell with these values, 1 for the second, …
    """

    session: str
    seed: int
    launch: int
    repetition: int


# One value per launch, by block.
Launches = Mapping[Block, float]

CONFIDENCE = 0.95
CLAIM_LAUNCHES = 5
CLAIM_HALF_WIDTH = 0.25  # a claim needs an interval of ±25 % or less
MIN_SESSIONS = 3  # from this number of sessions on, intervals are over sessions
INDICATIVE_LAUNCHES = 3
_OUTLIER_SCORE = 3.5  # modified z-score
# Correlation of neighbouring launches in recorded series (docs/measured/intervals.md), and its
# weight in launches.
_TYPICAL_CORRELATION, _TYPICAL_WEIGHT = 0.15, 10
_MAX_CORRELATION = 0.7
RANGE_LAUNCHES = 5  # whose range is a figure: as many runs as a published range has
# Of five standard normal values (Tippett, Biometrika 17, 1925, 364–387; "d2" of control charts).
_EXPECTED_RANGE = 2.325929
_MIN_BOUND = 1e-300  # the inverse of a smaller number overflows
_MIN_STEP_S, _MAX_STEP_S = 1e-9, 1e9  # plausible seconds of a step


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval.

    - `low`, `high`: the ends of the interval; None if there are too few values for an interval.
    - `launches`: the number of summarized values. Usually, each value is from one launch.
    - `confidence`: probability that such intervals contain the true value. None: `low` and `high`
      are the smallest and the largest value, because there are too few for an interval.
    """

    value: float
    low: float | None
    high: float | None
    launches: int
    confidence: float | None = CONFIDENCE

    @property
    def label(self) -> str:
        """Return "claim", "indicative" or "smoke".

        - claim: five launches or more, and the interval is ±25 % or narrower.
        - smoke: one or two launches.
        """
        if self.launches < INDICATIVE_LAUNCHES:
            return "smoke"
        is_claim = self.launches >= CLAIM_LAUNCHES and self.is_within(CLAIM_HALF_WIDTH)
        return "claim" if is_claim else "indicative"

    def is_within(self, precision: float) -> bool:
        """Return whether the half-width of the confidence interval is at most `precision`.

        `precision` is relative to the value. For example, ±2 % is 0.02. The half-width is that of
        the logarithms. A range is not a confidence interval.
        """
        if self.low is None or self.high is None or self.confidence is None:
            return False
        return self.low > 0 and self.high / self.low <= (1 + precision) ** 2

    def inverse(self) -> Interval:
        """Return the interval of 1 / value."""
        low, high = (
            None if bound is None else 1 / max(bound, _MIN_BOUND) for bound in (self.high, self.low)
        )
        return replace(self, value=1 / self.value, low=low, high=high)


def throughput(request: Request, measurement: Measurement) -> float:
    """Return the throughput of a launch in images per second; 0 without timed steps.

    The throughput is the global batch size divided by the median time of a timed step. With an
    asynchronous strategy, it is the sum of the throughputs of all ranks.
    """
    if measurement.rank_step_seconds:
        batch_size = request.batch_size_per_rank
        return sum(
            _median_rate(batch_size, step_seconds) for step_seconds in measurement.rank_step_seconds
        )
    return _median_rate(request.global_batch_size, measurement.step_seconds)


def _median_rate(images: int, step_seconds: Sequence[float]) -> float:
    """Return images per second at the median step, or 0 without steps."""
    median = statistics.median(step_seconds or (0.0,))
    return images / median if median > 0 else 0.0


def launch_throughput(record: Record) -> float:
    """Return the throughput of the record's launch in images per second.

    Raises ValueError if the record has no measurement.
    """
    if record.measurement is None or record.request is None:
        raise ValueError(f"record {record.id} has no measurement")
    return throughput(record.request, record.measurement)


def has_valid_steps(record: Record) -> bool:
    """Return whether a figure can be computed from the step times of the launch.

    A launch without timed steps, or with implausible step times, has no figure.
    """
    measurement = record.measurement
    return measurement is not None and all(
        map(_are_plausible, measurement.rank_step_seconds or (measurement.step_seconds,))
    )


def is_level_changed(record: Record) -> bool:
    """Return whether the level of the launch's step times changes after the warm-up.

    The launch counts all the same. With an asynchronous strategy, the steps of each rank are
    tested.
    """
    measurement = record.measurement
    return measurement is not None and any(
        map(_has_level_change, measurement.rank_step_seconds or (measurement.step_seconds,))
    )


# Both are cached, because a table needs them several times for each launch.
@lru_cache(maxsize=4096)
def _are_plausible(seconds: tuple[float, ...]) -> bool:
    return bool(seconds) and all(_MIN_STEP_S <= step <= _MAX_STEP_S for step in seconds)


@lru_cache(maxsize=4096)
def _has_level_change(seconds: tuple[float, ...]) -> bool:
    return has_level_change(seconds)


def outliers(values: Sequence[float]) -> list[bool]:
    """Return for each value whether it is an outlier. The values must be positive.

    An outlier has a modified z-score above 3.5 (Iglewicz and Hoaglin 1993). The score is 0.6745 ·
    |x − median| / MAD, where x is the logarithm of the value. Fewer than five values have no
    outliers. Outliers are marked, never removed.
    """
    if len(values) < CLAIM_LAUNCHES:
        return [False] * len(values)
    logs = np.log(values)
    deviations = np.abs(logs - np.median(logs))
    return [
        bool(is_outlier)
        for is_outlier in 0.6745 * deviations > _OUTLIER_SCORE * np.median(deviations)
    ]


def geometric_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the geometric mean of positive values, with a t-interval of their logarithms.

    A single value has no interval. Raises ValueError if `values` is empty or a value is not
    positive.
    """
    if not values or not all(value > 0 for value in values):
        raise ValueError("values must be positive, and at least one is needed")
    logs = [math.log(value) for value in values]
    centre = statistics.fmean(logs)
    if len(logs) < 2:
        return Interval(math.exp(centre), None, None, len(logs))
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    half_width = float(special.stdtrit(len(logs) - 1, (1 + confidence) / 2)) * error
    return Interval(
        math.exp(centre),
        math.exp(centre - half_width),
        math.exp(centre + half_width),
        len(logs),
        confidence,
    )


def interval_of_launches(launches: Launches) -> Interval:
    """Return the median of launches, with its interval.

    - Launches of one or two sessions: the interval is over launches. With two sessions, it does not
      cover the difference between them.
    - Launches of three sessions or more: the value is the geometric mean of the sessions' medians.
      The interval is over these medians.

    The values may be of any positive quantity. Raises ValueError if there is no launch.
    """
    sessions = values_by_session(launches)
    if len(sessions) < MIN_SESSIONS:
        return median_interval([launches[block] for block in sorted(launches, key=_time_order)])
    medians = [median_interval([*values.values()]).value for values in sessions.values()]
    return replace(geometric_interval(medians), launches=len(launches))


def _time_order(block: Block) -> tuple[str, int, int, int]:
    """Return a sort key: a session launches all seeds of a block before the next block."""
    return block.session, block.launch, block.repetition, block.seed


def take_logarithms(launches: Launches) -> Launches:
    """Return the natural logarithm of each launch."""
    return {block: math.log(speed) for block, speed in launches.items()}


def values_by_session(launches: Launches) -> dict[str, dict[Block, float]]:
    """Return the values of each session."""
    sessions: dict[str, dict[Block, float]] = defaultdict(dict)
    for block, value in launches.items():
        sessions[block.session][block] = value
    return sessions


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of positive values, with an interval that assumes no distribution.

    - `values`: in the order in which they were measured.

    The interval interpolates between the logarithms of order statistics (Hettmansperger and
    Sheather, Statistics & Probability Letters 4, 1986, 75–79). With five values, it extends their
    range by 18 % of the distance to the next value at each end. If neighbours resemble each other,
    the interval is widened (see `neighbour_correlation`). With fewer than five values, `low` and
    `high` are the range. A single value has neither. Raises ValueError if `values` is empty or a
    value is not positive.
    """
    if not values or not all(value > 0 for value in values):
        raise ValueError("values must be positive, and at least one is needed")
    count, ordered = len(values), sorted(values)
    middle, value = count // 2, ordered[count // 2]
    if not count % 2:
        value = math.sqrt(value * ordered[middle - 1])
    if count < 2:
        return Interval(value, None, None, count)
    if count < CLAIM_LAUNCHES:
        return Interval(value, ordered[0], ordered[-1], count, None)
    logs = [*map(math.log, ordered)]
    depth, weight = _interval_depth(count)
    low = (1 - weight) * logs[depth - 1] + weight * logs[depth]
    high = (1 - weight) * logs[count - depth] + weight * logs[count - depth - 1]
    correlation = neighbour_correlation(values)
    # The variance of a mean of correlated values is larger by this factor (Bartlett 1935).
    widening = math.sqrt((1 + correlation) / (1 - correlation))
    centre = math.log(value)
    low, high = (centre + widening * (end - centre) for end in (low, high))
    # The limits matter if launches are equal, because of rounding.
    return Interval(value, min(math.exp(low), value), max(math.exp(high), value), count)


def neighbour_correlation(values: Sequence[float]) -> float:
    """Return an estimate of the correlation of neighbouring launches, from 0 to 0.7.

    - `values`: in the order in which they were measured.

    This is the correlation of the ranks of neighbours, plus its bias (Kendall, Biometrika 41,
    1954, 403–404). Few values hardly determine it. Therefore the result is a mean with a weight of
    n for the estimate from n values, and of 10 for a typical correlation.
    """
    count = len(values)
    _, places, ties = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[places] - (count + 1) / 2  # ties share their mean
    total = float(np.sum(ranks**2))
    estimate = float(np.sum(ranks[1:] * ranks[:-1])) / total if total else 0.0
    estimate += (1 + 3 * max(estimate, 0.0)) / count
    weighted = count * estimate + _TYPICAL_WEIGHT * _TYPICAL_CORRELATION
    return min(max(weighted / (count + _TYPICAL_WEIGHT), 0.0), _MAX_CORRELATION)


@lru_cache
def _interval_depth(count: int) -> tuple[int, float]:
    """Return the depth of the outer order statistics, and the weight of the inner ones.

    The interval from the d-th smallest to the d-th largest of n values contains the median with
    probability 1 − 2 P(B < d). B is binomial (n, ½).
    """
    coverages = 1 - 2 * special.bdtr(np.arange(count // 2), count, 0.5)
    depth = max(1, int(np.count_nonzero(coverages >= CONFIDENCE)))
    outer, inner = coverages[depth - 1], coverages[depth]
    share = (outer - CONFIDENCE) / (outer - inner)
    weight = (count - depth) * share / (depth + (count - 2 * depth) * share)
    return depth, float(weight)


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the arithmetic mean of `values` with a t-interval.

    The `launches` of the result is the number of values. A single value has no interval. Raises
    ValueError if `values` is empty.
    """
    if not values:
        raise ValueError("at least one value is needed")
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None, 1)
    error = statistics.stdev(values) / math.sqrt(len(values))
    half_width = float(special.stdtrit(len(values) - 1, (1 + confidence) / 2)) * error
    return Interval(mean, mean - half_width, mean + half_width, len(values), confidence)


def share_interval(count: int, total: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the share of `count` launches of `total`, with its Clopper-Pearson interval."""
    tail = (1 - confidence) / 2
    low = special.betaincinv(count, total - count + 1, tail) if count else 0.0
    high = special.betaincinv(count + 1, total - count, 1 - tail) if count < total else 1.0
    return Interval(count / total, float(low), float(high), total, confidence)


def log_deviation_interval(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the standard deviation of the logarithms of positive values, with its interval.

    A small deviation nearly equals the coefficient of variation. The interval is the chi-squared
    interval for the standard deviation of a normal distribution. Returns None for fewer than two
    values.
    """
    if len(values) < 2:
        return None
    logs = [math.log(value) for value in values]
    deviation, freedom = statistics.stdev(logs), len(logs) - 1
    low, high = (
        deviation * math.sqrt(freedom / float(special.chdtri(freedom, 1 - quantile)))
        for quantile in ((1 + confidence) / 2, (1 - confidence) / 2)
    )
    return Interval(deviation, low, high, len(logs))


def range_interval(values: Sequence[float]) -> Interval | None:
    """Return how far the largest of `RANGE_LAUNCHES` values lies above the smallest, as a share.

    The value is e^R − 1, where R is the mean of the ranges of the logarithms of all groups of
    `RANGE_LAUNCHES` values. With so many values, it is (largest − smallest) / smallest.

    The interval is for the expected R of normal logarithms, which is `_EXPECTED_RANGE` standard
    deviations. So it is the interval of `log_deviation_interval`, multiplied by this number. It is
    extended to the value if the values are far from normal. Returns None for fewer than
    `RANGE_LAUNCHES` values. The values must be positive.
    """
    count, size = len(values), RANGE_LAUNCHES
    deviation = log_deviation_interval(values)
    if count < size or deviation is None or deviation.low is None or deviation.high is None:
        return None
    # In how many groups a value is the largest, less in how many it is the smallest.
    weights = [
        math.comb(place, size - 1) - math.comb(count - 1 - place, size - 1)
        for place in range(count)
    ]
    logs = sorted(map(math.log, values))
    mean_range = sum(weight * log for weight, log in zip(weights, logs, strict=True))
    value = math.expm1(mean_range / math.comb(count, size))
    low, high = (math.expm1(_EXPECTED_RANGE * end) for end in (deviation.low, deviation.high))
    return Interval(value, min(low, value), max(high, value), count)


def is_precise(launches: Launches, precision: float) -> bool:
    """Return whether the throughput of launches is known to the relative precision `precision`.

    This is the interval that tables show. Fewer than five launches are never precise.
    """
    return bool(launches) and interval_of_launches(launches).is_within(precision)


def required_launches(
    precision: float, log_deviation: float, min_launches: int, max_launches: int
) -> int:
    """Return how many launches are expected to reach the relative precision `precision`.

    The launches are taken as normal and independent. The interval of a median is wider than the one
    that is used here, so `is_precise` may need more.

    - `log_deviation`: standard deviation of the logarithms of a cell's launches.
    - `min_launches`, `max_launches`: limits of the result. The lower limit is at least 2.
    """
    for count in range(max(min_launches, 2), max_launches):
        t_quantile = float(special.stdtrit(count - 1, (1 + CONFIDENCE) / 2))
        if t_quantile * log_deviation / math.sqrt(count) <= math.log1p(precision):
            return count
    return max_launches


def session_of(record: Record) -> str:
    """Return the session of a record with a request.

    Records of earlier versions name no session. For them, return the day (in UTC) and the machine.
    """
    assert record.request is not None
    machine = record.machine.hostname_hash if record.machine else ""
    return record.request.session or f"{record.created[:10]} {machine}"


def next_block(record: Record, blocks: Collection[Block]) -> Block:
    """Return the block of a record with a request.

    - `blocks`: the blocks of earlier records of the same cell.

    Records of earlier versions name no session. The first launches of a day with their numbers
    count as one session, the second launches as another one, and so on, because each run numbers
    its launches from 1.
    """
    assert record.request is not None
    session, seed, launch = session_of(record), record.request.seed, record.request.launch
    for repetition in itertools.count():
        block = (
            Block(session, seed, launch, repetition)
            if record.request.session
            else Block(f"{session} {repetition + 1}", seed, launch, 0)
        )
        if block not in blocks:
            break
    return block


def counted_speeds_by_block(records: Iterable[Record]) -> dict[Block, float]:
    """Return the throughput in images per second of each launch that counts, by block.

    `records` are the records of one cell. A launch counts if all of this is true:

    - xfbench measured it, its status is "ok", and its step times are plausible.
    - It is not a probe, that is, a test of HPC support.
    """
    speeds: dict[Block, float] = {}
    for record in records:
        if record.source != "measured" or record.status != "ok" or record.request is None:
            continue
        if record.request.probe or not has_valid_steps(record):
            continue
        speeds[next_block(record, speeds)] = launch_throughput(record)
    return speeds
