"""The trainer of the oracle: NumPy in one process, written for clarity, not speed.

`windows` and `operators` define the layers, and `graph` connects them. This module keeps the state
between steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from xfbench.adapters.reference import graph
from xfbench.adapters.reference.precision import PRECISIONS
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

LARS = True  # `xfbench.worker.__main__` refuses LARS for an adapter without this

_CHECKPOINT = "checkpoint.npz"


def build(network: xl.Network, solver: Solver, options: Options, group: Group) -> ReferenceTrainer:
    """Return a trainer for `network`. The only kernel is "numpy".

    With the strategy "parts", this process does the work of `group.size` ranks. It splits each
    batch into one part per rank.
    """
    return ReferenceTrainer(network, solver, options, group.size)


class ReferenceTrainer:
    """See `xfbench.worker.protocol.Trainer`."""

    def __init__(self, network: xl.Network, solver: Solver, options: Options, parts: int) -> None:
        self.network, self.solver, self.options, self.parts = network, solver, options, parts
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
        loss, gradients, averages = self._loss_gradients_and_averages(batch)
        graph.update(
            self.network,
            self.solver,
            self.iteration,
            parameters=self.values,
            velocities=self.velocities,
            gradients=gradients,
        )
        self.values.update(averages)
        self.last_loss = loss
        self.iteration += 1

    def wait_for_loss(self) -> float:
        return self.last_loss

    def test_loss(self, batch: tuple[np.ndarray, np.ndarray]) -> float:
        return self._forward(batch, training=False).loss

    def test_scores(self, batch: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return self._forward(batch, training=False).outputs[self.network.scores_layer]

    def layer_outputs(self, batch: tuple[np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
        return self._forward(batch, training=True).outputs

    def gradients(self, batch: tuple[np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
        return self._loss_gradients_and_averages(batch)[1]

    def parameters(self) -> dict[str, np.ndarray]:
        return {name: value.copy() for name, value in self.values.items()}

    def assign(self, parameters: dict[str, np.ndarray]) -> None:
        for name, value in self.values.items():
            value[...] = parameters[name]

    def save(self, folder: Path) -> None:
        state = {"iteration": np.asarray(self.iteration), **self._state()}
        np.savez(str(folder / _CHECKPOINT), **state)  # type: ignore[arg-type]

    def restore(self, folder: Path) -> None:
        with np.load(str(folder / _CHECKPOINT), allow_pickle=False) as archive:
            for name, array in self._state().items():
                array[...] = archive[name]
            self.iteration = int(archive["iteration"])

    def _state(self) -> dict[str, np.ndarray]:
        array_groups = {"value": self.values, "velocity": self.velocities}
        return {
            f"{kind}/{name}": a
            for kind, arrays in array_groups.items()
            for name, a in arrays.items()
        }

    def runtime_info(self) -> dict[str, Any]:
        return {
            "framework_version": np.__version__,
            "layout": "NCHW",
            "kernel": "numpy",
            "kernel_evidence": [f"every operator is written in NumPy {np.__version__}"],
        }

    def _loss_gradients_and_averages(
        self, batch: tuple[np.ndarray, np.ndarray]
    ) -> tuple[float, graph.Arrays, graph.Arrays]:
        """Return (loss, gradients, running averages) of one step, without the update.

        The batch is split into `self.parts` parts. Loss and gradients are means over the parts. The
        running averages are those of the first part.
        """
        passes = []
        for images, labels in zip(*(np.split(array, self.parts) for array in batch)):
            done = self._forward((images, labels), training=True)
            passes.append((done, graph.backward(self.network, self.values, done).parameters))
        if self.parts == 1:
            return done.loss, passes[0][1], done.averages
        gradients = {
            name: sum(part[name] for _, part in passes) / self.dtype.type(self.parts)
            for name in passes[0][1]
        }
        loss = sum(done.loss for done, _ in passes) / self.parts
        return loss, gradients, passes[0][0].averages

    def _forward(self, batch: tuple[np.ndarray, np.ndarray], *, training: bool) -> graph.Forward:
        masks = self._draw_dropout_masks(len(batch[1])) if training else None
        return graph.forward(
            self.network,
            self.values,
            *batch,
            training=training,
            masks=masks,
            precision=self.precision,
        )

    def _draw_dropout_masks(self, batch_size: int) -> dict[str, np.ndarray]:
        """Return a new mask for each dropout layer, by layer name.

        If the option `dropout` is "identity", return no mask.
        """
        if self.options.dropout == "identity":
            return {}
        return {
            layer.name: self._draw_dropout_mask(
                layer, (batch_size, *self.network.shapes[layer.name])
            )
            for layer in self.network.layers
            if isinstance(layer, xl.Dropout)
        }

    def _draw_dropout_mask(self, layer: xl.Dropout, shape: xl.Shape) -> np.ndarray:
        keep_mask = self.random.random_sample(shape) >= layer.ratio
        return keep_mask.astype(self.dtype) / (1 - layer.ratio)
