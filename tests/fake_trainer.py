"""A fake framework: a trainer in NumPy that sleeps instead of computing.

Tests import this file, or `fake_framework.write` copies it to the `train.py` of an adapter and adds
lines of the test. These lines can redefine `Trainer`, `build`, `after_step` or `EXPECTED_LOSS`.
"""

import os
import time
from pathlib import Path  # noqa: F401  for the lines of tests

import numpy as np

EXPECTED_LOSS = 1.0  # in an adapter: the reference's loss for a batch of four


class FakeTrainer:
    """A trainer with one parameter, to which each step adds 1."""

    def __init__(self, options=None, group=None):
        self.kernel = options.kernel if options else "plain"
        self.rank = group.rank if group else 0
        self.steps = 0
        self.value = np.arange(1000, dtype=np.float32)

    def load(self, images, labels):
        return images

    def step(self, batch):
        self.steps += 1
        self.value = self.value + 1
        time.sleep(0.01)
        after_step(self.rank, self.steps)

    def wait_for_loss(self):
        return 1.0 + self.rank

    def test_loss(self, batch):
        return EXPECTED_LOSS

    def test_scores(self, batch):
        return np.zeros((len(batch), 10), np.float32)

    def gradients(self, batch):
        return {}

    def parameters(self):
        return {"conv1/weight": self.value.copy()}

    def assign(self, parameters):
        self.value = np.resize(parameters["conv1/weight"], 1000)

    def save(self, folder):
        np.save(folder / "value.npy", self.value)

    def restore(self, folder):
        self.value = np.load(folder / "value.npy")

    def runtime_info(self):
        versions = {"framework_version": "1", "layout": "NCHW"}
        return {**versions, "kernel": self.kernel, "kernel_evidence": []}


class Trainer(FakeTrainer):
    """The trainer that `build` returns."""


def after_step(rank, steps):
    """Run in each rank after each of its steps."""


def build(network, solver, options, group):
    assert group.strategy == ("side by side" if group.size > 1 else "none")
    assert not os.path.exists(group.rendezvous_path), "no rank has made this file yet"  # noqa: PTH110
    return Trainer(options, group)
