"""Checkpoints of PyTorch: state dictionaries, written by `torch.save`.

They are loaded with `weights_only=True`, so a checkpoint cannot execute code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

_FILE = "checkpoint.pt"


def save(trainer: Any, folder: Path) -> None:
    """Write a checkpoint of `trainer` to `folder`."""
    state = {
        "model": trainer.graph.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "iteration": trainer.iteration,
        "rate": trainer.rate,
    }
    torch.save(state, folder / _FILE)


def restore(trainer: Any, folder: Path) -> None:
    """Restore `trainer` from the checkpoint in `folder`."""
    state = torch.load(folder / _FILE, map_location=trainer.device, weights_only=True)
    trainer.load_network_state(state["model"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    trainer.iteration, trainer.rate = state["iteration"], state["rate"]
