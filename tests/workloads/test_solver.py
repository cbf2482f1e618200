"""The learning-rate policies are Caffe's."""

import pytest

from xfbench.workloads.solver import Solver


def test_fixed_stays():
    assert Solver(0.1).learning_rate(1000) == 0.1


def test_step_falls_at_each_stepsize():
    solver = Solver(0.1, "step", gamma=0.5, stepsize=10)
    assert [solver.learning_rate(t) for t in (0, 9, 10, 25)] == [0.1, 0.1, 0.05, 0.025]


def test_inv_falls_from_the_first_update_on():
    solver = Solver(0.01, "inv", gamma=1e-4, power=0.75)
    assert solver.learning_rate(0) == 0.01
    assert solver.learning_rate(10_000) == pytest.approx(0.01 * 2**-0.75)


def test_poly_ends_at_zero():
    solver = Solver(0.01, "poly", power=0.5, max_iter=100)
    assert solver.learning_rate(75) == pytest.approx(0.005)
    assert solver.learning_rate(100) == 0.0


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="cosine"):
        Solver(0.1, "cosine").learning_rate(0)
