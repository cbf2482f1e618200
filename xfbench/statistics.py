"""Figures computed from records. The unit of replication is the launch, never the step.

Steps of one launch are not independent. So a launch counts once, by its median step after warm-up.
A launch that never became steady does not count. The interval over launches is Student's t on the
logarithm.

Launches of different cells in the same block ran one after another. They are compared pair by pair,
which cancels changes of the machine. No figure is stored; all are computed from records when
needed.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import special

from xfbench.model.record import Measurement, Record
from xfbench.model.request import Request
from xfbench.worker.steady import count_values_before_steady

# One value per launch, by block: (launch number, earlier launches with that number).
Launches = Mapping[tuple[int, int], float]

CONFIDENCE = 0.95
POWER = 0.8  # of detecting the smallest visible difference
CLAIM_LAUNCHES = 5
INDICATIVE_LAUNCHES = 3
_OUTLIER_SCORE = 3.5  # modified z-score
_MIN_STEP_S, _MAX_STEP_S = 1e-9, 1e9  # plausible seconds of a step
_MAX_LOGARITHM = 700.0  # larger logarithms overflow a float


@dataclass(frozen=True)
class Interval:
    """A value and its 95 % interval over `launches`; no interval (None) for fewer than two."""

    value: float
    low: float | None
    high: float | None
    launches: int

    @property
    def evidence_label(self) -> str:
        """Return the strength of evidence: "claim", "indicative" or "smoke"."""
        if self.launches >= CLAIM_LAUNCHES:
            return "claim"
        return "indicative" if self.launches >= INDICATIVE_LAUNCHES else "smoke"


def throughput(request: Request, measurement: Measurement) -> float:
    """Return images per second of a launch: global batch over the median timed step, or 0.

    If ranks do not wait for one another, the rates of all ranks are added up.
    """
    if measurement.rank_step_seconds:
        batch_size = request.batch_size_per_rank
        return sum(
            _median_rate(batch_size, step_seconds) for step_seconds in measurement.rank_step_seconds
        )
    return _median_rate(request.global_batch_size, measurement.step_seconds)


def _median_rate(images: int, step_seconds: Sequence[float]) -> float:
    median = statistics.median(step_seconds or (0.0,))
    return images / median if median > 0 else 0.0


def launch_throughput(record: Record) -> float:
    """Return the record's `throughput`. Raises ValueError for a record without a measurement."""
    if record.measurement is None or record.request is None:
        raise ValueError(f"record {record.id} has no measurement")
    return throughput(record.request, record.measurement)


def is_steady(record: Record) -> bool:
    """Return whether the timed steps kept their level, as far as their number can show it.

    If ranks do not wait for one another, each rank's steps are checked. A launch with implausible
    step times is never steady, because no figure can be computed from it.
    """
    measurement = record.measurement
    if measurement is None:
        return False
    return not any(
        map(_first_steady_step, measurement.rank_step_seconds or (measurement.step_seconds,))
    )


# A table calls this several times for each launch.
@lru_cache(maxsize=4096)
def _first_steady_step(seconds: tuple[float, ...]) -> int:
    is_plausible = seconds and all(_MIN_STEP_S <= step <= _MAX_STEP_S for step in seconds)
    return count_values_before_steady(seconds) if is_plausible else 1


def outliers(values: Sequence[float]) -> list[bool]:
    """Return whether each positive value is an outlier; fewer than five values have none.

    An outlier has a modified z-score above 3.5: 0.6745 · |x − median| / MAD of the logarithms
    (Iglewicz and Hoaglin 1993). Outliers are marked and kept.
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
    """Return the geometric mean of positive values with a t-interval on their logarithms.

    Raises ValueError if there is no value or one is not positive.
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


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the median of measurements with a distribution-free interval.

    The k-th smallest and the k-th largest value enclose the median with probability 1 − 2 P(B < k).
    B is binomial (n, ½) (David and Nagaraja, Order Statistics, 7.1). Six values are enough for an
    interval. Raises ValueError if there is no value.
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
    """Return the arithmetic mean with a t-interval; its `launches` is the number of values.

    Raises ValueError if there is no value.
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
    """Return the standard deviation of the logarithms of positive values.

    A small deviation is nearly equal to the coefficient of variation. The interval is the
    chi-squared interval for the deviation of a normal distribution. Returns None for fewer than two
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


def is_precise(values: Sequence[float], precision: float) -> bool:
    """Return whether the half-width of the interval is at most `precision` times the value."""
    interval = geometric_interval(values) if values else None
    return bool(interval and interval.high and interval.high / interval.value - 1 <= precision)


def required_launches(
    precision: float, log_deviation: float, min_launches: int, max_launches: int
) -> int:
    """Return how many launches give that precision, within `min_launches` and `max_launches`.

    `deviation` is the standard deviation of the logarithms of a cell's launches.
    """
    for count in range(max(min_launches, 2), max_launches):
        t_quantile = float(special.stdtrit(count - 1, (1 + CONFIDENCE) / 2))
        if t_quantile * log_deviation / math.sqrt(count) <= math.log1p(precision):
            return count
    return max_launches


