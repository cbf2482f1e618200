"""Training compiled by TorchInductor, and the evidence of it.

The compiler's cache stays where PyTorch puts it: a folder of the user below the system's folder
for temporary files. If others could write to that folder, a folder of this process is used.
The compiler is imported only when it is used, because that takes seconds.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

_GRADIENT = "CompiledFunctionBackward"
_cache_folders: list[Any] = []  # folders, removed when the process ends


def compile_training(graph: nn.Module) -> Any:
    """Return `graph` with its forward and backward pass compiled at the first call."""
    _choose_safe_cache_folder()
    # Earlier compilations would count towards this code's recompilation limit.
    torch._dynamo.reset()
    # TorchDynamo splits the graph at DDP's buckets.
    is_single = not isinstance(graph, nn.parallel.DistributedDataParallel)
    return torch.compile(graph, fullgraph=is_single, dynamic=False)


def is_compiled(gradient_function: str) -> bool:
    """Return whether the gradient function of the scores is that of a compiled function."""
    return gradient_function == _GRADIENT


def describe_compilation(gradient_function: str) -> list[str]:
    """Return the evidence of what PyTorch compiled in this process."""
    from torch._dynamo.utils import counters

    graphs, cache_counts = counters["stats"]["unique_graphs"], counters["inductor"]
    hits, misses = (cache_counts[f"fxgraph_cache_{outcome}"] for outcome in ("hit", "miss"))
    return [
        f"the gradient of the scores is {gradient_function}",
        f"graphs captured: {graphs}; compiled: {misses}, found compiled: {hits}",
    ]


def _choose_safe_cache_folder() -> None:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    folder_stat = Path(cache_dir()).lstat()  # a link counts itself, because its target may change
    if folder_stat.st_uid != os.getuid() or folder_stat.st_mode & 0o022:
        _cache_folders.append(tempfile.TemporaryDirectory(prefix="torchinductor-"))
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = _cache_folders[-1].name
