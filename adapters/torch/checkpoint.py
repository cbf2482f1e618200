"""Checkpoints as PyTorch has them: `torch.save` of state_dicts, read as weights and no code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

_FILE = "checkpoint.pt"


def save(trainer: Any, folder: Path) -> None:
    """Write what the trainer goes on from."""
    state = {
        "model": trainer.graph.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "iteration": trainer.iteration,
        "rate": trainer.rate,
    }
    torch.save(state, folder / _FILE)


def restore(trainer: Any, folder: Path) -> None:
    """Let the trainer go on from there."""
    state = torch.load(folder / _FILE, map_location=trainer.device, weights_only=True)
    trainer.take(state["model"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    trainer.iteration, trainer.rate = state["iteration"], state["rate"]
