"""Figures computed from records. The unit of replication is the launch, never the step.

The steps of one launch are not independent. Therefore a launch gives one value: its median step
after warm-up. No launch is left out because of its figure. The confidence interval over launches is
Student's t-interval of their logarithms.

Launches of different cells in the same block of the same session ran one after another. They are
compared in pairs, so that slow changes of the machine cancel out. No figure is stored: all figures
are computed from records when needed.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

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
POWER = 0.8  # probability of detecting the smallest visible difference
CLAIM_LAUNCHES = 5
MIN_SESSIONS = 3  # from this number of sessions on, intervals are over sessions
INDICATIVE_LAUNCHES = 3
_OUTLIER_SCORE = 3.5  # modified z-score
_MIN_STEP_S, _MAX_STEP_S = 1e-9, 1e9  # plausible seconds of a step
_MAX_LOGARITHM = 700.0  # larger logarithms overflow a float


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval (95 % unless stated otherwise).

    - `low`, `high`: the ends of the interval; None if there are too few values for an interval.
    - `launches`: the number of summarized values. Usually, each value is from one launch.
    """

    value: float
    low: float | None
    high: float | None
    launches: int

    @property
    def label(self) -> str:
        """Return "claim" for 5 or more launches, "indicative" for 3 or 4, else "smoke"."""
        if self.launches >= CLAIM_LAUNCHES:
            return "claim"
        return "indicative" if self.launches >= INDICATIVE_LAUNCHES else "smoke"


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
    if not values or min(values) <= 0:
        raise ValueError("values must be positive, and at least one is needed")
    logs = [math.log(value) for value in values]
    centre = statistics.fmean(logs)
    if len(logs) < 2:
        return Interval(math.exp(centre), None, None, len(logs))
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    half_width = float(special.stdtrit(len(logs) - 1, (1 + confidence) / 2)) * error
    return Interval(
        math.exp(centre), math.exp(centre - half_width), math.exp(centre + half_width), len(logs)
    )


def joint_confidence(comparisons: int) -> float:
    """Return the confidence that each of several intervals needs to hold together with 95 %.

    This is Bonferroni's correction.
    """
    return 1 - (1 - CONFIDENCE) / max(1, comparisons)


def have_comparable_sessions(a: Launches, b: Launches) -> bool:
    """Return whether A and B have a common session, or each has enough sessions to compare."""
    sessions_a, sessions_b = ({block.session for block in side} for side in (a, b))
    return bool(sessions_a & sessions_b) or min(map(len, (sessions_a, sessions_b))) >= MIN_SESSIONS


