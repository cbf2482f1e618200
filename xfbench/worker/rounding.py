"""How exactly something multiplies: seen in a product, whatever was asked for or set.

TF32 and bfloat16 look like float32 from outside, and are switched on by a library's defaults or by
a variable of the environment (NVIDIA_TF32_OVERRIDE, ONEDNN_DEFAULT_FPMATH_MODE).
"""

from __future__ import annotations

from typing import Callable

import numpy as np

SIZE = 256  # of the matrices: as large as what tensor cores compute
_PIXELS = 8  # of an image's side
# Bits behind the point that operands keep.
_FRACTION_BITS = {"float32": 23, "tf32": 10, "bfloat16": 7}


def operand_bits(product: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> int:
    """How many bits behind the point `product`, of two (SIZE, SIZE) of float32, leaves an operand.

    Every sum has one term that is not 0, so that nothing else rounds.
    """
    diagonal = np.ones(SIZE, np.float32)
    places = range(1, _FRACTION_BITS["float32"] + 1)
    diagonal[places] = [1 + 2.0**-place for place in places]
    identity = np.eye(SIZE, dtype=np.float32)
    products = product(np.diag(diagonal), identity), product(identity, np.diag(diagonal))
    exact_bits = [[place for place in places if matrix[place, place] != 1] for matrix in products]
    return min(max(of_one, default=0) for of_one in exact_bits)


def measured_precision(*products: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> str:
    """Return the lowest precision of several such products."""
    return precision_of_bits(min(operand_bits(product) for product in products))


def matrix_as_images(matrix: np.ndarray) -> np.ndarray:
    """Images whose pixels all are a row of `matrix`, channels last: a product as a convolution."""
    pixels = np.broadcast_to(matrix[:, None, None], (len(matrix), _PIXELS, _PIXELS, SIZE))
    return np.ascontiguousarray(pixels)


def precision_of_bits(bit_count: int) -> str:
    """Return the precision that keeps this many bits, rounded down to a known precision."""
    return max(
        (least, name) for name, least in _FRACTION_BITS.items() if least <= bit_count or least == 7
    )[1]
