"""A product that rounds what it multiplies is known by what comes out."""

import numpy as np
import pytest

from xfbench.worker import rounding


def keeping(bits):
    """A product of operands that keep so many bits behind the point, rounded to the nearest."""

    def product(one, other):
        return kept(one, bits) @ kept(other, bits)

    return product


def kept(matrix, bits):
    fraction, exponent = np.frexp(matrix.astype(np.float64))
    return np.ldexp(np.round(np.ldexp(fraction, bits + 1)), exponent - bits - 1).astype(np.float32)


@pytest.mark.parametrize(
    ("bits", "name"), [(23, "float32"), (10, "tf32"), (7, "bfloat16"), (52, "float32")]
)
def test_mantissa_bits_of_a_product_are_counted(bits, name):
    found = rounding.operand_bits(keeping(bits))
    assert found == min(bits, 23)
    assert rounding.precision_of_bits(found) == name


def test_rounding_of_either_operand_is_detected():
    assert rounding.operand_bits(lambda one, other: one @ kept(other, 10)) == 10
    assert rounding.operand_bits(lambda one, other: kept(one, 7) @ other) == 7


@pytest.mark.parametrize(("bits", "name"), [(0, "bfloat16"), (9, "bfloat16"), (22, "tf32")])
def test_intermediate_bit_counts_map_to_the_lower_precision(bits, name):
    assert rounding.precision_of_bits(bits) == name
