"""The ranks of PyTorch: their rendezvous, and DistributedDataParallel (DDP)."""

from __future__ import annotations

import atexit
from typing import Any

import torch
from torch import distributed, nn

from xfbench.worker.distributed import exchange_rank_addresses
from xfbench.worker.protocol import Group


def connect_ranks(group: Group, device: str) -> None:
    """Connect to the other ranks, once in a process. On CUDA each rank has its own device."""
    if device == "cuda":
        torch.cuda.set_device(group.rank % torch.cuda.device_count())
    if group.strategy != "ddp" or distributed.is_initialized():
        return
    distributed.init_process_group(
        group.options["backend"],
        init_method=f"tcp://{exchange_rank_addresses(group)[0]}",
        rank=group.rank,
        world_size=group.size,
    )
    # Its threads may hold tensors, which must be freed before the interpreter ends.
    atexit.register(distributed.destroy_process_group)


def wrap_in_ddp(graph: nn.Module, group: Group) -> nn.Module:
    """Return the graph under DDP, which averages gradients in buckets.

    If the option `bucket_size` is "auto", DDP uses its default bucket size.
    """
    size = group.options["bucket_size"]
    parallel = nn.parallel.DistributedDataParallel(
        graph,
        # Every rank keeps the running averages of its own part, as in the other frameworks.
        forward_sync_buffers=False,
        bucket_cap_mb=None if size == "auto" else size / 2**20,
    )
    if group.options["overlap"] == "off":
        # DDP checks a hook's annotations and rejects text.
        parallel.register_comm_hook(
            [],
            lambda waiting, bucket: _delay_all_reduce(waiting, bucket),  # noqa: PLW0108
        )
    return parallel


def _delay_all_reduce(waiting: list[Any], bucket: Any) -> Any:
    """Delay the all-reduce until the last bucket, with the first layers' gradients, is full."""
    device = bucket.buffer().device
    future: Any = torch.futures.Future(devices=[device] if device.type == "cuda" else None)
    waiting.append((bucket.buffer(), future))
    if bucket.is_last():
        for gradients, done in waiting:
            distributed.all_reduce(gradients.div_(distributed.get_world_size()))
            done.set_result(gradients)
        waiting.clear()
    return future
