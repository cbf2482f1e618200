"""Changes of the level of a launch's step times: the end of the warm-up, and later changes.

The training loop cuts the warm-up. The analysis notes later changes and drops nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence

import numpy as np

# A change counts if it is significant and large enough.
_SIGNIFICANCE = 0.001  # maximum probability of such a change in a steady series
_MIN_SHIFT = 0.05  # minimum relative difference of the medians before and after
_BLOCKS = 40  # blocks whose medians are tested, because neighbouring steps are correlated
_MIN_SEGMENT = 3  # minimum number of blocks before and after a change
_MAX_CORRELATION = 0.95


class _Change(NamedTuple):
    """The change of level that separates a series best.

    - `blocks_before`: the number of blocks before the change.
    """

    blocks_before: int
    median_before: float
    median_after: float


def count_warmup_values(seconds: Sequence[float]) -> int:
    """Return the number of values at the start that belong to the warm-up.

    The warm-up ends where values change from slow to fast within the first half. If the values
    change in the other direction or later, all values are of the steady state.
    """
    blocks, width = _block_medians(seconds)
    count = 0
    while change := _find_change(blocks[count:]):
        is_warmup = change.median_before > change.median_after
        if not is_warmup or count + change.blocks_before > len(blocks) / 2:
            break
        count += change.blocks_before
    return count * width


def has_level_change(seconds: Sequence[float]) -> bool:
    """Return whether the values change by more than 5 %, at once or gradually.

    Fewer than six values have no change. If the level is the same before and after a burst, the
    burst is no change.
    """
    blocks, _ = _block_medians(seconds)
    return _find_change(blocks) is not None or _has_trend(blocks)


def _block_medians(seconds: Sequence[float]) -> tuple[np.ndarray, int]:
    """Return the medians of about 40 blocks of values, and the number of values in a block."""
    values = np.asarray(seconds, dtype=float)
    width = max(1, len(values) // _BLOCKS)
    if width == 1:
        return values, width
    starts = range(0, len(values) - width + 1, width)
    return np.array([np.median(values[at : at + width]) for at in starts]), width


def _find_change(values: np.ndarray) -> _Change | None:
    """Return the change of level that is most significant, or None if no change counts.

    For each place, Student's t compares the mean logarithms before and after it. The largest t
    decides. Its probability takes into account the number of places (Bonferroni).
    """
    count = len(values)
    if count < 2 * _MIN_SEGMENT or values.min() <= 0:
        return None
    logs = np.log(values)
    before = np.arange(_MIN_SEGMENT, count - _MIN_SEGMENT + 1)
    sums = np.cumsum(logs)[before - 1]
    means_before, means_after = sums / before, (logs.sum() - sums) / (count - before)
    # The sum of squares between the two segments, for each place.
    between = before * (count - before) / count * (means_before - means_after) ** 2
    best = int(between.argmax())
    at, freedom = int(before[best]), count - 2
    residuals = np.concatenate([logs[:at] - means_before[best], logs[at:] - means_after[best]])
    median_before, median_after = float(np.median(values[:at])), float(np.median(values[at:]))
    if abs(median_before / median_after - 1) <= _MIN_SHIFT:
        return None
    probability = _probability(float(between[best]), residuals, freedom)
    if len(before) * probability >= _SIGNIFICANCE:
        return None
    return _Change(at, median_before, median_after)


def _has_trend(values: np.ndarray) -> bool:
    """Return whether the values rise or fall along a line by more than 5 %."""
    count = len(values)
    if count < 2 * _MIN_SEGMENT or values.min() <= 0:
        return False
    logs = np.log(values)
    positions = np.arange(count) - (count - 1) / 2
    slope = float(positions @ logs / (positions @ positions))
    residuals = logs - logs.mean() - slope * positions
    explained = slope**2 * float(positions @ positions)
    is_large = abs(math.expm1(slope * (count - 1))) > _MIN_SHIFT
    return is_large and _probability(explained, residuals, count - 2) < _SIGNIFICANCE


def _probability(explained: float, residuals: np.ndarray, freedom: int) -> float:
    """Return the probability that noise explains a sum of squares, from Student's t.

    Neighbouring values are correlated: n of them are worth n (1 - r) / (1 + r), where r is the
    correlation of the residuals.
    """
    unexplained = float((residuals**2).sum())
    if unexplained <= 1e-12 * explained:
        return 0.0
    correlation = float((residuals[1:] * residuals[:-1]).sum()) / unexplained
    # An estimate from few values is too small (Kendall 1954; here with two fitted numbers).
    correlation += (2 + 4 * max(correlation, 0.0)) / len(residuals)
    correlation = min(max(correlation, 0.0), _MAX_CORRELATION)
    squared_t = explained / unexplained * freedom * (1 - correlation) / (1 + correlation)
    return _two_sided_probability(squared_t, freedom)


def _two_sided_probability(squared_t: float, freedom: int) -> float:
    """Return the probability of |t| or more, by Wallace's approximation (1959)."""
    normal = (
        (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(squared_t / freedom))
    )
    return math.erfc(normal / math.sqrt(2))