def interval_of_launches(launches: Launches) -> Interval:
    """Return the geometric mean of launches, with its interval.

    - Launches of one or two sessions: the interval is over launches. With two sessions, it does not
      cover the difference between them.
    - Launches of three sessions or more: mean and interval are over the means of the sessions.

    The values may be of any positive quantity. Raises ValueError if there is no launch.
    """
    sessions = _values_by_session(_log_values(launches))
    if len(sessions) < MIN_SESSIONS:
        return geometric_interval([*launches.values()])
    means = [math.exp(statistics.fmean(values.values())) for values in sessions.values()]
    return replace(geometric_interval(means), launches=len(launches))


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the median of `values` with a distribution-free interval.

    The interval goes from the k-th smallest to the k-th largest of the n values. It contains the
    median with probability 1 − 2 P(B < k). B is binomial (n, ½) (David and Nagaraja, Order
    Statistics, 7.1). At 95 %, fewer than six values have no interval. Raises ValueError if `values`
    is empty.
    """
    if not values:
        raise ValueError("at least one value is needed")
    count, ordered = len(values), sorted(values)
    # Number of values outside the interval at each end; negative if there are too few values.
    miss_probabilities = 2 * special.bdtr(np.arange(count), count, 0.5)
    excluded = int(np.count_nonzero(miss_probabilities <= 1 - confidence)) - 1
    centre = statistics.median(ordered)
    if excluded < 0:
        return Interval(centre, None, None, count)
    return Interval(centre, ordered[excluded], ordered[count - 1 - excluded], count)


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
    return Interval(mean, mean - half_width, mean + half_width, len(values))


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


def is_precise(launches: Launches, precision: float) -> bool:
    """Return whether the throughput of launches is known to the relative precision `precision`.

    The distance from the mean to the upper end of its interval must be at most `precision` times
    the mean. Fewer than two launches are never precise.
    """
    interval = interval_of_launches(launches) if launches else None
    return bool(interval and interval.high and interval.high / interval.value - 1 <= precision)


def required_launches(
    precision: float, log_deviation: float, min_launches: int, max_launches: int
) -> int:
    """Return how many launches are expected to reach the relative precision `precision`.

    - `log_deviation`: standard deviation of the logarithms of a cell's launches.
    - `min_launches`, `max_launches`: limits of the result. The lower limit is at least 2.
    """
    for count in range(max(min_launches, 2), max_launches):
        t_quantile = float(special.stdtrit(count - 1, (1 + CONFIDENCE) / 2))
        if t_quantile * log_deviation / math.sqrt(count) <= math.log1p(precision):
            return count
    return max_launches


@dataclass(frozen=True)
class Comparison:
    """The ratio of A to B, with its confidence interval.

    - `p`: two-sided probability of a ratio at least as extreme if A and B are equally fast.
    - `smallest_visible_difference`: relative difference that such launches detect with probability
      `POWER`, at the confidence of the interval.
    - `paired`: whether launches of the same blocks were compared.

    With too few launches, `p` and `smallest_visible_difference` are None.
    """

    ratio: Interval
    p: float | None
    smallest_visible_difference: float | None
    paired: bool

    @property
    def verdict(self) -> Literal["faster", "slower", "not_distinguishable"]:
        """Return what the interval of the ratio says: whether it excludes 1.

        The verdict has the confidence of the interval.
        """
        if self.ratio.low is not None and self.ratio.low > 1:
            return "faster"
        if self.ratio.high is not None and self.ratio.high < 1:
            return "slower"
        return "not_distinguishable"


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


@dataclass(frozen=True)
class _LogDifference:
    """The difference between the mean logarithms of two sets of launches.

    - `error`: standard error of the difference; None if it is unknown.
    - `freedom`: degrees of freedom of `error`.
    - `count`: number of pairs if `paired`, else the number of launches of the smaller set. Of
      several sessions, the number of sessions.
    """

    centre: float
    error: float | None
    freedom: float
    count: int
    paired: bool


def compare(a: Launches, b: Launches, *, confidence: float = CONFIDENCE) -> Comparison:
    """Compare the logarithms of A and B, and return the ratio of A to B.

    Only launches of sessions that A and B have in common are compared:

    - In three common sessions or more, the differences within the sessions are compared.
    - In one or two common sessions, launches of the same block are compared in pairs, if there are
      two common blocks or more and the side with fewer blocks has no other blocks. Otherwise
      Welch's test compares the two sides.
    - Without a common session, Welch's test compares the means of the sessions, if each side has
      three sessions or more. With fewer sessions nothing is known about the difference between
      sessions, so there is no interval.

    `confidence` applies to the interval of the ratio. Raises ValueError if a side has no launch.
    """
    if not a or not b:
        raise ValueError("each side needs at least one launch")
    difference = _log_difference(_log_values(a), _log_values(b))
    centre, error = difference.centre, difference.error
    if error is None:
        ratio = Interval(math.exp(centre), None, None, difference.count)
        return Comparison(ratio, None, None, False)
    t_confidence, t_power = special.stdtrit(difference.freedom, [(1 + confidence) / 2, POWER])
    low, high = (_bounded_exp(centre + sign * t_confidence * error) for sign in (-1, 1))
    [p] = _p_values([difference])
    visible_difference = math.expm1(min((t_confidence + t_power) * error, _MAX_LOGARITHM))
    ratio = Interval(math.exp(centre), low, high, difference.count)
    return Comparison(ratio, p, visible_difference, difference.paired)


def overall_ratio(pairs: Sequence[tuple[Launches, Launches]]) -> Interval:
    """Return the geometric mean of the ratios of A to B, over all pairs (A, B).

    Each pair is compared as in `compare`. The interval combines the pairs' standard errors, which
    are independent. Its degrees of freedom are those of Welch and Satterthwaite. If the standard
    error of a pair is unknown, the result has no interval. A pair (A, A) has exactly the ratio 1.
    Raises ValueError if there is no pair.
    """
    if not pairs:
        raise ValueError("at least one pair is needed")
    differences = [_log_difference(_log_values(a), _log_values(b)) for a, b in pairs if a is not b]
    centre = math.fsum(difference.centre for difference in differences) / len(pairs)
    count = min(
        (difference.count for difference in differences), default=min(len(a) for a, _ in pairs)
    )
    squares = [difference.error**2 for difference in differences if difference.error is not None]
    if not differences or len(squares) < len(differences):
        return Interval(math.exp(centre), None, None, count)
    variance = math.fsum(squares)
    weights = math.fsum(
        v**2 / difference.freedom for v, difference in zip(squares, differences, strict=True)
    )
    freedom = (
        variance**2 / weights if weights else min(difference.freedom for difference in differences)
    )
    half_width = (
        float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(variance) / len(pairs)
    )
    return Interval(
        math.exp(centre),
        _bounded_exp(centre - half_width),
        _bounded_exp(centre + half_width),
        count,
    )


def _bounded_exp(logarithm: float) -> float:
    """Return the exponential of `logarithm`, limited so that it does not overflow."""
    return math.exp(min(logarithm, _MAX_LOGARITHM))


def _log_values(launches: Launches) -> Launches:
    return {block: math.log(speed) for block, speed in launches.items()}


def _values_by_session(launches: Launches) -> dict[str, dict[Block, float]]:
    sessions: dict[str, dict[Block, float]] = defaultdict(dict)
    for block, value in launches.items():
        sessions[block.session][block] = value
    return sessions


def _log_difference(a: Launches, b: Launches) -> _LogDifference:
    """Return the difference between the mean logarithms of A and B, with its standard error.

    `a` and `b` have the logarithms of the launches, by block. `compare` says what is compared.
    """
    sessions_a, sessions_b = _values_by_session(a), _values_by_session(b)
    common = sorted(sessions_a.keys() & sessions_b.keys())
    if not common:
        means_a, means_b = (
            [statistics.fmean(values.values()) for values in sessions.values()]
            for sessions in (sessions_a, sessions_b)
        )
        difference = _unpaired_difference(means_a, means_b)
        is_known = min(len(means_a), len(means_b)) >= MIN_SESSIONS
        return difference if is_known else replace(difference, error=None)
    if len(common) < MIN_SESSIONS:
        return _difference_within_sessions(
            {block: value for session in common for block, value in sessions_a[session].items()},
            {block: value for session in common for block, value in sessions_b[session].items()},
        )
    return _paired_difference(
        [
            _difference_within_sessions(sessions_a[session], sessions_b[session]).centre
            for session in common
        ]
    )


def _difference_within_sessions(a: Launches, b: Launches) -> _LogDifference:
    common = a.keys() & b.keys()
    if len(common) >= 2 and len(common) >= min(len(a), len(b)):
        return _paired_difference([a[block] - b[block] for block in sorted(common)])
    return _unpaired_difference([*a.values()], [*b.values()])


def _paired_difference(differences: Sequence[float]) -> _LogDifference:
    centre, variance = _moments(differences)
    count = len(differences)
    return _LogDifference(centre, math.sqrt(variance / count), count - 1.0, count, True)


def _unpaired_difference(a: Sequence[float], b: Sequence[float]) -> _LogDifference:
    """Return the difference of two independent means, by Welch."""
    (mean_a, variance_a), (mean_b, variance_b) = _moments(a), _moments(b)
    count = min(len(a), len(b))
    if count < 2:
        return _LogDifference(mean_a - mean_b, None, 0.0, count, False)
    mean_variances = variance_a / len(a), variance_b / len(b)
    error = math.sqrt(sum(mean_variances))
    weights = mean_variances[0] ** 2 / (len(a) - 1) + mean_variances[1] ** 2 / (len(b) - 1)
    freedom = error**4 / weights if weights else float(count - 1)
    return _LogDifference(mean_a - mean_b, error, freedom, count, False)


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the variance of `values`. The variance of one value is 0."""
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)


