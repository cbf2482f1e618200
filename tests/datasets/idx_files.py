"""Files in MNIST's format, IDX."""

import numpy as np


def encode_idx(values):
    """An array as an IDX file of unsigned bytes."""
    header = [0x800 + values.ndim, *values.shape]
    return np.array(header, ">u4").tobytes() + values.astype(np.uint8).tobytes()
