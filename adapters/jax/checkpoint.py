"""Checkpoints of JAX: NumPy's .npz files, because JAX has no checkpoint format of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

_FILE = "checkpoint.npz"


def save(trainer: Any, folder: Path) -> None:
    """Write a checkpoint of `trainer` to `folder`."""
    state = {
        f"{kind}:{name}": value
        for kind, of in (("value", trainer.values), ("velocity", trainer.velocities))
        for name, value in of.items()
    }
    jnp.savez(folder / _FILE, iteration=trainer.iteration, **state)


def restore(trainer: Any, folder: Path) -> None:
    """Restore `trainer` from the checkpoint in `folder`."""
    with np.load(folder / _FILE, allow_pickle=False) as state:
        trainer.iteration = int(state["iteration"])
        for kind, of in (("value", trainer.values), ("velocity", trainer.velocities)):
            for name in of:
                of[name] = jnp.array(state[f"{kind}:{name}"], trainer.dtype, copy=True)
