"""Means of ratios over several networks, with intervals.

Two means answer two questions:

- Geometric mean: by which factor is A slower in a typical network? Each network has the same
  weight. The mean of A against B is the inverse of that of B against A.
- Total time: how much longer does A take if every network trains the same number of images? Slow
  networks have the most weight.

The launches of different networks are independent. Their intervals are combined by Banerjee's
method: the squares of the half-widths are added. Such an interval covers the truth at least as
often as its parts do, also with few launches (Banerjee, Approximate confidence interval for linear
functions of means of k populations, Sankhyā 22 (1960), 357–358).
"""

from __future__ import annotations

import math
import statistics as stdlib_statistics
from collections.abc import Sequence

from xfbench import pairwise, statistics
from xfbench.statistics import Interval, Launches

_MAX_LOGARITHM = 700.0  # larger logarithms overflow a float


def geometric_mean(ratios: Sequence[Interval]) -> Interval:
    """Return the geometric mean of independent ratios.

    The interval has the confidence of the ratios' intervals, which must be the same. There is no
    interval if a ratio has none. Raises ValueError if there is no ratio.
    """
    if not ratios:
        raise ValueError("at least one ratio is needed")
    centre = stdlib_statistics.fmean(math.log(ratio.value) for ratio in ratios)
    return _interval_around(centre, ratios, 1 / len(ratios))


def geometric_mean_of_joint(ratios: Sequence[Interval]) -> Interval:
    """Return the geometric mean of ratios whose intervals hold together.

    Here the ratios need not be independent, nor symmetric: the ends are the geometric means of the
    ends. There is no interval if a ratio has none. Raises ValueError if there is no ratio.
    """
    if not ratios:
        raise ValueError("at least one ratio is needed")
    return Interval(
        stdlib_statistics.geometric_mean(ratio.value for ratio in ratios),
        _geometric_mean_or_none([ratio.low for ratio in ratios]),
        _geometric_mean_or_none([ratio.high for ratio in ratios]),
        min(ratio.launches for ratio in ratios),
        ratios[0].confidence,
    )


def _geometric_mean_or_none(values: Sequence[float | None]) -> float | None:
    """Return the geometric mean, or None if a value is None."""
    present = [value for value in values if value is not None]
    return stdlib_statistics.geometric_mean(present) if len(present) == len(values) else None


def total_time_ratio(
    pairs: Sequence[tuple[Launches, Launches]], confidence: float = statistics.CONFIDENCE
) -> Interval:
    """Return the total time of A divided by that of B, for equal work in every network.

    - `pairs`: for each network, the launches of A and of B in images per second.

    The total time is the sum of the networks' seconds per image. The interval is that of the
    linearized logarithm: a network counts by its share of the total time. Shares of A and B differ,
    so noise of a block cancels out only in part. Raises ValueError if there is no pair.
    """
    if not pairs:
        raise ValueError("at least one pair is needed")
    times_b = [1 / statistics.interval_of_launches(b).value for _, b in pairs]
    ratios = [pairwise.compare(b, a, confidence=confidence).ratio for a, b in pairs]
    times_a = [time * ratio.value for time, ratio in zip(times_b, ratios, strict=True)]
    total_a, total_b = math.fsum(times_a), math.fsum(times_b)
    # d ln(total A / total B) = Σ (time / total B) d ln speed of B − Σ (time / total A) d ln speed
    # of A. Powers turn each term into a ratio of two speeds.
    terms = [
        pairwise.compare(
            _to_power(b, time_b / total_b), _to_power(a, time_a / total_a), confidence=confidence
        ).ratio
        for (a, b), time_a, time_b in zip(pairs, times_a, times_b, strict=True)
    ]
    return _interval_around(math.log(total_a / total_b), terms, 1.0)


def _to_power(launches: Launches, exponent: float) -> Launches:
    return {block: value**exponent for block, value in launches.items()}


def _interval_around(centre: float, ratios: Sequence[Interval], weight: float) -> Interval:
    """Return the exponential of `centre`, with the half-widths of independent ratios added.

    `weight`: the factor of each ratio's logarithm in the result.
    """
    count = min(ratio.launches for ratio in ratios)
    below = [math.log(r.value / r.low) for r in ratios if r.low is not None and r.low > 0]
    above = [math.log(r.high / r.value) for r in ratios if r.high is not None]
    if len(below) < len(ratios) or len(above) < len(ratios):
        return Interval(math.exp(centre), None, None, count)
    confidence = ratios[0].confidence
    low, high = centre - weight * math.hypot(*below), centre + weight * math.hypot(*above)
    high = min(high, _MAX_LOGARITHM)
    return Interval(math.exp(centre), math.exp(low), math.exp(high), count, confidence)
