"""Rank detection by PyTorch itself, without xfbench's help."""

from __future__ import annotations

import torch.distributed as dist


def join_and_count_ranks() -> int:
    """Join the group of ranks that PyTorch finds, and return its number of ranks.

    Raises PyTorch's error if PyTorch finds no group.
    """
    dist.init_process_group("mpi" if dist.is_mpi_available() else "gloo")
    count = int(dist.get_world_size())
    dist.destroy_process_group()
    return count
