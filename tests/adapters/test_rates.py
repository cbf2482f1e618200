"""Tests of the learning rate of each update, derived from the change of a weight."""

import numpy as np
import pytest

from tests.adapters.cases import FRAMEWORKS, Case, parametrize
from tests.adapters.reference import train_reference
from xfbench.execution import tracing
from xfbench.planning import experiment

DEEP = pytest.mark.deep

SCALED = [Case("train", framework, "lars") for framework in FRAMEWORKS]
WARMING_UP = [Case("train", framework, "warm", steps=4) for framework in FRAMEWORKS]
# A user's network with the same warm-up as the one in `cases.py`.
MODULE = """
from dataclasses import replace
from xfbench.workloads.lenet import WORKLOADS as LENET
from xfbench.workloads.solver import Solver

[lenet] = LENET
network = replace(lenet.network, name="users")
WORKLOADS = (replace(lenet, network=network, solver=Solver(1e-4, momentum=0.0, warmup=4)),)
"""


def sum_rates(arrays):
    """Return the sum of the learning rates of a training's updates."""
    gradient = arrays["gradient/ip2/weight"].astype(np.float64)
    change = arrays["initial/ip2/weight"].astype(np.float64) - arrays["final/ip2/weight"]
    return (change * gradient).sum() / (gradient**2).sum()


@pytest.mark.deep
@parametrize(WARMING_UP, "framework")
def test_warm_up_makes_the_first_updates_small(case, answers):
    """The four updates have 1/4, 2/4, 3/4 and 4/4 of the rate: 2.5 rates in sum."""
    assert sum_rates(answers(case).arrays) == pytest.approx(2.5e-4, rel=0.02)


@parametrize(SCALED, "framework", marks=lambda case: () if case.framework == "jax" else DEEP)
def test_lars_keeps_the_rate_of_biases_that_are_zero(case, answers):
    arrays = answers(case).arrays
    assert not arrays["initial/ip2/bias"].any()
    expected = train_reference("lars", "float64", 1)["final/ip2/bias"]
    np.testing.assert_allclose(arrays["final/ip2/bias"], expected, rtol=1e-3)


@pytest.mark.deep
def test_network_of_the_user_is_traced(tmp_path, monkeypatch):
    (tmp_path / "users.py").write_text(MODULE)
    monkeypatch.setenv("XFBENCH_WORKLOADS", str(tmp_path))
    settings = {"framework": ["torch"], "workload": ["users"], "threads": [1], "batch_size": [2]}
    matrix = experiment.build_matrix(**settings, steps=4, data="synthetic")
    tracing.trace_only_cell(matrix, {}, tmp_path / "trace.npz", 300)
    with np.load(tmp_path / "trace.npz", allow_pickle=False) as arrays:
        assert sum_rates(arrays) == pytest.approx(2.5e-4, rel=0.02)
