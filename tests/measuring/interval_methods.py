"""Intervals of a median from few launches, by several methods. `replay.py` compares them.

Each method takes logarithms of speeds, an array (draws, launches), and returns the lower and the
upper ends of the 95 % intervals, two arrays (draws,).
"""

from collections.abc import Callable

import numpy as np
from scipy import special

from xfbench import statistics

Ends = tuple[np.ndarray, np.ndarray]
_CONFIDENCE = 0.95
_BOOTSTRAP_DRAWS, _BOOTSTRAP_BLOCK = 400, 2


def student_t(logs: np.ndarray) -> Ends:
    """Return Student's t-intervals of the mean."""
    count = logs.shape[1]
    quantile = special.stdtrit(count - 1, (1 + _CONFIDENCE) / 2)
    half_widths = quantile * logs.std(axis=1, ddof=1) / np.sqrt(count)
    means = logs.mean(axis=1)
    return means - half_widths, means + half_widths


def order_statistics(logs: np.ndarray) -> Ends:
    """Return the narrowest intervals between the d-th smallest and the d-th largest value.

    They contain the median with a probability of 95 % or more. From five launches or fewer, there
    is no such interval: return the range, which contains it with 93.75 % (five launches).
    """
    count = logs.shape[1]
    depths = np.arange(1, count // 2 + 1)
    is_wide_enough = _coverage_of_depth(depths, count) >= _CONFIDENCE
    depth = int(depths[is_wide_enough][-1]) if is_wide_enough.any() else 1
    ordered = np.sort(logs, axis=1)
    return ordered[:, depth - 1], ordered[:, count - depth]


def interpolated_order_statistics(logs: np.ndarray) -> Ends:
    """Return the intervals of Hettmansperger and Sheather (1986).

    They interpolate between neighbouring order statistics. From five launches, they extrapolate by
    18 % of the distance between the outermost two.
    """
    count = logs.shape[1]
    depths = np.arange(1, count // 2 + 1)
    is_wide_enough = _coverage_of_depth(depths, count) >= _CONFIDENCE
    depth = int(depths[is_wide_enough][-1]) if is_wide_enough.any() else 1
    wide, narrow = (
        float(max(_coverage_of_depth(np.array([d]), count)[0], 0.0)) for d in (depth, depth + 1)
    )
    share = (wide - _CONFIDENCE) / (wide - narrow)
    weight = (count - depth) * share / (depth + (count - 2 * depth) * share)
    ordered = np.sort(logs, axis=1)
    low = (1 - weight) * ordered[:, depth - 1] + weight * ordered[:, depth]
    high = (1 - weight) * ordered[:, count - depth] + weight * ordered[:, count - depth - 1]
    return low, high


def signed_rank(logs: np.ndarray) -> Ends:
    """Return the intervals of Hodges and Lehmann, from Wilcoxon's signed-rank test."""
    count = logs.shape[1]
    first, second = np.triu_indices(count)
    means = np.sort((logs[:, first] + logs[:, second]) / 2, axis=1)
    depth = max(signed_rank_depth(count, 1 - _CONFIDENCE), 1)
    return means[:, depth - 1], means[:, -depth]


def signed_rank_depth(count: int, level: float) -> int:
    """Return which of the sorted means of two values ends the interval at this level.

    It is 0 if the signed-rank test of `count` values cannot reach the level.
    """
    probabilities = np.ones(1)
    for rank in range(1, count + 1):
        with_rank = np.zeros(len(probabilities) + rank)
        with_rank[: len(probabilities)] += probabilities / 2
        with_rank[rank:] += probabilities / 2
        probabilities = with_rank
    return int(np.searchsorted(np.cumsum(probabilities), level / 2, side="right"))


def robust_t(logs: np.ndarray) -> Ends:
    """Return intervals around the median, from the median absolute deviation and Student's t."""
    count = logs.shape[1]
    medians = np.median(logs, axis=1)
    deviations = 1.4826 * np.median(np.abs(logs - medians[:, None]), axis=1)
    # The median of a normal sample varies 1.2533 times as much as its mean.
    quantile = special.stdtrit(count - 1, (1 + _CONFIDENCE) / 2)
    half_widths = quantile * 1.2533 * deviations / np.sqrt(count)
    return medians - half_widths, medians + half_widths


def block_bootstrap(logs: np.ndarray) -> Ends:
    """Return percentiles of the medians of resampled pairs of neighbours (moving blocks)."""
    rng = np.random.default_rng(0)
    count = logs.shape[1]
    starts = rng.integers(
        0, count - _BOOTSTRAP_BLOCK + 1, (_BOOTSTRAP_DRAWS, -(-count // _BOOTSTRAP_BLOCK))
    )
    places = (starts[:, :, None] + np.arange(_BOOTSTRAP_BLOCK)).reshape(_BOOTSTRAP_DRAWS, -1)
    tails = [50 * (1 - _CONFIDENCE), 50 * (1 + _CONFIDENCE)]
    ends = [np.percentile(np.median(draw[places[:, :count]], axis=1), tails) for draw in logs]
    low, high = np.array(ends).T
    return low, high


def widened_order_statistics(logs: np.ndarray) -> Ends:
    """Return the intervals of xfbench: interpolated, and widened for correlated neighbours."""
    intervals = [statistics.median_interval([*np.exp(draw)]) for draw in logs]
    return np.log([i.low or 0 for i in intervals]), np.log([i.high or 0 for i in intervals])


METHODS: dict[str, Callable[[np.ndarray], Ends]] = {
    "Student's t": student_t,
    "order statistics": order_statistics,
    "interpolated order statistics": interpolated_order_statistics,
    "interpolated and widened": widened_order_statistics,
    "signed rank": signed_rank,
    "median and t": robust_t,
    "block bootstrap": block_bootstrap,
}


def _coverage_of_depth(depths: np.ndarray, count: int) -> np.ndarray:
    """Return how often the d-th smallest and the d-th largest value contain the median."""
    return 1 - 2 * special.bdtr(depths - 1, count, 0.5)
