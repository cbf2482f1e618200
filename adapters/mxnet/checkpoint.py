"""Checkpoints of MXNet: one parameter file with weights, and one with velocities.

Gluon's own method saves the states of an optimiser as a pickle, which can execute code when it is
loaded. A parameter file cannot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mxnet as mx

_WEIGHTS, _VELOCITIES = "weights.params", "velocities.params"
_COUNT = "iteration"


def save(trainer: Any, folder: Path) -> None:
    """Write a checkpoint of `trainer` to `folder`."""
    if trainer.averages:
        trainer.averages.write_to_graph()
    trainer.tensors.save(str(folder / _WEIGHTS))
    [updater] = trainer.trainer._updaters
    velocities = {str(index): velocity for index, velocity in updater.states.items()}
    count = mx.nd.array([trainer.iteration], dtype="int64")
    mx.nd.save(str(folder / _VELOCITIES), {_COUNT: count, **velocities})


def restore(trainer: Any, folder: Path) -> None:
    """Restore `trainer` from the checkpoint in `folder`."""
    trainer.tensors.load(str(folder / _WEIGHTS), ctx=trainer.place)
    if trainer.averages:
        trainer.averages.read_from_graph()
    velocities = mx.nd.load(str(folder / _VELOCITIES))
    trainer.iteration = int(velocities.pop(_COUNT).asscalar())
    [updater] = trainer.trainer._updaters
    updater.states = {int(key): velocities[key].as_in_context(trainer.place) for key in velocities}
    updater.states_synced = dict.fromkeys(updater.states, True)