@dataclass(frozen=True)
class Comparison:
    """The ratio of A to B with its interval over launches.

    `p` is the two-sided probability of a ratio at least as extreme if A and B are the same.
    `smallest_visible_difference` is the relative difference that these launches detect with
    probability POWER. Both are None if there are too few launches. `paired` says whether launches
    of the same blocks were compared.
    """

    ratio: Interval
    p: float | None
    smallest_visible_difference: float | None
    paired: bool

    @property
    def verdict(self) -> Literal["faster", "slower", "not_distinguishable"]:
        """Return the verdict on this comparison alone; for several use `are_distinguishable`."""
        if self.p is None or self.p >= 1 - CONFIDENCE:
            return "not_distinguishable"
        return "faster" if self.ratio.value > 1 else "slower"


def counted_speeds_by_block(records: Iterable[Record]) -> dict[tuple[int, int], float]:
    """Return the throughput of each launch that counts, by block; a repeat is another block.

    A launch counts if xfbench measured it, it is ok and steady, and it is no probe.
    """
    speeds: dict[tuple[int, int], float] = {}
    for record in records:
        if record.source != "measured" or record.status != "ok" or record.request is None:
            continue
        if record.request.probe or not is_steady(record):
            continue
        number = record.request.launch
        repeats = sum(1 for launch, _ in speeds if launch == number)
        speeds[number, repeats] = launch_throughput(record)
    return speeds


@dataclass(frozen=True)
class _LogDifference:
    """Difference of mean logarithms of two sets of launches; `error` is None if unknown."""

    centre: float
    error: float | None
    freedom: float
    count: int
    paired: bool


def compare(a: Launches, b: Launches, *, confidence: float = CONFIDENCE) -> Comparison:
    """Compare logarithms of A and B: in pairs if they share blocks, else by Welch's test.

    `confidence` applies to the ratio's interval. Raises ValueError if one side has no launch.
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
    """Return the geometric mean of A over B, each pair compared as in `compare`.

    The interval combines the pairs' independent errors, with degrees of freedom by Welch and
    Satterthwaite. A pair of a cell with itself is exactly 1. Raises ValueError if there is no pair.
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
    """Return the exponential, limited so that it does not overflow."""
    return math.exp(min(logarithm, _MAX_LOGARITHM))


def _log_values(launches: Launches) -> Launches:
    return {block: math.log(speed) for block, speed in launches.items()}


def _log_difference(a: Launches, b: Launches) -> _LogDifference:
    common = a.keys() & b.keys()
    count = min(len(a), len(b))
    if len(common) >= 2 and len(common) >= count:
        count = len(common)
        centre, variance = _moments([a[block] - b[block] for block in sorted(common)])
        return _LogDifference(centre, math.sqrt(variance / count), count - 1.0, count, True)
    (mean_a, variance_a), (mean_b, variance_b) = (
        _moments(list(launches.values())) for launches in (a, b)
    )
    if count < 2:
        return _LogDifference(mean_a - mean_b, None, 0.0, count, False)
    mean_variances = variance_a / len(a), variance_b / len(b)
    error = math.sqrt(sum(mean_variances))
    weights = mean_variances[0] ** 2 / (len(a) - 1) + mean_variances[1] ** 2 / (len(b) - 1)
    freedom = error**4 / weights if weights else float(count - 1)
    return _LogDifference(mean_a - mean_b, error, freedom, count, False)


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and variance; the variance of one value is 0."""
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)


def _p_values(differences: Sequence[_LogDifference]) -> list[float | None]:
    """Return two-sided p-values: how probable is a difference at least as large if both are equal.

    A p-value is None if it is unknown.
    Without variation between launches, the probability is 0 or 1.
    """
    testable = [difference for difference in differences if difference.error]
    t_values = np.array(
        [abs(difference.centre) / difference.error for difference in testable if difference.error]
    )
    p_values = iter(
        2 * special.stdtr(np.array([difference.freedom for difference in testable]), -t_values)
    )

    def p_value(difference: _LogDifference) -> float | None:
        if difference.error is None:
            return None
        return float(next(p_values)) if difference.error else float(difference.centre == 0)

    return [p_value(difference) for difference in differences]


def are_distinguishable(probabilities: Sequence[float | None]) -> list[bool]:
    """Return whether each of several comparisons shows a difference.

    The error probability holds for all of them together (Holm 1979).
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
    """Return each cell's first and last possible rank; indistinguishable cells share ranks."""
    return group_ranks([[cell] for cell in cells])


def group_ranks(groups: Sequence[Sequence[Launches]]) -> list[tuple[int, int]]:
    """Return `cell_ranks` of groups of cells, each ranked by its first cell, the best.

    A group is better if its first cell is significantly faster than all cells of the other group.
    All pairs of cells of two groups are tested together, so the result holds for any choice of best
    cell.
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
