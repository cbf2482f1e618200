"""Intervals of the differences between cells, by several methods. `replay.py` compares them.

Each method takes logarithms of speeds, an array (draws, blocks, cells), and returns centres and
half-widths of intervals, two arrays (draws, pairs). The pairs are those of
`itertools.combinations`. The 95 % confidence is for all intervals of a draw together.
"""

from collections.abc import Callable
from itertools import combinations

import numpy as np
from scipy import special, stats

Intervals = tuple[np.ndarray, np.ndarray]
_CONFIDENCE = 0.95
_HUBER_LIMIT = 1.345  # 95 % efficiency for normal values (Huber 1964)
_HUBER_STEPS = 30


def paired_t(logs: np.ndarray) -> Intervals:
    """Return Student's t-intervals of the paired differences (Bonferroni)."""
    differences = pair_differences(logs)
    return _t_intervals(differences, differences.var(axis=1, ddof=1), _freedom(logs))


def tukey(logs: np.ndarray) -> Intervals:
    """Return Tukey's intervals: two-way model with one variance for all cells."""
    _, blocks, cells = logs.shape
    residuals = _center(logs)
    freedom = (blocks - 1) * (cells - 1)
    variances = np.square(residuals).sum(axis=(1, 2)) / freedom
    quantile = stats.studentized_range.ppf(_CONFIDENCE, cells, freedom)
    centres = pair_differences(logs).mean(axis=1)
    half_widths = quantile * np.sqrt(variances / blocks)
    return centres, np.broadcast_to(half_widths[:, None], centres.shape)


def moderated_t(logs: np.ndarray) -> Intervals:
    """Return t-intervals of the paired differences with moderated variances (Smyth 2004)."""
    differences = pair_differences(logs)
    variances, freedom = moderate(differences.var(axis=1, ddof=1), _freedom(logs))
    return _t_intervals(differences, variances, freedom)


def robust_moderated_t(logs: np.ndarray) -> Intervals:
    """Return the intervals of `moderated_t` for Huber's pseudo-values of a two-way model."""
    return moderated_t(pseudo_values(logs))


def robust_paired_t(logs: np.ndarray) -> Intervals:
    """Return the intervals of `paired_t` for Huber's pseudo-values of a two-way model."""
    return paired_t(pseudo_values(logs))


def order_statistics(logs: np.ndarray) -> Intervals:
    """Return the widest intervals that order statistics of the paired differences give."""
    differences = pair_differences(logs)
    low, high = differences.min(axis=1), differences.max(axis=1)
    blocks, pairs = differences.shape[1:]
    if 2**-blocks * 2 > (1 - _CONFIDENCE) / pairs * 1.3:  # not even the range is wide enough
        return np.median(differences, axis=1), np.full(low.shape, np.inf)
    return (low + high) / 2, (high - low) / 2


METHODS: dict[str, Callable[[np.ndarray], Intervals]] = {
    "paired t": paired_t,
    "Tukey": tukey,
    "moderated t": moderated_t,
    "robust paired t": robust_paired_t,
    "robust moderated t": robust_moderated_t,
    "order statistics": order_statistics,
}


def pair_differences(logs: np.ndarray) -> np.ndarray:
    """Return the differences of all pairs of cells, an array (draws, blocks, pairs)."""
    first, second = np.array([*combinations(range(logs.shape[2]), 2)]).T
    return logs[:, :, first] - logs[:, :, second]


def moderate(variances: np.ndarray, freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the moderated variances (draws, pairs) and their degrees of freedom (draws, 1).

    - `variances`: sample variances of the pairs, with `freedom` degrees of freedom each.

    The prior is fitted to the variances of a draw by moments of their logarithms.
    """
    count = variances.shape[1]
    if count < 2:
        return variances, np.full((len(variances), 1), freedom)
    logs = np.log(np.maximum(variances, 1e-30))
    excess = logs.var(axis=1, ddof=1, keepdims=True) - special.polygamma(1, freedom / 2)
    prior_freedom = np.where(
        excess > 0, 2 * inverse_trigamma(np.maximum(excess, 1e-6)), np.inf
    ).clip(max=1e6)
    centre = logs.mean(axis=1, keepdims=True) - special.digamma(freedom / 2) + np.log(freedom / 2)
    prior = np.exp(centre + special.digamma(prior_freedom / 2) - np.log(prior_freedom / 2))
    total = prior_freedom + freedom
    return (prior_freedom * prior + freedom * variances) / total, total


def inverse_trigamma(values: np.ndarray) -> np.ndarray:
    """Return the numbers whose trigamma function has these values (Newton's method)."""
    result = 0.5 + 1 / values
    for _ in range(20):
        trigamma = special.polygamma(1, result)
        result = result + trigamma * (1 - trigamma / values) / special.polygamma(2, result)
    return np.asarray(result)


def pseudo_values(logs: np.ndarray) -> np.ndarray:
    """Return Huber's pseudo-values of the model with an effect of each cell and of each block."""
    draws, blocks, cells = logs.shape
    residuals = logs.copy()
    for _ in range(3):  # median polish
        residuals = residuals - np.median(residuals, axis=1, keepdims=True)
        residuals = residuals - np.median(residuals, axis=2, keepdims=True)
    share = blocks * cells / ((blocks - 1) * (cells - 1))
    scale = 1.4826 * np.median(np.abs(residuals), axis=(1, 2), keepdims=True) * np.sqrt(share)
    limit = _HUBER_LIMIT * np.maximum(scale, 1e-12)
    fit = logs - residuals
    for _ in range(_HUBER_STEPS):
        clipped = np.clip(logs - fit, -limit, limit)
        fit = fit + clipped.mean(axis=1, keepdims=True) + clipped.mean(axis=2, keepdims=True)
        fit = fit - clipped.mean(axis=(1, 2), keepdims=True)
    residuals = logs - fit
    inside = (np.abs(residuals) <= limit).mean(axis=(1, 2), keepdims=True)
    return np.asarray(fit + np.clip(residuals, -limit, limit) / inside)


def _t_intervals(
    differences: np.ndarray, variances: np.ndarray, freedom: float | np.ndarray
) -> Intervals:
    blocks, pairs = differences.shape[1:]
    quantile = special.stdtrit(freedom, 1 - (1 - _CONFIDENCE) / pairs / 2)
    return differences.mean(axis=1), quantile * np.sqrt(variances / blocks)


def _freedom(logs: np.ndarray) -> float:
    return logs.shape[1] - 1.0


def _center(logs: np.ndarray) -> np.ndarray:
    means_of_blocks = logs.mean(axis=2, keepdims=True)
    means_of_cells = logs.mean(axis=1, keepdims=True)
    return np.asarray(
        logs - means_of_blocks - means_of_cells + logs.mean(axis=(1, 2), keepdims=True)
    )
