"""The rate of every update, in every framework, by how far a weight goes under it."""

import numpy as np
import pytest

from tests.adapters.cases import FRAMEWORKS, Case, parametrize
from tests.adapters.reference import training

DEEP = pytest.mark.deep

SCALED = [Case("train", framework, "lars") for framework in FRAMEWORKS]
WARMING_UP = [Case("train", framework, "warm", steps=4) for framework in FRAMEWORKS]


@pytest.mark.deep
@parametrize(WARMING_UP, "framework")
def test_warm_up_makes_the_first_updates_small(case, answers):
    """The rates of four updates are a quarter, two, three and all of it: 2.5 in sum."""
    found = answers(case).arrays
    gradient = found["gradient/ip2/weight"].astype(np.float64)
    moved = found["initial/ip2/weight"].astype(np.float64) - found["final/ip2/weight"]
    rates = (moved * gradient).sum() / (gradient**2).sum()
    assert rates == pytest.approx(2.5e-4, rel=0.02)


@parametrize(SCALED, "framework", marks=lambda case: () if case.framework == "jax" else DEEP)
def test_lars_keeps_the_rate_of_biases_that_are_zero(case, answers):
    arrays = answers(case).arrays
    assert not arrays["initial/ip2/bias"].any()
    expected = training("lars", "float64", 1)["final/ip2/bias"]
    np.testing.assert_allclose(arrays["final/ip2/bias"], expected, rtol=1e-3)
