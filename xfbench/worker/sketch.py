"""Short summaries of large tensors that keep distances: signed folding.

A tensor's elements get fixed random signs and are added up in `WIDTH` places, one after
another. The summary is linear, so that of a difference is the difference of the
summaries; the expectation of its squared norm is the squared norm itself, with a relative
deviation of sqrt(2 / WIDTH), 6 % (Alon, Matias and Szegedy 1996). One wrong element shows
in full. So the 61 million weights of AlexNet are compared without being written to disk.
"""

from __future__ import annotations

import numpy as np

WIDTH = 509  # a prime, so that rows and channels do not fall on one another
_CHUNK = WIDTH * 4096


def sketch(tensor: np.ndarray) -> np.ndarray:
    """The summary, float64, (WIDTH,); a tensor of at most WIDTH elements is kept as it is."""
    flat = np.asarray(tensor).ravel()
    if flat.size <= WIDTH:
        return flat.astype(np.float64)
    random = np.random.RandomState(flat.size % 2**32)
    total = np.zeros(WIDTH)
    for start in range(0, flat.size, _CHUNK):
        count = min(flat.size - start, _CHUNK)
        part = np.zeros(-(-count // WIDTH) * WIDTH)
        bits = np.frombuffer(random.bytes(-(-count // 8)), np.uint8)
        signs = np.unpackbits(bits)[:count].astype(np.float64) * 2 - 1
        part[:count] = signs * flat[start : start + count]
        total += part.reshape(-1, WIDTH).sum(axis=0)
    return total
