"""Short summaries of large tensors that preserve distances.

A summary has `WIDTH` numbers. Number k is the sum of the tensor's elements k, k + WIDTH,
k + 2 * WIDTH and so on, each with a fixed random sign.

- The summary is linear: the summary of a difference is the difference of the summaries.
- The expected squared norm of a summary is the squared norm of its tensor. The relative standard
  deviation is sqrt(2 / WIDTH), 6 % (Alon, Matias and Szegedy 1996).
- A wrong element of the tensor changes one number of the summary by the error of the element.

Thus AlexNet's 61 million weights are compared without being written to disk.
"""

from __future__ import annotations

import numpy as np

WIDTH = 509  # a prime, so that rows and channels do not fall on the same places
_CHUNK = WIDTH * 4096


def sketch(tensor: np.ndarray) -> np.ndarray:
    """Return the summary of `tensor`, float64 (WIDTH,).

    If `tensor` has at most WIDTH elements, its elements are the summary.
    """
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
