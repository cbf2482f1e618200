"""How many ranks PyTorch finds by itself: told nothing but what their start command tells."""

from __future__ import annotations

import torch.distributed as dist


def ranks() -> int:
    """As many as it joins. Raises what it raises where it finds none."""
    dist.init_process_group("mpi" if dist.is_mpi_available() else "gloo")
    count = int(dist.get_world_size())
    dist.destroy_process_group()
    return count
