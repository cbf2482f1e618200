"""Checks for options and numbers that make no sense, before anything is launched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import Any

import psutil

from xfbench.base import errors
from xfbench.host import machine, sites
from xfbench.model import settings
from xfbench.model.request import Cell
from xfbench.workloads import workloads

# A run with more threads than this for each core would only be killed by its time limit.
_MAX_THREADS_PER_CORE, _ALWAYS_ALLOWED_THREADS = 16, 1024
_VALUE_BYTES = 4  # of an image: float32
_SAME_AS_NO_VALUE: tuple[Any, ...] = (None, "", "default", "none")


def refuse_options_without_effect(values: Mapping[str, Any], cells: Collection[Cell]) -> None:
    """Raise UsageError if a given option changes no cell.

    - `values`: the given values of settings and options of a run, by name.
    """
    has_ranks = any(cell.ranks > 1 for cell in cells)
    uses_slurm = any(cell.launcher == "slurm" for cell in cells)
    has_data_set = any(cell.data_set for cell in cells)
    needs = {
        "strategy": (has_ranks, "--ranks 2 or more"),
        "strategy_options": (has_ranks, "--ranks 2 or more"),
        "ranks_per_node": (has_ranks or values.get("ranks_per_node") == 1, "--ranks 2 or more"),
        "partition": (uses_slurm or any(cell.site for cell in cells), "--launcher slurm"),
        "account": (uses_slurm, "--launcher slurm"),
        "job_time": (uses_slurm, "--launcher slurm"),
        "loader": (has_data_set, "a prepared data set: see `xfbench data list` and --data"),
        "loader_threads": (has_data_set, "a prepared data set: see `xfbench data list` and --data"),
    }
    for name, (has_effect, need) in needs.items():
        chosen = values.get(name)
        each_chosen = chosen if isinstance(chosen, list | tuple) else [chosen]
        if not has_effect and any(value not in _SAME_AS_NO_VALUE for value in each_chosen):
            option = settings.BY_NAME[name].option
            raise errors.UsageError(f"{option} has no effect here: it needs {need}")
    for site in {cell.site for cell in cells if cell.launcher == "slurm"}:
        sites.load_site(site).check_queue(values.get("partition") or "")
    if values.get("wait") is False and not uses_slurm:
        raise errors.UsageError("--no-wait has no effect here: it needs --launcher slurm")
    refuse_interpreters_without_effect(values.get("python") or (), cells)


def refuse_interpreters_without_effect(
    interpreters: Iterable[str], cells: Collection[Cell]
) -> None:
    """Raise UsageError if no cell uses the framework of an interpreter.

    - `interpreters`: the keys of `--python`, such as "torch" or "torch:NAME".
    """
    frameworks = sorted({cell.framework for cell in cells})
    for key in interpreters:
        if key.partition(":")[0] not in frameworks:
            raise errors.UsageError(
                f"--python {key}=... has no effect here: the frameworks are {', '.join(frameworks)}"
            )


def refuse_impossible_sizes(cells: Iterable[Cell]) -> None:
    """Raise UsageError if this machine cannot have the threads or the images of a cell.

    Only cells of launcher local are checked, because the others may run on other machines.
    """
    most_threads = max(_ALWAYS_ALLOWED_THREADS, _MAX_THREADS_PER_CORE * machine.usable_cores())
    memory_bytes = psutil.virtual_memory().total
    networks = workloads()
    for cell in cells:
        if cell.launcher != "local":
            continue
        if cell.threads * cell.ranks > most_threads:
            raise errors.UsageError(
                f"--threads {cell.threads}: {cell.threads * cell.ranks:,} threads are too many for "
                f"{machine.usable_cores()} cores: at most {most_threads:,}"
            )
        network = networks.get(cell.workload)
        image_bytes = _VALUE_BYTES * prod(network.network.input_shape) if network else 0
        if cell.global_batch_size * image_bytes > memory_bytes:
            raise errors.UsageError(
                f"--batch-size {cell.fixed_batch_size}: the images of a batch of "
                f"{cell.global_batch_size:,} need "
                f"{cell.global_batch_size * image_bytes / 1e9:,.0f} GB, but this machine has "
                f"{memory_bytes / 1e9:,.0f} GB of memory"
            )
