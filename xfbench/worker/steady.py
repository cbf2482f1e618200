"""Find the step from which on a launch's times are steady, by a change-point test.

The loop uses it to decide when to stop warming up. The analysis uses the same test to find out
whether a record was ever steady.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

# A change counts if chance makes it only once in a hundred series, and if it is large enough.
_SIGNIFICANCE = 0.01
_MIN_SHIFT = 0.05  # relative difference of the medians before and after
_MIN_VALUES = 10  # with fewer values no change can be detected
_BLOCKS = 20  # medians of this many blocks, because neighbouring steps are correlated


def count_values_before_steady(seconds: Sequence[float]) -> int:
    """Return how many of the first values belong to an earlier level.

    Returns 0 if the values are steady, or too few to decide. Changes are found one by one with
    Pettitt's rank test (1979) on medians of blocks, which is robust against outliers. A burst that
    leaves the level unchanged is no change.
    """
    values = np.asarray(seconds, dtype=float)
    width = max(1, len(values) // _BLOCKS)
    starts = range(0, len(values), width)
    blocks = (
        np.array([np.median(values[at : at + width]) for at in starts]) if width > 1 else values
    )
    start = 0
    while change := _change_point(blocks[start:]):
        start += change
    return start * width


def _change_point(values: np.ndarray) -> int:
    """Return the number of values before the level changes; 0 if it does not."""
    count = len(values)
    if count < _MIN_VALUES:
        return 0
    order = np.argsort(values, kind="stable")
    ranks = np.empty(count)
    ranks[order] = np.arange(1, count + 1)
    before = np.arange(1, count)
    statistic = np.abs(2 * np.cumsum(ranks)[:-1] - before * (count + 1))
    change = int(statistic.argmax()) + 1
    chance = 2 * np.exp(-6 * float(statistic.max()) ** 2 / (count**3 + count**2))
    first, second = np.median(values[:change]), np.median(values[change:])
    shift = abs(first / second - 1) if second > 0 else 0.0
    return change if chance < _SIGNIFICANCE and shift > _MIN_SHIFT else 0
