"""AlexNet as a PyTorch user would write it, timed against the same through xfbench's worker.

Run by `overhead.py` in PyTorch's interpreter: `python plain_torch.py WORKER FRAMEWORK KERNEL PAIRS
BATCH_SIZE THREADS`; prints one JSON object. Both train in this process and take turns, step by
step, so that disturbances of the machine affect both.
"""

import json
import sys
import time
from dataclasses import replace

sys.path.insert(0, sys.argv[1])

import torch
from torch import nn

from xfbench.adapters.torch import train as adapter
from xfbench.worker.input import synthetic_batch
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workloads
from xfbench.workloads.initial import initial_parameters


def alexnet():
    """Two groups, LRN before pooling, and 1000 classes of 3x227x227 images."""
    return nn.Sequential(
        *(nn.Conv2d(3, 96, 11, 4), nn.ReLU(), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(96, 256, 5, padding=2, groups=2), nn.ReLU()),
        *(nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(256, 384, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(384, 384, 3, padding=1, groups=2), nn.ReLU()),
        *(nn.Conv2d(384, 256, 3, padding=1, groups=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Flatten(), nn.Linear(9216, 4096), nn.ReLU(), nn.Dropout()),
        *(nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 1000)),
    )


class PlainLoop:
    """The loop of any tutorial: forward, backward, an SGD step, the loss read each time.

    It starts from the same weights, since how many values are zero, or too small to be
    normal numbers, decides how fast they are multiplied.
    """

    def __init__(self, images, labels, initial):
        self.model, self.loss = alexnet().train(), nn.CrossEntropyLoss()
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), initial.values(), strict=True):
                parameter.copy_(torch.from_numpy(value))
        self.images, self.labels = torch.from_numpy(images), torch.from_numpy(labels)
        weights = [p for name, p in self.model.named_parameters() if name.endswith("weight")]
        biases = [p for name, p in self.model.named_parameters() if name.endswith("bias")]
        self.optimizer = torch.optim.SGD(
            [
                {"params": weights, "weight_decay": 5e-4},
                {"params": biases, "lr": 0.02, "weight_decay": 0.0},
            ],
            lr=0.01,
            momentum=0.9,
            fused=True,
        )

    def step(self):
        """Seconds of one step."""
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.loss(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        loss.item()
        return time.perf_counter() - start


class AdapterLoop:
    """The same network and batch in the trainer that xfbench's loop drives."""

    def __init__(self, workload, options, images, labels, initial):
        # The plain loop's rate stays as it is; following a policy is no part of the harness.
        solver = replace(workload.solver, policy="fixed")
        self.trainer = adapter.build(workload.network, solver, options, Group())
        self.trainer.assign(initial)
        self.batch = self.trainer.load(images, labels)

    def step(self):
        """Seconds of one step, with the calls that the loop makes."""
        start = time.perf_counter()
        self.trainer.step(self.batch)
        self.trainer.wait_for_loss()
        return time.perf_counter() - start


def main(kernel, pairs, batch_size, threads):
    """Measure so many pairs of steps, after three that warm up, and print their seconds."""
    workload, options = workloads()["alexnet"], Options(kernel, threads)
    images, labels = synthetic_batch(workload, batch_size, 0)
    initial = initial_parameters(workload.network, 0)
    adapter_loop = AdapterLoop(workload, options, images, labels, initial)
    plain_loop = PlainLoop(images, labels, initial)
    step_times = {"plain": [], "xfbench": []}
    for pair in range(pairs + 3):
        loops = [("plain", plain_loop), ("xfbench", adapter_loop)]
        for loop_name, timed_loop in loops if pair % 2 else loops[::-1]:
            seconds = timed_loop.step()
            if pair >= 3:
                step_times[loop_name].append(seconds)
    versions = {"torch": torch.__version__, "python": sys.version.split()[0]}
    print(json.dumps({**step_times, "versions": versions}))


if __name__ == "__main__":
    main(sys.argv[3], *map(int, sys.argv[4:]))
