"""Checks whether ranks can be pinned to sockets or NUMA nodes, before anything is launched.

Only the layout of this host is known here. On other nodes, each rank checks its own node and ends
with the reason if the pinning cannot be done (`xfbench.worker.affinity`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from xfbench.base import errors
from xfbench.host import sites
from xfbench.model.request import Cell
from xfbench.worker import affinity


def refuse_misfits(cells: Iterable[Cell]) -> None:
    """Raise UsageError if `misfit_reason` has a reason for one of the cells."""
    for cell in cells:
        if reason := misfit_reason(cell):
            raise errors.UsageError(reason)


def misfit_reason(cell: Cell) -> str | None:
    """Return why this host cannot pin the cell's ranks to sockets or NUMA nodes.

    Return None if it can, if the cell has no such pinning, or if its ranks run on other nodes.
    """
    try:
        _plan_cpus_here(cell)
    except affinity.PinningError as error:
        return f"--pinning {cell.affinity}: {error}"
    return None


def crowding_warning(cell: Cell) -> str | None:
    """Return a warning if ranks of the cell share a socket or NUMA node that is too small for them.

    Return None if it is large enough, or if `misfit_reason` has nothing to check. Raises
    PinningError if the ranks cannot be pinned.
    """
    for cpus, ranks in Counter(map(tuple, _plan_cpus_here(cell))).items():
        if ranks * cell.threads > len(cpus):
            return (
                f"{ranks * cell.threads} threads of {ranks} ranks on the {len(cpus)} CPUs of a "
                f"{affinity.GROUP_NAMES[cell.affinity]}: oversubscribed"
            )
    return None


def even_share_of_group(
    pinning: str,
    ranks: int,
    reserved_cores: int,
    allowed_cpus: set[int],
    folder: Path = affinity.CPU_FOLDER,
) -> int:
    """Return one rank's even share of the cores of its socket or NUMA node. At least 1.

    - `pinning`: "sockets" or "numa".
    - `ranks`: number of ranks on the node.
    - `folder`: the system's folder of CPUs.

    Raises PinningError if the system does not say what the CPUs of a socket or NUMA node are.
    """
    groups = affinity.group_cpus(pinning, allowed_cpus, reserved_cores, folder)
    core_counts = sorted(len(affinity.list_cores({*group}, folder)) for group in groups)
    used_groups = min(ranks, len(groups))
    ranks_of_group = -(-ranks // used_groups)
    return max(1, core_counts[-used_groups] // ranks_of_group)


def _plan_cpus_here(cell: Cell) -> list[list[int]]:
    """Return the CPUs of each rank on this host.

    The list is empty if the cell is not pinned to sockets or NUMA nodes, or runs on other nodes.
    Raises PinningError if the ranks cannot be pinned.
    """
    if cell.affinity not in affinity.GROUP_NAMES or not _runs_on_this_host(cell):
        return []
    reserved = sites.load_site(cell.site).reserved_cores_here()
    allowed = os.sched_getaffinity(0)
    return affinity.plan_cpus(cell.affinity, cell.ranks, cell.threads, reserved, allowed) or []


def _runs_on_this_host(cell: Cell) -> bool:
    """Return whether all ranks certainly run on this host."""
    if cell.launcher != "mpi" or cell.nodes > 1:
        return cell.launcher == "local"
    site = sites.load_site(cell.site)
    may_choose_hosts = site.hosts or site.start or site.start_options
    return not may_choose_hosts and "SLURM_JOB_ID" not in os.environ
