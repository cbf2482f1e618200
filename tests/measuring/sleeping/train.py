"""Ranks that sleep instead of computing, and exchange gradients of a real network's size for real.

So that there may be more ranks than cores. A step's sleep varies from rank to rank and from step
to step. Gradients are zero: MPI joins them when the sleep is over, DistributedDataParallel while
it lasts (`layered.py`, which needs PyTorch; all else does without, to start fast).
"""

import time
from math import prod

import numpy as np

from xfbench.adapters.sleeping.fake_trainer import FakeTrainer
from xfbench.worker.mpi import AllReduce

FIXED_S, PER_IMAGE_S = 0.02, 0.01  # seconds of a step
SPREAD = 0.05  # standard deviation of the logarithm of a step's sleep
LOSSES = "LOSSES"  # by network and images: what a launch is checked by


class SingleSleep:
    """A step is one sleep."""

    def __init__(self, network):
        shapes = [p.shape for p in network.parameters.values() if p.learned]
        self.arrays = [np.zeros(prod(shape), np.float32) for shape in shapes]

    def step(self, seconds):
        time.sleep(seconds)

    def gradients(self):
        return self.arrays

    def disable_sync(self):
        pass


class Trainer(FakeTrainer):
    """A batch is its number of images."""

    def __init__(self, network, options, group):
        super().__init__(options, group)
        self.name, self.random = network.name, np.random.default_rng(group.rank)
        self.joined = AllReduce(group) if group.strategy == "mpi" else None
        if group.strategy == "ddp":
            from xfbench.adapters.sleeping import layered

            self.asleep = layered.Layered(network, group)
        else:
            self.asleep = SingleSleep(network)

    def load(self, images, labels):
        return len(images)

    def step(self, batch):
        mean_s = FIXED_S + PER_IMAGE_S * batch
        self.asleep.step(mean_s * float(np.exp(self.random.normal(0, SPREAD))))
        if self.joined:
            self.joined.average_in_place(self.asleep.gradients())

    def test_loss(self, batch):
        return LOSSES[self.name][batch]

    def test_scores(self, batch):
        return np.zeros((batch, 10), np.float32)

    def gradients(self, batch):
        return {str(n): array for n, array in enumerate(self.asleep.gradients())}

    def disable_sync(self):
        self.asleep.disable_sync()
        self.joined = None


def build(network, solver, options, group):
    return Trainer(network, options, group)
