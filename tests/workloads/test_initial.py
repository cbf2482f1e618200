"""Initial weights are the same bytes everywhere, and have the distribution they claim."""

import hashlib

import numpy as np
import pytest

from xfbench.workloads import workloads
from xfbench.workloads.initial import initial_parameters


def test_lenet_weights_with_seed_0_are_frozen():
    parameters = initial_parameters(workloads()["lenet"].network, 0)
    content = b"".join(parameters[name].tobytes() for name in sorted(parameters))
    assert hashlib.sha256(content).hexdigest() == (
        "c177d85ea230a3bfbf0ba3434f680a69fa80807fea3d59553a94e9467d9aeaa4"
    )


def test_seeds_give_different_weights():
    network = workloads()["lenet"].network
    first, second = (initial_parameters(network, seed)["ip1/weight"] for seed in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("workload", "parameter", "spread"),
    [
        ("lenet", "ip1/weight", np.sqrt(1 / 800)),  # xavier: uniform, variance 1/fan_in
        ("alexnet", "fc6/weight", 0.005),
        ("resnet50", "res5a_branch2b/weight", np.sqrt(2 / (512 * 9))),  # msra
    ],
)
def test_fillers_have_the_documented_spread(workload, parameter, spread):
    weights = initial_parameters(workloads()[workload].network, 3)[parameter]
    assert weights.dtype == np.float32
    assert weights.std() == pytest.approx(spread, rel=0.01)
    assert abs(weights.mean()) < spread / 50


def test_batch_norm_starts_as_the_identity():
    parameters = initial_parameters(workloads()["resnet50"].network, 0)
    assert np.all(parameters["bn_conv1/gamma"] == 1) and np.all(
        parameters["bn_conv1/variance"] == 1
    )
    assert not parameters["bn_conv1/beta"].any() and not parameters["bn_conv1/mean"].any()
