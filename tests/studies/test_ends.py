"""Numbers of the analyses of rising batches that can be calculated by hand."""

import math

import pytest

from xfbench.studies import ends

T_975 = 12.7062  # Student's t with one degree of freedom, from a table


def test_the_line_through_three_points_has_one_degree_of_freedom():
    line = ends.growth([1, 2, 3], [10.0, 13.0, 10.0])
    # Residuals are -1, 2, -1: a variance of 6 over one degree of freedom.
    assert line.slope.value == pytest.approx(0)
    assert line.slope.high == pytest.approx(T_975 * math.sqrt(6 / 2), rel=1e-5)
    assert line.slope.low == pytest.approx(-line.slope.high)
    assert line.start.value == pytest.approx(11)
    half = T_975 * math.sqrt(6 * (1 / 3 + 4 / 2))
    assert line.start.high == pytest.approx(11 + half, rel=1e-5)
    assert line.start.low == pytest.approx(11 - half, rel=1e-5)
    assert line.off == pytest.approx(2 / 13)


def test_two_batches_have_no_line():
    assert ends.growth([1, 2, 2], [10.0, 13.0, 10.0]) is None
