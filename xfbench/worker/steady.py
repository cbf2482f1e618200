"""The change-point test that finds the first step of a launch's steady state.

The training loop uses the test to decide when the warm-up ends. The analysis uses it to find out
whether a record reached a steady state.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

# A change counts if it is significant and large enough.
_SIGNIFICANCE = 0.01  # maximum probability of such a change in a steady series
_MIN_SHIFT = 0.05  # minimum relative difference of the medians before and after
_MIN_VALUES = 10  # with fewer values, no change can be detected
_BLOCKS = 20  # blocks whose medians are tested, because neighbouring steps are correlated


def count_values_before_steady(seconds: Sequence[float]) -> int:
    """Return the number of values before the steady state. All later values have the same level.

    Returns 0 if all values are steady or if there are too few values to decide. Changes of the
    level are found one by one with Pettitt's rank test (1979) on medians of blocks. This test is
    robust against outliers. If the level is the same before and after a burst, the burst is no
    change.
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
    """Return the number of values before the level changes, or 0 if it does not change."""
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
