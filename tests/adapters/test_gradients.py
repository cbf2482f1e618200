"""Tests that losses, gradients and weights of every framework match the reference.

The tolerance is ten times the rounding error of the reference in the same precision.
"""

import numpy as np
import pytest

from tests.adapters.cases import FRAMEWORKS, SMALL, WORKLOADS, Case, parametrize
from tests.adapters.inside import distance
from tests.adapters.reference import train_reference
from xfbench.environments import environment
from xfbench.execution import tracing
from xfbench.model import adapter
from xfbench.planning.experiment import build_matrix, expand_matrices
from xfbench.workloads import workloads
from xfbench.workloads.initial import initial_parameters

# Steps of the float32 training of a small network; several tests share one training.
STEPS = {"lenet": 5, "convnet": 5}
CASES = [
    Case("train", framework, workload, precision, steps=STEPS.get(workload, 1))
    for workload in (*sorted(workloads()), "relu-norm")
    for framework in FRAMEWORKS
    for precision in ("float32", "float64")
    if precision in adapter.load(framework).precisions
]
ON_TWO_THREADS = [
    Case("train", framework, workload, threads=2)
    for framework in FRAMEWORKS
    for workload in ("convnet", "lenet")
]
MIXED = [
    Case("train", framework, workload, precision)
    for framework in FRAMEWORKS
    for workload in ("convnet", "lenet")
    for precision in ("bfloat16", "float16")
    if precision in adapter.load(framework).precisions
]
LENET, CONVNET = (
    [Case("train", framework, workload, steps=5) for framework in (*FRAMEWORKS, "reference")]
    for workload in ("lenet", "convnet")
)
AVERAGED = [
    Case("train", framework, workload)
    for workload in ("normed", "resnet50")
    for framework in FRAMEWORKS
]


def select_marks(case):
    """LeNet, ConvNet in float32 and `relu-norm` are quick; other small networks are deep."""
    quick = ("lenet", "relu-norm")
    if case.workload in quick or (case.workload, case.precision) == ("convnet", "float32"):
        return ()
    return pytest.mark.deep if case.workload in SMALL else pytest.mark.long


@parametrize(CASES, "workload", "framework", "precision", marks=select_marks)
def test_losses_and_gradients_match_the_reference(case, answers, reference):
    assert reference.unexplained(case, answers(case).facts["distances"]) == []


@pytest.mark.deep
@parametrize(ON_TWO_THREADS, "workload", "framework")
def test_gradients_on_two_threads_match_the_reference(case, answers, reference):
    assert reference.unexplained(case, answers(case).facts["distances"]) == []


@pytest.mark.deep
@parametrize(MIXED, "workload", "framework", "precision")
def test_mixed_precision_rounds_as_the_reference_does(case, answers, reference):
    facts = answers(case).facts
    assert facts["observed"]["precision"] == case.precision
    assert reference.unexplained(case, facts["distances"]) == []


@parametrize(LENET[:-1], "framework")
def test_weights_after_updates_at_a_falling_rate(case, answers):
    """LeNet's rate falls with every update, which reveals another convention for the velocity."""
    truth, rounded = (
        train_reference("lenet", precision, 5) for precision in ("float64", "float32")
    )
    arrays = answers(case).arrays
    assert set(arrays) == set(truth)
    for name in truth:
        if name.startswith("final/") or name == "loss":
            allowed = 1e-6 + 10 * distance(rounded[name], truth[name])
            assert distance(arrays[name], truth[name]) <= allowed, name


@parametrize(AVERAGED, "workload", "framework", marks=select_marks)
def test_running_averages_match_the_reference(case, answers):
    """Compare those of the first batch norm, free of rounding errors of earlier layers."""
    distances = answers(case).facts["distances"]
    network = WORKLOADS[case.workload].network
    mean = next(name for name in network.parameters if name.endswith("/mean"))
    for name in (mean, mean.replace("mean", "variance")):
        assert distances[f"final/{name}"] < 1e-5


def test_an_update_moves_the_running_averages():
    """Otherwise the test above would also pass for averages that are never updated."""
    initial = initial_parameters(WORKLOADS["normed"].network, 0)
    final = train_reference("normed", "float64", 1)
    for name in ("norm/mean", "norm/variance"):
        assert distance(initial[name], final[f"final/{name}"]) > 1e-3


@pytest.fixture(scope="session")
def trace(scratch):
    """A function that returns the arrays of `xfbench trace`: ConvNet, five updates, one thread."""

    def make(framework):
        settings = {"framework": [framework], "workload": ["convnet"], "data": "synthetic"}
        [(cell, _)] = expand_matrices(
            [build_matrix(**settings, threads=[1], batch_size=[2], steps=5)]
        )
        output, framework_adapter = scratch / f"{framework}.npz", adapter.load(framework)
        if not output.exists():
            framework_environment = environment.ensure_environment(framework_adapter)
            tracing.trace_cell(cell, framework_adapter, framework_environment, output, 900)
        with np.load(output, allow_pickle=False) as arrays:
            return dict(arrays)

    return make


@pytest.mark.deep
@pytest.mark.parametrize("framework", [*FRAMEWORKS, "reference"])
def test_trace_has_all_arrays_and_the_canonical_weights(trace, framework):
    arrays = trace(framework)
    initial = initial_parameters(workloads()["convnet"].network, 0)
    assert set(arrays) == {
        "input/data",
        "input/label",
        "loss",
        *(f"{part}/{name}" for part in ("initial", "gradient", "final") for name in initial),
    }
    for name, value in initial.items():
        assert arrays[f"initial/{name}"].tobytes() == value.tobytes()
    assert arrays["input/data"].shape == (2, 3, 32, 32)


@pytest.mark.deep
@parametrize(CONVNET, "framework")
def test_two_processes_on_one_thread_agree_to_the_bit(case, answers, trace):
    first, second = answers(case).arrays, trace(case.framework)
    assert set(first) - set(second) == {"test_loss"}
    for name in second:
        if not name.startswith("input/"):
            assert first[name].tobytes() == second[name].tobytes(), name
