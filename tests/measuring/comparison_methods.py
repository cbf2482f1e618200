"""Intervals of the differences between cells, by several methods. `replay.py` compares them.

Each method takes logarithms of speeds, an array (draws, blocks, cells), and returns centres and
half-widths of intervals, two arrays (draws, pairs). The pairs are those of
`itertools.combinations`. The 95 % confidence is for all intervals of a draw together.
"""

from collections.abc import Callable
from itertools import combinations

import numpy as np
from scipy import special, stats

from tests.measuring.interval_methods import signed_rank_depth
from xfbench import block_model

Intervals = tuple[np.ndarray, np.ndarray]
_CONFIDENCE = 0.95
_PERMUTATIONS = 200


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
    moderated = [
        block_model.moderate_variances(
            each, np.full(len(each), _freedom(logs)), independent=logs.shape[2] - 1
        )
        for each in differences.var(axis=1, ddof=1)
    ]
    variances, freedoms = (np.array(part) for part in zip(*moderated, strict=True))
    return _t_intervals(differences, variances, freedoms)


def robust_moderated_t(logs: np.ndarray) -> Intervals:
    """Return the intervals of `moderated_t` after outliers were pulled in. xfbench does this."""
    return moderated_t(np.array([block_model.pull_in_outliers(table) for table in logs]))


def robust_paired_t(logs: np.ndarray) -> Intervals:
    """Return the intervals of `paired_t` after outliers were pulled in."""
    return paired_t(np.array([block_model.pull_in_outliers(table) for table in logs]))


def signed_rank(logs: np.ndarray) -> Intervals:
    """Return intervals of Hodges and Lehmann's shift, from Wilcoxon's signed-rank test.

    They are infinite where the test of few blocks cannot reach the corrected level.
    """
    differences = pair_differences(logs)
    blocks, pairs = differences.shape[1:]
    first, second = np.triu_indices(blocks)
    means = np.sort((differences[:, first] + differences[:, second]) / 2, axis=1)
    depth = signed_rank_depth(blocks, (1 - _CONFIDENCE) / pairs)
    if not depth:
        return np.median(means, axis=1), np.full((len(logs), pairs), np.inf)
    low, high = means[:, depth - 1], means[:, -depth]
    return (low + high) / 2, (high - low) / 2


def permutation(logs: np.ndarray) -> Intervals:
    """Return intervals from permutations of the residuals within blocks: one width for all pairs.

    This is exact if all cells vary alike.
    """
    rng = np.random.default_rng(0)
    residuals = _center(logs)
    centres = pair_differences(logs).mean(axis=1)
    ranges = []
    for table in residuals:
        means = rng.permuted(np.tile(table, (_PERMUTATIONS, 1, 1)), axis=2).mean(axis=1)
        ranges.append(np.quantile(np.ptp(means, axis=1), _CONFIDENCE))
    # Residuals vary less than launches, because the effects of cells and blocks were fitted.
    _, blocks, cells = logs.shape
    share = np.sqrt(blocks * cells / ((blocks - 1) * (cells - 1)))
    return centres, np.broadcast_to(share * np.array(ranges)[:, None], centres.shape)


METHODS: dict[str, Callable[[np.ndarray], Intervals]] = {
    "paired t": paired_t,
    "Tukey": tukey,
    "signed rank": signed_rank,
    "permutation": permutation,
    "robust paired t": robust_paired_t,
    "moderated t": moderated_t,
    "robust moderated t": robust_moderated_t,
}


def pair_differences(logs: np.ndarray) -> np.ndarray:
    """Return the differences of all pairs of cells, an array (draws, blocks, pairs)."""
    first, second = np.array([*combinations(range(logs.shape[2]), 2)]).T
    return logs[:, :, first] - logs[:, :, second]


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
