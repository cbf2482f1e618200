"""Draw the input of a block from the distribution of the activations that the block reads.

The distribution is a table of quantiles: a row for each channel, or one row for all of them. So a
table takes some kilobytes, and each machine draws the same input from it.
"""

from __future__ import annotations

from typing import Tuple

import numpy as np

KNOTS = 33  # quantiles of a row: the smallest value, the largest, and 31 between them
# Their levels are dense at both ends, because a few large values make the deviation.
_STEPS = np.linspace(0, 1, KNOTS)
LEVELS = np.where(_STEPS < 0.5, 2 * _STEPS**2, 1 - 2 * (1 - _STEPS) ** 2)


def draw_input(table: np.ndarray, shape: Tuple[int, ...], seed: int) -> np.ndarray:
    """Return float32 values of `shape` (images, channels, rows, columns) from a quantile table.

    Values between two quantiles are interpolated. Zeros of a ReLU stay zeros.
    """
    level = np.random.RandomState(seed).random_sample(shape)
    lower = np.searchsorted(LEVELS, level, side="right") - 1
    share = (level - LEVELS[lower]) / (LEVELS[lower + 1] - LEVELS[lower])
    channel = np.arange(len(table))[:, None, None]
    low, high = table[channel, lower].astype(float), table[channel, lower + 1].astype(float)
    values: np.ndarray = (low + (high - low) * share).astype(np.float32)
    return values


def build_table(activations: np.ndarray) -> np.ndarray:
    """Return the quantile table of `activations`, whose first axes are images and channels.

    If a channel has too few values for its quantiles, the table has one row for all channels.
    """
    channels = activations.shape[1]
    by_channel = np.moveaxis(activations, 1, 0).reshape(channels, -1)
    rows = by_channel if by_channel.shape[1] >= 2 * KNOTS else by_channel.reshape(1, -1)
    table: np.ndarray = np.percentile(rows, 100 * LEVELS, axis=1).T.astype(np.float32)
    return table
