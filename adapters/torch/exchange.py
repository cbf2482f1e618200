"""The connection between PyTorch's ranks, and DistributedDataParallel (DDP)."""

from __future__ import annotations

import atexit
import inspect
from typing import Any

import torch
from torch import distributed, nn

from xfbench.worker import gpus
from xfbench.worker.distributed import exchange_rank_addresses
from xfbench.worker.protocol import Group


def require_precision(precision: str) -> None:
    """Raise Unsupported if the selected GPU does not compute in `precision`."""
    capability, name = torch.cuda.get_device_capability(), torch.cuda.get_device_name()
    gpus.require_precision(precision, capability, name)


def select_gpu_and_connect_ddp_ranks(group: Group, device: str) -> None:
    """Select the GPU of this rank, and connect the ranks if the strategy is "ddp".

    If `device` is "cuda", the GPU has the index rank modulo the number of GPUs. A process connects
    to the other ranks only once.
    """
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
    # The group's threads may hold tensors, which must be freed before the interpreter ends.
    atexit.register(distributed.destroy_process_group)


class MpiExchange:
    """The strategy "mpi": gradients are averaged by MPI, which reads memory of the host.

    Gradients on a GPU are flattened there, and copied in one piece to pinned memory and back.
    """

    def __init__(self, ranks: Any) -> None:
        self.ranks = ranks
        self.buffer: Any = None

    def average(self, gradients: list[torch.Tensor]) -> None:
        """Replace each gradient by its mean over the ranks."""
        if gradients[0].device.type == "cuda":
            self.average_flattened(gradients)
            return
        # A convolution's gradient may be channels last, like its weight.
        contiguous = [gradient.contiguous() for gradient in gradients]
        self.ranks.average_in_place([gradient.numpy() for gradient in contiguous])
        for gradient, mean in zip(gradients, contiguous):
            if gradient is not mean:
                gradient.copy_(mean)

    def average_flattened(self, gradients: list[torch.Tensor]) -> None:
        """Replace each gradient by its mean over the ranks, with one copy in each direction."""
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        if self.buffer is None:
            self.buffer = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=flat.is_cuda)
        self.buffer.copy_(flat)
        self.ranks.average_in_place([self.buffer.numpy()])
        flat.copy_(self.buffer, non_blocking=True)
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, mean in zip(gradients, flat.split(sizes)):
            gradient.copy_(mean.view(gradient.shape))


def wrap_in_ddp(graph: nn.Module, group: Group) -> nn.Module:
    """Return `graph` wrapped in DDP, which averages gradients bucket by bucket.

    Options of `group`:

    - `bucket_size`: size of a bucket in bytes, or "auto" for DDP's default.
    - `overlap`: "off" delays all communication until the last bucket is full.
    """
    size = group.options["bucket_size"]
    parallel = nn.parallel.DistributedDataParallel(
        graph,
        # Every rank keeps the running averages of its own shard, as in the other frameworks.
        **{_find_buffer_option(): False},
        bucket_cap_mb=None if size == "auto" else size / 2**20,
    )
    if group.options["overlap"] == "off":
        # A lambda has no annotations. DDP rejects a hook whose annotations are strings.
        parallel.register_comm_hook(
            [],
            lambda waiting, bucket: _delay_all_reduce(waiting, bucket),  # noqa: PLW0108
        )
    return parallel


def _find_buffer_option() -> str:
    """Return the name of DDP's option for the averages of batch normalisation.

    Old versions of PyTorch have another one.
    """
    names = inspect.signature(nn.parallel.DistributedDataParallel).parameters
    return "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"


def _delay_all_reduce(waiting: list[Any], bucket: Any) -> Any:
    """Delay the averaging over the ranks until the last bucket is full: a hook for DDP.

    - `waiting`: collects (buffer, future) of each full bucket.
    - `bucket`: the bucket that is now full.

    Return the future of `bucket`. It gets the averaged gradients when the last bucket is full. The
    last bucket has the gradients of the first layers.
    """
    device = bucket.buffer().device
    future: Any = torch.futures.Future(devices=[device] if device.type == "cuda" else None)
    waiting.append((bucket.buffer(), future))
    if bucket.is_last():
        for gradients, done in waiting:
            distributed.all_reduce(gradients.div_(distributed.get_world_size()))
            done.set_result(gradients)
        waiting.clear()
    return future
