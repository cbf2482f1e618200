"""The statistics of blocks: outliers in a table of blocks and cells, and variances of many pairs.

A block has one launch of each cell, one after another. All functions take arrays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special

Array = npt.NDArray[np.float64]

_MIN_BLOCKS = 6  # with fewer blocks, the fit follows an outlier too closely to reveal it
_OUTLIER_SCORE = 3.5  # robust standard deviations, as in `statistics.outliers`
_CELL_SHARE = 1.5  # keeps the values of a cell that is noisier than the others
_POLISH_STEPS, _FIT_STEPS = 3, 30
_NEWTON_STEPS = 20


def pull_in_outliers(logs: Array) -> Array:
    """Return the table with values that are far off replaced by pseudo-values.

    - `logs`: logarithms of the speeds, an array (blocks, cells), NaN where a launch is missing.

    The fit is a sum of an effect of the cell and an effect of the block. A value is far off if its
    distance from the fit is more than 3.5 robust standard deviations. The result is for means and
    variances: a value far off counts as one at that limit, and the others are spread so that the
    variance stays honest (Huber, Robust Statistics, 1981, 7.6: pseudo-values). A table with fewer
    than six blocks is returned unchanged.
    """
    counts = (~np.isnan(logs)).sum(axis=0)
    blocks, cells = logs.shape
    freedom = counts.sum() - blocks - cells + 1
    if blocks < _MIN_BLOCKS or cells < 2 or freedom < 1:
        return logs
    residuals = _polish(logs)
    distances = np.abs(residuals) * 1.4826 * np.sqrt(counts.sum() / freedom)
    scale = np.nanmedian(distances)
    if not scale:
        return logs
    cell_scales = _CELL_SHARE * np.nanmedian(distances, axis=0)
    limits = _OUTLIER_SCORE * np.maximum(scale, cell_scales)
    fit = logs - residuals
    for _ in range(_FIT_STEPS):
        clipped = np.clip(logs - fit, -limits, limits)
        fit = (
            fit
            + np.nanmean(clipped, axis=0)
            + np.nanmean(clipped, axis=1, keepdims=True)
            - np.nanmean(clipped)
        )
    residuals = logs - fit
    is_far_off = np.abs(residuals) > limits
    shares = 1 - is_far_off.sum(axis=0) / counts
    pulled_in = fit + np.clip(residuals, -limits, limits) / np.maximum(shares, 0.5)
    return np.where(is_far_off.any(axis=0), pulled_in, logs)


def _polish(logs: Array) -> Array:
    """Return the residuals of a median polish (Tukey, Exploratory Data Analysis, 1977)."""
    residuals = logs
    for _ in range(_POLISH_STEPS):
        residuals = residuals - np.nanmedian(residuals, axis=0)
        residuals = residuals - np.nanmedian(residuals, axis=1, keepdims=True)
    return residuals


def moderate_variances(variances: Array, freedoms: Array, independent: int) -> tuple[Array, Array]:
    """Return moderated variances with their degrees of freedom.

    - `variances`: sample variances of the pairs.
    - `freedoms`: their degrees of freedom.
    - `independent`: how many of the pairs do not follow from others. The result has no more degrees
      of freedom than these have together.

    The variances of all pairs determine a prior distribution, by moments of their logarithms. The
    more alike they are, the more each is moved toward their centre (Smyth, Statistical Applications
    in Genetics and Molecular Biology 3, 2004, article 3). With fewer than two pairs, or if a
    variance is zero, nothing is changed.
    """
    if len(variances) < 2 or not variances.all():
        return variances, freedoms
    half = freedoms / 2
    logs = np.log(variances) - special.digamma(half) + np.log(half)
    excess = logs.var(ddof=1) - special.polygamma(1, half).mean()
    if excess > 0:
        prior_freedom = 2 * _inverse_trigamma(excess)
        prior = np.exp(logs.mean() + special.digamma(prior_freedom / 2) - np.log(prior_freedom / 2))
        moderated = (prior_freedom * prior + freedoms * variances) / (prior_freedom + freedoms)
        total_freedoms = prior_freedom + freedoms
    else:  # the variances do not differ by more than chance
        moderated = np.full_like(variances, np.exp(logs.mean()))
        total_freedoms = np.full_like(freedoms, np.inf)
    limit = max(independent, 1) * freedoms.mean()
    return moderated, np.maximum(freedoms, np.minimum(total_freedoms, limit))


def _inverse_trigamma(value: float) -> float:
    """Return the number whose trigamma function has this value (Newton's method)."""
    result = 0.5 + 1 / value
    for _ in range(_NEWTON_STEPS):
        trigamma = special.polygamma(1, result)
        result += trigamma * (1 - trigamma / value) / special.polygamma(2, result)
    return float(result)
