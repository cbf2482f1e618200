"""Training compiled by TorchInductor, and the evidence that it is compiled.

By default, TorchInductor caches compiled code in the user's subfolder of the system's temporary
folder. If another user owns the subfolder or could write to it, this module creates a temporary
folder for the process. The compiler is imported only when it is used, because the import takes
seconds.

TorchInductor compiles with as many threads or processes as the rank has CPUs. The processes compile
GPU kernels, and would stay for the rest of the training.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

_GRADIENT = "CompiledFunctionBackward"
_cache_folders: list[Any] = []  # temporary folders, deleted when the process ends


def compile_training(graph: nn.Module, with_cuda_graphs: bool = False) -> Any:
    """Return `graph` wrapped so that PyTorch compiles its two passes at the first call.

    If `with_cuda_graphs` is true, the second call records the kernels of each pass as a CUDA graph.
    Later calls launch the two graphs. PyTorch copies the batch to memory of the graph, and gives
    the graph new random numbers for dropout in each call. A result is valid until the next call.
    """
    _replace_unsafe_cache_folder()
    # Earlier compilations would count towards the recompilation limit of `graph`.
    torch._dynamo.reset()
    # With DDP, TorchDynamo splits the graph at the buckets, so `fullgraph` must be off.
    is_single = not isinstance(graph, nn.parallel.DistributedDataParallel)
    mode = "reduce-overhead" if with_cuda_graphs else None
    return torch.compile(graph, fullgraph=is_single, dynamic=False, mode=mode)


def end_compile_processes() -> None:
    """End the processes that compile GPU kernels. A later compilation starts new ones.

    Each of them has imported PyTorch. The call waits until they have ended, so that their memory
    and CPU time count for this process.
    """
    compiler = sys.modules.get("torch._inductor.async_compile")
    if compiler is not None:
        compiler.shutdown_compile_workers()


def is_compiled(gradient_function: str) -> bool:
    """Return whether a compiled function computed the class scores.

    `gradient_function` is the class name of the `grad_fn` of the class scores.
    """
    return gradient_function == _GRADIENT


def describe_compilation(gradient_function: str) -> list[str]:
    """Return lines that show what PyTorch compiled in this process.

    `gradient_function` is the class name of the `grad_fn` of the class scores.
    """
    from torch._dynamo.utils import counters

    graphs, cache_counts = counters["stats"]["unique_graphs"], counters["inductor"]
    hits, misses = (cache_counts[f"fxgraph_cache_{outcome}"] for outcome in ("hit", "miss"))
    return [
        f"the gradient of the scores is {gradient_function}",
        f"graphs captured: {graphs}; compiled: {misses}, found compiled: {hits}",
    ]


def _replace_unsafe_cache_folder() -> None:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    folder_stat = Path(cache_dir()).lstat()  # not `stat`: the target of a link may change
    if folder_stat.st_uid != os.getuid() or folder_stat.st_mode & 0o022:
        _cache_folders.append(tempfile.TemporaryDirectory(prefix="torchinductor-"))
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = _cache_folders[-1].name
