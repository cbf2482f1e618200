"""Tests of checkpoints of every framework: a resumed training equals an uninterrupted one."""

import pytest

from tests.adapters.cases import FRAMEWORKS, Case, parametrize
from xfbench.model import adapter

ALL = (*FRAMEWORKS, "reference")
CASES = [
    Case("save_and_restore", framework, workload)
    for framework in ALL
    for workload in ("lenet", "normed")
]


def select_marks(case):
    """Mark all cases deep except the smaller network; JAX compiles too long even for that."""
    quick = case.workload == "normed" and case.framework != "jax"
    return () if quick else pytest.mark.deep


@parametrize(CASES, "framework", "workload", marks=select_marks)
def test_training_goes_on_from_a_checkpoint(case, answers):
    """The resumed training is bit-identical. Restoring only the weights would not be enough."""
    facts = answers(case).facts
    assert facts["parameters"] and facts["end"]
    assert not facts["end of weights alone"]
    assert facts["averages"] == (case.workload == "normed")
    assert facts["bytes"] >= facts["least"]
    assert adapter.load(case.framework).checkpoint


@pytest.mark.deep
@pytest.mark.parametrize("framework", ALL)
def test_launch_records_its_checkpoints(shared_real_launch, framework):
    record = shared_real_launch(framework)
    assert record.status == "ok", record.reason
    checkpoints = record.checkpoints
    assert checkpoints.equal and checkpoints.format == adapter.load(framework).checkpoint
    assert len(checkpoints.save_seconds) == len(checkpoints.load_seconds) == 2
    # LeNet has 431,080 parameters and as many velocities, in float32.
    assert 8 * 431_080 <= checkpoints.bytes < 1.1 * 8 * 431_080


@pytest.mark.deep
@pytest.mark.parametrize(
    ("framework", "strategy"),
    [
        *(("caffe", "mpi"), ("jax", "mpi"), ("mxnet", "dist_sync")),
        *(("tensorflow", "mirrored"), ("torch", "ddp")),
    ],
)
def test_first_rank_saves_and_both_ranks_resume(launch_real, framework, strategy):
    settings = {"ranks": [2], "strategy": [strategy], "scaling": "weak", "threads": [1]}
    record = launch_real(
        framework, workload=["lenet"], batch_size=[8], steps=4, checkpoints=2, **settings
    )
    assert record.status == "ok", record.reason
    assert record.checkpoints.equal and len(record.checkpoints.save_seconds) == 2
    assert len(record.measurement.step_seconds) == 4
