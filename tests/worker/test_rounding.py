"""A product that rounds what it multiplies is known by what comes out."""

import numpy as np
import pytest

from xfbench.worker import rounding


def make_rounded_product(bits):
    """A product of operands that keep so many bits behind the point, rounded to the nearest."""

    def product(left_matrix, right_matrix):
        return round_to_bits(left_matrix, bits) @ round_to_bits(right_matrix, bits)

    return product


def round_to_bits(matrix, bits):
    fraction, exponent = np.frexp(matrix.astype(np.float64))
    return np.ldexp(np.round(np.ldexp(fraction, bits + 1)), exponent - bits - 1).astype(np.float32)


@pytest.mark.parametrize(
    ("bits", "name"), [(23, "float32"), (10, "tf32"), (7, "bfloat16"), (52, "float32")]
)
def test_mantissa_bits_of_a_product_are_counted(bits, name):
    detected_bits = rounding.measure_operand_fraction_bits(make_rounded_product(bits))
    assert detected_bits == min(bits, 23)
    assert rounding.precision_of_bits(detected_bits) == name


def test_rounding_of_either_operand_is_detected():
    assert (
        rounding.measure_operand_fraction_bits(
            lambda left_matrix, right_matrix: left_matrix @ round_to_bits(right_matrix, 10)
        )
        == 10
    )
    assert (
        rounding.measure_operand_fraction_bits(
            lambda left_matrix, right_matrix: round_to_bits(left_matrix, 7) @ right_matrix
        )
        == 7
    )


@pytest.mark.parametrize(("bits", "name"), [(0, "bfloat16"), (9, "bfloat16"), (22, "tf32")])
def test_intermediate_bit_counts_map_to_the_lower_precision(bits, name):
    assert rounding.precision_of_bits(bits) == name
