"""Assign cores to ranks and threads, and pin this rank to its cores.

Each launcher pins differently, or not at all. Therefore xfbench turns off the launcher's pinning
and pins only here. `observe.affinity` reports the CPUs on which the threads may then run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Sequence

_CPUS = Path("/sys/devices/system/cpu")
Core = Sequence[int]  # the logical CPUs of one core


def list_cores(allowed_cpus: set[int], folder: Path = _CPUS) -> list[Core]:
    """Return the cores that have a CPU in `allowed_cpus`, ordered by NUMA node.

    Each core lists only the CPUs that are in `allowed_cpus`.
    """
    cpus_by_core: dict[tuple[int, int, int], list[int]] = {}
    for cpu in sorted(allowed_cpus):
        here = folder / f"cpu{cpu}"
        numa = next((int(path.name[4:]) for path in sorted(here.glob("node[0-9]*"))), 0)
        package, core = (
            _read_int_or_default(here / "topology" / name, default)
            for name, default in (("physical_package_id", 0), ("core_id", cpu))
        )
        cpus_by_core.setdefault((numa, package, core), []).append(cpu)
    return [cpus_by_core[key] for key in sorted(cpus_by_core)]


def assign_cpus(
    available_cores: Sequence[Core], ranks: int, threads: int, reserved_cores: int = 0
) -> list[list[int]] | None:
    """Return the CPUs of each rank on a node. None if the node has too few CPUs.

    Ranks are spread evenly over the cores, so that each NUMA node gets its share.

    - If there are enough cores, each rank gets the first CPU of each of `threads` neighbouring
      cores.
    - Otherwise each rank gets `threads` neighbouring CPUs.

    Parameters:

    - `available_cores`: the cores of the node
    - `ranks`: number of ranks on the node
    - `threads`: number of CPUs for each rank
    - `reserved_cores`: number of cores, from the first on, that no rank gets
    """
    free = list(available_cores[reserved_cores:])
    if ranks * threads <= len(free):
        slots = [[core[0]] for core in free]
    else:
        slots = [[cpu] for core in free for cpu in core]
    if ranks * threads > len(slots):
        return None
    starts = [rank * len(slots) // ranks for rank in range(ranks)]
    return [sorted(cpu for slot in slots[at : at + threads] for cpu in slot) for at in starts]


def pin_rank(rank: int, ranks_per_node: int, threads: int, reserved_cores: int) -> list[int] | None:
    """Pin this process to the CPUs of `rank` and return these CPUs.

    Processes and threads that this process starts later inherit the pinning. If the node has too
    few CPUs for its ranks, change nothing and return None. `assign_cpus` explains the parameters.
    """
    laid_out = assign_cpus(
        list_cores(os.sched_getaffinity(0)), ranks_per_node, threads, reserved_cores
    )
    if laid_out is None:
        return None
    rank_cpus = laid_out[rank % ranks_per_node]
    os.sched_setaffinity(0, rank_cpus)
    return rank_cpus


def _read_int_or_default(file: Path, default: int) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return default
