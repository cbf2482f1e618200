"""The rate of every update, in every framework, by how far a weight goes under it."""

import textwrap

import numpy as np
import pytest

FRAMEWORKS = ["caffe", "ipex", "jax", "mxnet", "tensorflow", "torch"]
MINE = """
from dataclasses import replace
from xfbench.workloads.lenet import WORKLOADS as LENET
from xfbench.workloads.solver import Solver

[lenet] = LENET
network = replace(lenet.network, name="warm")
WORKLOADS = (replace(lenet, network=network, solver=Solver(1e-4, momentum=0.0, warmup=4)),)
"""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_in_the_warm_up_the_first_updates_are_as_small_as_they_should_be(
    trace, framework, tmp_path, monkeypatch
):
    """Of four updates the rates are a quarter, two, three and all of it: 2.5 together.

    Without momentum, and so little that the gradient stays what it was at first.
    """
    (tmp_path / "mine.py").write_text(textwrap.dedent(MINE))
    monkeypatch.setenv("XFBENCH_WORKLOADS", str(tmp_path))
    found = trace(framework, "warm", steps=4)
    gradient = found["gradient/ip2/weight"].astype(np.float64)
    moved = found["initial/ip2/weight"].astype(np.float64) - found["final/ip2/weight"]
    rates = (moved * gradient).sum() / (gradient**2).sum()
    assert rates == pytest.approx(2.5e-4, rel=0.02)
