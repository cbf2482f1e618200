"""The training loop in the test's own process, with a real clock or a simulated one."""

import itertools
from types import SimpleNamespace

import pytest

from tests import fake_framework
from xfbench.worker import loop
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workloads


@pytest.fixture
def train(tmp_path):
    """A function that trains in this process: the worker's reply.

    `folder` is for checkpoints, `data_folder` has a prepared data set. `device` is what the worker
    takes the trainer to use.
    """

    def train_in_process(
        trainer,
        folder=None,
        core_latency_probe=None,
        data_folder=None,
        group=None,
        device="cpu",
        **fields,
    ):
        request = fake_framework.cell(**fields).request(1).model_dump(mode="json")
        return loop.train_and_measure(
            workloads()[request["workload"]],
            request,
            Options("plain", 1, device=device),
            lambda *_: trainer,
            group or Group(),
            data_folder,
            checkpoint_folder=folder or tmp_path / "checkpoint",
            core_latency_probe=core_latency_probe,
        )

    return train_in_process


@pytest.fixture
def clock(monkeypatch):
    """The training loop's clock, which stands still but for `now`."""
    simulated, reads = SimpleNamespace(now=0.0), itertools.count()
    monkeypatch.setattr(loop, "perf_counter", lambda: simulated.now + 1e-9 * next(reads))
    return simulated
