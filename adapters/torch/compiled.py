"""Training compiled by TorchInductor, and how it is known that it was.

What it compiles it keeps, as PyTorch does it, in a folder of the user's own below the system's
folder for temporary files; where others could have written to that, in one of this process alone.
What compiles is loaded when it is asked for: it takes seconds.
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
    """`graph`, its forward and backward pass compiled when it is first called, each as a whole."""
    _secure_cache_folder()
    # Functions compiled before would count among the few that one piece of code may become.
    torch._dynamo.reset()
    is_single = not isinstance(
        graph, nn.parallel.DistributedDataParallel
    )  # which is cut in buckets
    return torch.compile(graph, fullgraph=is_single, dynamic=False)


def is_compiled(differentiated: str) -> bool:
    """Whether scores whose gradient is computed by this came from a compiled function."""
    return differentiated == _GRADIENT


def evidence(differentiated: str) -> list[str]:
    """What PyTorch says of what it compiled in this process."""
    from torch._dynamo.utils import counters

    graphs, cache_counts = counters["stats"]["unique_graphs"], counters["inductor"]
    hits, misses = (cache_counts[f"fxgraph_cache_{outcome}"] for outcome in ("hit", "miss"))
    return [
        f"the gradient of the scores is {differentiated}",
        f"graphs captured: {graphs}; compiled: {misses}, found compiled: {hits}",
    ]


def _secure_cache_folder() -> None:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    folder_stat = Path(
        cache_dir()
    ).lstat()  # of a link, whose folder may become another, it is the link's
    if folder_stat.st_uid != os.getuid() or folder_stat.st_mode & 0o022:
        _cache_folders.append(tempfile.TemporaryDirectory(prefix="torchinductor-"))
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = _cache_folders[-1].name
