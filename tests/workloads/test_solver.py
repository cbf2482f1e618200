"""The learning-rate policies are Caffe's."""

from dataclasses import replace

import pytest

from xfbench.workloads import workload_from_json, workloads
from xfbench.workloads.solver import Solver


def test_fixed_policy_keeps_the_learning_rate():
    assert Solver(0.1).learning_rate(1000) == 0.1


def test_step_policy_decays_at_each_stepsize():
    solver = Solver(0.1, "step", gamma=0.5, stepsize=10)
    assert [solver.learning_rate(t) for t in (0, 9, 10, 25)] == [0.1, 0.1, 0.05, 0.025]


def test_inv_policy_decays_from_the_first_update():
    solver = Solver(0.01, "inv", gamma=1e-4, power=0.75)
    assert solver.learning_rate(0) == 0.01
    assert solver.learning_rate(10_000) == pytest.approx(0.01 * 2**-0.75)


def test_poly_policy_ends_at_zero():
    solver = Solver(0.01, "poly", power=0.5, max_iter=100)
    assert solver.learning_rate(75) == pytest.approx(0.005)
    assert solver.learning_rate(100) == 0.0


def test_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="cosine"):
        Solver(0.1, "cosine").learning_rate(0)


def test_warmup_raises_the_learning_rate_linearly():
    solver = Solver(0.1, warmup=4)
    rates = [solver.learning_rate(t) for t in range(6)]
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    step_solver = Solver(0.1, "step", gamma=0.5, stepsize=2, warmup=4)
    rates = [step_solver.learning_rate(t) for t in range(5)]
    assert rates == pytest.approx([0.025, 0.05, 0.0375, 0.05, 0.025])


def test_solver_without_warmup_has_no_warmup_in_json():
    lenet = workloads()["lenet"]
    assert "warmup" not in lenet.to_json()["solver"]
    with_warmup = replace(lenet, solver=replace(lenet.solver, warmup=4))
    assert workload_from_json(with_warmup.to_json()) == with_warmup
