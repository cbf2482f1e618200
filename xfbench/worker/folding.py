"""Fold summaries of tensors (see `sketch.py`), so that results of deep networks are small.

A folded summary has `WIDTH` numbers instead of 509, each a sum with fixed random signs. It keeps
distances as a summary does. The relative standard deviation of a squared norm is 18 % instead of
6 %. A tolerance is ten times what rounding does, so that verdicts hardly depend on it.
"""

from __future__ import annotations

import re

import numpy as np

WIDTH = 61  # a prime, as in `sketch.py`
_QUANTITY = re.compile(r"(output|gradient|step\d+)/")


def is_folded(quantity: str) -> bool:
    """Return whether results of this quantity may be folded."""
    return bool(_QUANTITY.match(quantity))


def fold(summary: np.ndarray) -> np.ndarray:
    """Return the folded summary. A summary of at most `WIDTH` numbers stays as it is."""
    count = summary.size
    if count <= WIDTH:
        return summary
    signs = np.random.RandomState(count).randint(0, 2, count) * 2 - 1
    padded = np.zeros(-(-count // WIDTH) * WIDTH)
    padded[:count] = signs * summary.ravel()
    folded: np.ndarray = padded.reshape(-1, WIDTH).sum(axis=0)
    return folded