def _p_values(differences: Sequence[_LogDifference]) -> list[float | None]:
    """Return the two-sided p-value of each difference; None if its error is unknown.

    A p-value is the probability of a difference at least as large if both sides are equally fast.
    Without variation between launches, it is 0 or 1.
    """
    testable = [difference for difference in differences if difference.error]
    t_values = np.array(
        [abs(difference.centre) / difference.error for difference in testable if difference.error]
    )
    p_values = iter(
        2 * special.stdtr(np.array([difference.freedom for difference in testable]), -t_values)
    )

    def next_p_value(difference: _LogDifference) -> float | None:
        if difference.error is None:
            return None
        return float(next(p_values)) if difference.error else float(difference.centre == 0)

    return [next_p_value(difference) for difference in differences]


def are_distinguishable(probabilities: Sequence[float | None]) -> list[bool]:
    """Return for each of several comparisons whether it shows a difference.

    `probabilities` has the p-value of each comparison. The error probability of 5 % holds for all
    comparisons together (Holm 1979).
    """
    order = sorted(range(len(probabilities)), key=lambda n: probabilities[n] or 0.0)
    order = [n for n in order if probabilities[n] is not None]
    is_distinct = [False] * len(probabilities)
    for rank, n in enumerate(order):
        p = probabilities[n]
        if p is None or p >= (1 - CONFIDENCE) / (len(order) - rank):
            break
        is_distinct[n] = True
    return is_distinct


