"""The same network everywhere: loss and every gradient agree with the reference.

How sharp that can be in float32 is not a matter of taste: ten times the largest distance
between the reference in float32, in several draws of its rounding, and in float64 is what
rounding does to that very tensor.
"""

import pytest

from tests import turns
from tests.adapters.conftest import distance
from xfbench import adapter
from xfbench.workloads import workloads

FRAMEWORKS = ["caffe", "ipex", "jax", "mxnet", "tensorflow", "torch"]
KEPT = ("loss", "gradient")  # the rest of a trace of AlexNet is a gigabyte
SMALL = ("convnet", "convnet-quick", "lenet")
# CaffeNet is AlexNet but for the order of two layers, ResNet-101 is ResNet-50 once more.
TODAYS = [*SMALL, *turns.todays(("alexnet", "googlenet", "resnet50"), 3)]


def takes_minutes(workload, framework, precision):
    """Left to `make test-all`, which has all: XLA takes a minute to compile a large network."""
    double = precision == "float64" and workload in ("alexnet", "resnet50")
    return workload not in TODAYS or double or (framework == "jax" and workload not in SMALL)


CASES = [
    pytest.param(
        *(workload, name, precision),
        marks=[pytest.mark.long] if takes_minutes(workload, name, precision) else [],
    )
    for workload in sorted(workloads())  # one after the other: the reference is kept for a few
    for name in FRAMEWORKS
    for precision in ("float32", "float64")  # what rounds more is `verify`'s to judge
    if precision in adapter.load(name).precisions
]


def distances(trace, framework, workload, precision):
    """Of the loss and of every gradient from the reference in float64, by name."""
    truth = trace("reference", workload, "float64", keep=KEPT)
    found = trace(framework, workload, precision, keep=KEPT)
    names = [name for name in truth if name == "loss" or name.startswith("gradient/")]
    learned = [p for p in workloads()[workload].network.parameters.values() if p.learned]
    assert len(names) == 1 + len(learned)
    return {name: distance(found[name], truth[name]) for name in names}


@pytest.mark.parametrize(("workload", "framework", "precision"), CASES)
def test_loss_and_gradients_are_the_references(trace, explained, framework, workload, precision):
    found = distances(trace, framework, workload, precision)
    if precision == "float32":
        assert explained(workload, found) == []
    else:
        assert {name: value for name, value in found.items() if not value <= 1e-8} == {}


@pytest.mark.parametrize("framework", [*FRAMEWORKS, "reference"])
def test_two_traces_on_one_thread_are_equal_to_the_bit(trace, framework):
    first = trace(framework, "convnet", threads=1, steps=5)
    second = trace(framework, "convnet", threads=1, steps=5, again=1)
    assert set(first) == set(second)
    for name in first:
        assert first[name].tobytes() == second[name].tobytes(), name


@pytest.mark.parametrize("framework", [*FRAMEWORKS, "reference"])
def test_a_trace_has_all_arrays_and_starts_from_the_canonical_weights(trace, framework):
    from xfbench.workloads.initial import initial_parameters

    network = workloads()["lenet"].network
    found = trace(framework, "lenet")
    initial = initial_parameters(network, 0)
    assert set(found) == {
        "input/data",
        "input/label",
        "loss",
        *(f"{part}/{name}" for part in ("initial", "gradient", "final") for name in initial),
    }
    for name, value in initial.items():
        assert found[f"initial/{name}"].tobytes() == value.tobytes()
    assert found["input/data"].shape == (2, 1, 28, 28)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_weights_after_updates_with_a_changing_rate_are_the_references(trace, framework):
    """LeNet's rate falls with every update, so a velocity kept in another convention shows."""
    truth = trace("reference", "lenet", "float64", steps=5)
    rounded = trace("reference", "lenet", "float32", steps=5)
    found = trace(framework, "lenet", steps=5)
    for name in truth:
        if name.startswith("final/") or name == "loss":
            allowed = 1e-6 + 10 * distance(rounded[name], truth[name])
            assert distance(found[name], truth[name]) <= allowed, name


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_running_averages_are_the_references(trace, framework):
    """Of the first batch norm, which no rounding of earlier layers disturbs, after two updates."""
    truth = trace("reference", "resnet50", "float64")
    found = trace(framework, "resnet50")
    for kind in ("mean", "variance"):
        name = f"final/bn_conv1/{kind}"
        assert distance(found[name], truth[name]) < 1e-5
        assert distance(truth[f"initial/bn_conv1/{kind}"], truth[name]) > 1e-3
