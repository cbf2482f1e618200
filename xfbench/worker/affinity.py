"""Lays ranks and their threads out over a node's cores, and puts this rank where it belongs.

Start commands each bind in their own way, or not at all: theirs is switched off, and this is
the one place that does it. What came of it is observed afterwards, of every thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Sequence

_CPUS = Path("/sys/devices/system/cpu")
Core = Sequence[int]  # the logical CPUs of one


def list_cores(allowed: set[int], folder: Path = _CPUS) -> list[Core]:
    """The cores that have one of the `allowed` CPUs: those of one NUMA node after another."""
    cpus_by_core: dict[tuple[int, int, int], list[int]] = {}
    for cpu in sorted(allowed):
        here = folder / f"cpu{cpu}"
        numa = next((int(path.name[4:]) for path in sorted(here.glob("node[0-9]*"))), 0)
        package, core = (
            _number(here / "topology" / name, default)
            for name, default in (("physical_package_id", 0), ("core_id", cpu))
        )
        cpus_by_core.setdefault((numa, package, core), []).append(cpu)
    return [cpus_by_core[key] for key in sorted(cpus_by_core)]


def assign_cpus(
    available: Sequence[Core], ranks: int, threads: int, reserved: int = 0
) -> list[list[int]] | None:
    """The CPUs of each of a node's `ranks`; None where they are more than the node has.

    Ranks are spread evenly over the cores, so that each has its share of the NUMA nodes, and
    each has `threads` neighbouring cores to itself, or where there are too few of them,
    hardware threads. The first `reserved` cores are left to the system.
    """
    free = list(available[reserved:])
    if ranks * threads <= len(free):
        slots = [[core[0]] for core in free]
    else:
        slots = [[cpu] for core in free for cpu in core]
    if ranks * threads > len(slots):
        return None
    starts = [rank * len(slots) // ranks for rank in range(ranks)]
    return [sorted(cpu for slot in slots[at : at + threads] for cpu in slot) for at in starts]


def pin_rank(rank: int, per_node: int, threads: int, reserved: int) -> list[int] | None:
    """Let this process, and all that it starts, run on its own CPUs alone; which ones.

    None, and nothing done, where the node has too few of them for its ranks.
    """
    laid_out = assign_cpus(list_cores(os.sched_getaffinity(0)), per_node, threads, reserved)
    if laid_out is None:
        return None
    rank_cpus = laid_out[rank % per_node]
    os.sched_setaffinity(0, rank_cpus)
    return rank_cpus


def _number(file: Path, default: int) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return default
