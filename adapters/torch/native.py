"""The number of ranks that PyTorch determines by itself from its start command."""

from __future__ import annotations

import torch.distributed as dist


def detect_rank_count() -> int:
    """Return the number of ranks that it joins. Raises the framework's error if it finds none."""
    dist.init_process_group("mpi" if dist.is_mpi_available() else "gloo")
    count = int(dist.get_world_size())
    dist.destroy_process_group()
    return count