def cell_ranks(cells: Sequence[Launches]) -> list[tuple[int, int]]:
    """Return the best and the worst possible rank of each cell; rank 1 is the fastest.

    Cells that are not distinguishable share ranks.
    """
    return group_ranks([[cell] for cell in cells])


def group_ranks(groups: Sequence[Sequence[Launches]]) -> list[tuple[int, int]]:
    """Return the best and the worst possible rank of each group of cells; rank 1 is the fastest.

    The first cell of a group must be the group's fastest cell. Group A is faster than group B if
    the first cell of A is significantly faster than every cell of B. The error probability of 5 %
    holds for all pairs of cells from different groups together. Therefore the result is valid
    although the launches themselves show which cell is the fastest.
    """
    logs = [[_log_values(cell) for cell in group] for group in groups]
    cells = [(n, index) for n, group in enumerate(logs) for index in range(len(group))]
    pairs = [(a, b) for a, b in itertools.combinations(cells, 2) if a[0] != b[0]]
    differences = [_log_difference(logs[a][i], logs[b][j]) for (a, i), (b, j) in pairs]
    is_distinct = are_distinguishable(_p_values(differences))
    beaten: dict[tuple[int, int], int] = defaultdict(int)
    for (a, b), difference, differs in zip(pairs, differences, is_distinct, strict=True):
        fast, slow = (a, b) if difference.centre > 0 else (b, a)
        if differs and not fast[1]:
            beaten[fast[0], slow[0]] += 1
    better = [0] * len(groups)
    worse = [0] * len(groups)
    for (winner, loser), count in beaten.items():
        if count == len(groups[loser]):
            better[loser] += 1
            worse[winner] += 1
    return [(1 + above, len(groups) - below) for above, below in zip(better, worse, strict=True)]
