"""The measured precision with which a framework computes products.

Products in TF32 or bfloat16 return float32 arrays. A library's defaults or environment variables
(NVIDIA_TF32_OVERRIDE, ONEDNN_DEFAULT_FPMATH_MODE) can switch on such products.
"""

from __future__ import annotations

from typing import Callable

import numpy as np

SIZE = 256  # rows and columns of the matrices: large enough for tensor cores
_IMAGES = 32  # a batch that libraries have fast algorithms for
_PIXELS = 8  # per side of an image
# How many fraction bits of an operand each precision keeps.
_FRACTION_BITS = {"float32": 23, "tf32": 10, "bfloat16": 7}


def measure_operand_fraction_bits(product: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> int:
    """Return how many fraction bits of its operands `product` keeps.

    `product` multiplies two float32 matrices (SIZE, SIZE). The matrices are chosen so that each sum
    has at most one term that is not 0. Therefore only the rounding of operands changes the result.
    """
    diagonal = np.ones(SIZE, np.float32)
    places = range(1, _FRACTION_BITS["float32"] + 1)
    diagonal[places] = [1 + 2.0**-place for place in places]
    identity = np.eye(SIZE, dtype=np.float32)
    products = product(np.diag(diagonal), identity), product(identity, np.diag(diagonal))
    exact_bits = [[place for place in places if matrix[place, place] != 1] for matrix in products]
    return min(max(of_one, default=0) for of_one in exact_bits)


def lowest_measured_precision(*products: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> str:
    """Measure the precision of each product, and return the lowest precision, such as "tf32".

    `products` are functions that multiply two float32 matrices (SIZE, SIZE).
    """
    return precision_of_bits(min(measure_operand_fraction_bits(product) for product in products))


def fill_images_with_rows(matrix: np.ndarray) -> np.ndarray:
    """Return images of the first rows of `matrix`, as an array (_IMAGES, _PIXELS, _PIXELS, SIZE).

    All pixels of an image are the same: their SIZE channels are the values of the matrix row.
    Therefore a 1x1 convolution of the images computes these rows of a matrix product. Only they
    show how operands are rounded, and the rest would take longer than some training steps.
    """
    pixels = np.broadcast_to(matrix[:_IMAGES, None, None], (_IMAGES, _PIXELS, _PIXELS, SIZE))
    return np.ascontiguousarray(pixels)


def precision_of_bits(bit_count: int) -> str:
    """Return the highest precision that needs at most `bit_count` fraction bits.

    If every precision needs more bits, return the lowest one, "bfloat16".
    """
    return max(
        (least, name) for name, least in _FRACTION_BITS.items() if least <= bit_count or least == 7
    )[1]
