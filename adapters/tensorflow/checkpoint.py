"""Checkpoints of TensorFlow, written by `tf.train.Checkpoint`.

A checkpoint has the variables, the velocities and the number of updates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

_PREFIX = "checkpoint"


def save(trainer: Any, folder: Path) -> None:
    """Write a checkpoint of `trainer` to `folder`."""
    _build_checkpoint(trainer).write(str(folder / _PREFIX))


def restore(trainer: Any, folder: Path) -> None:
    """Restore `trainer` from the checkpoint in `folder`."""
    state = _build_checkpoint(trainer)
    state.read(str(folder / _PREFIX)).assert_consumed()
    trainer.iteration = int(state.step)


def _build_checkpoint(trainer: Any) -> Any:
    return tf.train.Checkpoint(
        variables=trainer.variables,
        velocities=trainer.velocities,
        step=tf.Variable(trainer.iteration, dtype=tf.int64),
    )
