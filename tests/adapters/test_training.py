"""Tests of real training in every framework, from request to record."""

from math import prod

import pytest

from tests.adapters.cases import FRAMEWORKS, Case, parametrize
from xfbench.workloads import workloads

UPDATES = 8 * (1437 // 64)
EXPORTED = [Case("count_exported", "caffe", workload) for workload in sorted(workloads())]


def assert_learned(record):
    """Assert that LeNet was trained and evaluated for eight epochs, and that the loss fell."""
    assert record.status == "ok", record.reason
    assert len(record.learning) == 8
    assert record.learning[-1].train_loss < record.learning[0].train_loss / 5
    assert len(record.measurement.losses) == UPDATES


@pytest.mark.deep
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_lenet_learns_the_digits(shared_real_launch, framework):
    record = shared_real_launch(framework)
    assert_learned(record)
    assert record.learning[-1].test_accuracy >= 0.95


@pytest.mark.long
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_lenet_reaches_97_percent_test_accuracy_over_3_seeds(launch_real, framework):
    """The mean accuracy of three seeds is at least 97 % after eight epochs."""
    records = [
        launch_real(framework, workload=["lenet"], epochs=8, seed=seed) for seed in (0, 1, 2)
    ]
    for record in records:
        assert_learned(record)
    assert sum(record.learning[-1].test_accuracy for record in records) / 3 >= 0.97


@pytest.mark.deep
@parametrize(EXPORTED, "workload")
def test_exported_prototxt_trains_in_caffe_on_its_own(case, answers):
    parameters = workloads()[case.workload].network.parameters.values()
    averages = [parameter for parameter in parameters if not parameter.learned]
    # Caffe's batch norm has one divisor for each pair of mean and variance.
    expected = sum(prod(parameter.shape) for parameter in parameters) + len(averages) // 2
    assert answers(case).facts["count"] == expected
