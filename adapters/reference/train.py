"""The oracle as a framework: NumPy, one process, written for clarity before speed.

Nothing is translated here: `windows` and `operators` define the layers, `graph` joins
them, and this module keeps what lasts from step to step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xfbench.adapters.reference import graph
from xfbench.adapters.reference.precision import PRECISIONS
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

LARS = True  # see `xfbench.worker.__main__`: other adapters refuse a solver that asks for it


def build(network: xl.Network, solver: Solver, options: Options, group: Group) -> ReferenceTrainer:
    """A trainer for `network`; the one kernel is "numpy"."""
    return ReferenceTrainer(network, solver, options)


class ReferenceTrainer:
    """See `xfbench.worker.protocol.Trainer`."""

    def __init__(self, network: xl.Network, solver: Solver, options: Options) -> None:
        self.network, self.solver, self.options = network, solver, options
        self.precision = PRECISIONS[options.precision]
        self.dtype = np.dtype(self.precision.dtype)
        self.random = np.random.RandomState(options.seed)
        self.values = {
            name: np.zeros(parameter.shape, self.dtype)
            for name, parameter in network.parameters.items()
        }
        self.velocities = {
            name: np.zeros(parameter.shape, self.dtype)
            for name, parameter in network.parameters.items()
            if parameter.learned
        }
        self.iteration = 0
        self.last_loss = 0.0

    def load(self, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return images.astype(self.dtype), labels

    def step(self, batch: tuple[np.ndarray, np.ndarray]) -> None:
        done = self._forward(batch, training=True)
        gradients = graph.backward(self.network, self.values, done).parameters
        graph.update(
            self.network,
            self.solver,
            self.iteration,
            parameters=self.values,
            velocities=self.velocities,
            gradients=gradients,
        )
        self.values.update(done.averages)
        self.last_loss = done.loss
        self.iteration += 1

    def wait(self) -> float:
        return self.last_loss

    def loss(self, batch: tuple[np.ndarray, np.ndarray]) -> float:
        return self._forward(batch, training=False).loss

    def scores(self, batch: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return self._forward(batch, training=False).outputs[self.network.scores]

    def outputs(self, batch: tuple[np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
        return self._forward(batch, training=True).outputs

    def gradients(self, batch: tuple[np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
        done = self._forward(batch, training=True)
        return graph.backward(self.network, self.values, done).parameters

    def parameters(self) -> dict[str, np.ndarray]:
        return {name: value.copy() for name, value in self.values.items()}

    def assign(self, parameters: dict[str, np.ndarray]) -> None:
        for name, value in self.values.items():
            value[...] = parameters[name]

    def observed(self) -> dict[str, Any]:
        return {
            "framework_version": np.__version__,
            "layout": "NCHW",
            "kernel": "numpy",
            "kernel_evidence": [f"every operator is written in NumPy {np.__version__}"],
        }

    def _forward(self, batch: tuple[np.ndarray, np.ndarray], *, training: bool) -> graph.Forward:
        masks = self._masks(len(batch[1])) if training else None
        return graph.forward(
            self.network,
            self.values,
            *batch,
            training=training,
            masks=masks,
            precision=self.precision,
        )

    def _masks(self, batch_size: int) -> dict[str, np.ndarray]:
        """Fresh masks for one step; none where dropout is the identity."""
        if self.options.dropout == "identity":
            return {}
        return {
            layer.name: self._mask(layer, (batch_size, *self.network.shapes[layer.name]))
            for layer in self.network.layers
            if isinstance(layer, xl.Dropout)
        }

    def _mask(self, layer: xl.Dropout, shape: xl.Shape) -> np.ndarray:
        kept = self.random.random_sample(shape) >= layer.ratio
        return kept.astype(self.dtype) / (1 - layer.ratio)
