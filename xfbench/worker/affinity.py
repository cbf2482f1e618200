"""Assign CPUs to ranks and threads, and pin this rank to its CPUs.

Each launcher pins differently, or not at all. Therefore xfbench turns off the launcher's pinning
and pins only here. `observe.affinity` reports the CPUs on which the threads may then run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Sequence, Set

CPU_FOLDER = Path("/sys/devices/system/cpu")
# What a group of CPUs is called, by the pinning that gives each rank a group.
GROUP_NAMES = {"sockets": "socket", "numa": "NUMA node"}
Core = Sequence[int]  # the logical CPUs of one core


class PinningError(Exception):
    """The CPUs of this node cannot be given to the ranks as requested."""


def list_cores(allowed_cpus: set[int], folder: Path = CPU_FOLDER) -> list[Core]:
    """Return the cores that have a CPU in `allowed_cpus`, ordered by NUMA node.

    Each core lists only the CPUs that are in `allowed_cpus`.
    """
    cpus_by_core: dict[tuple[int, int, int], list[int]] = {}
    for cpu in sorted(allowed_cpus):
        numa, package = _numa_node(cpu, folder) or 0, _socket(cpu, folder) or 0
        cpus_by_core.setdefault((numa, package, find_core(cpu, folder)), []).append(cpu)
    return [cpus_by_core[key] for key in sorted(cpus_by_core)]


def find_core(cpu: int, folder: Path = CPU_FOLDER) -> int:
    """Return the number of the first hardware thread of the core to which `cpu` belongs.

    The system's `core_id` cannot tell cores apart, because dies of a socket may count from 0 each.
    """
    try:
        siblings = (folder / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text(
            errors="replace"
        )
        return int(siblings.replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return cpu


def group_cpus(
    pinning: str, allowed_cpus: set[int], reserved_cores: int = 0, folder: Path = CPU_FOLDER
) -> list[list[int]]:
    """Return the allowed CPUs of each socket or NUMA node, in the order of their numbers.

    Sockets and NUMA nodes without such CPUs are left out.

    - `pinning`: "sockets" or "numa".
    - `reserved_cores`: number of cores, from the first on, that no rank gets.

    Raises PinningError if all cores are reserved, or if the system does not say to which socket or
    NUMA node a CPU belongs.
    """
    find_group = _socket if pinning == "sockets" else _numa_node
    groups: dict[int, list[int]] = {}
    for core in list_cores(allowed_cpus, folder)[reserved_cores:]:
        for cpu in core:
            number = find_group(cpu, folder)
            if number is None:
                raise PinningError(
                    f"the system does not say to which {GROUP_NAMES[pinning]} CPU {cpu} belongs "
                    f"({folder}): use --pinning cores or none"
                )
            groups.setdefault(number, []).append(cpu)
    if not groups:
        raise PinningError(f"no CPU is free: the site reserves {reserved_cores} cores")
    return [sorted(groups[number]) for number in sorted(groups)]


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


def assign_groups(
    pinning: str, groups: Sequence[Sequence[int]], ranks: int, threads: int
) -> list[list[int]]:
    """Return the CPUs of each rank on a node: all CPUs of one socket or NUMA node.

    Only the groups with at least `threads` CPUs are used, and the ranks are spread evenly over
    them. A single rank gets the first of them. Ranks that get the same group share its CPUs.

    - `pinning`: "sockets" or "numa".
    - `groups`: the CPUs of each socket or NUMA node, as from `group_cpus`.
    - `ranks`: number of ranks on the node.
    - `threads`: number of threads of each rank.

    Raises PinningError if some groups are too small for a rank, and the others are fewer than the
    ranks.
    """
    usable = [group for group in groups if len(group) >= threads]
    needed = min(ranks, len(groups))
    if len(usable) < needed:
        group_name, most = GROUP_NAMES[pinning], max_threads(groups, ranks)
        need = f"need {needed} {group_name}s" if needed > 1 else f"need a {group_name}"
        sizes = ", ".join(str(len(group)) for group in groups)
        have = f"{group_name}s have" if len(groups) > 1 else f"only {group_name} has"
        raise PinningError(
            f"{f'{ranks} ranks of ' if ranks > 1 else ''}{threads} threads {need} with {threads} "
            f"allowed CPUs{' each' if needed > 1 else ''}; here, the {have} {sizes}: "
            f"use --threads {most}{' or fewer' if most > 1 else ''}"
        )
    return [list(usable[rank * len(usable) // ranks]) for rank in range(ranks)]


def max_threads(groups: Sequence[Sequence[int]], ranks: int) -> int:
    """Return the largest number of threads per rank that `assign_groups` accepts."""
    sizes = sorted((len(group) for group in groups), reverse=True)
    return sizes[min(ranks, len(sizes)) - 1]


def plan_cpus(
    pinning: str,
    ranks: int,
    threads: int,
    reserved_cores: int,
    allowed_cpus: set[int],
    folder: Path = CPU_FOLDER,
) -> list[list[int]] | None:
    """Return the CPUs of each rank on a node.

    - `pinning`: "cores", "sockets" or "numa".
    - `ranks`: number of ranks on the node.
    - `threads`: number of threads of each rank.
    - `allowed_cpus`: the CPUs that the ranks may use.

    If the pinning is "cores" and the node has too few CPUs, return None. If the pinning is
    "sockets" or "numa" and cannot be done, raise PinningError.
    """
    if pinning in GROUP_NAMES:
        groups = group_cpus(pinning, allowed_cpus, reserved_cores, folder)
        return assign_groups(pinning, groups, ranks, threads)
    return assign_cpus(list_cores(allowed_cpus, folder), ranks, threads, reserved_cores)


def plan_cpus_near_gpus(
    pinning: str,
    near_cpus: Sequence[Set[int]],
    threads: int,
    reserved_cores: int,
    allowed_cpus: set[int],
    folder: Path = CPU_FOLDER,
) -> list[list[int]] | None:
    """Return the CPUs of each rank on a node, so that each rank is near its GPU.

    Ranks whose GPUs have the same CPUs near them are spread over these CPUs like the ranks of a
    node in `plan_cpus`, which explains the other parameters.

    - `near_cpus`: for each rank of the node, the CPUs near its GPU.

    Returns None if this is impossible: the near CPUs of a rank are unknown, too few, or not the
    same as and yet not apart from those of another rank.
    """
    ranks_by_cpus: dict[frozenset[int], list[int]] = {}
    for rank, cpus in enumerate(near_cpus):
        ranks_by_cpus.setdefault(frozenset(cpus & allowed_cpus), []).append(rank)
    all_near = [cpu for cpus in ranks_by_cpus for cpu in cpus]
    if not all(ranks_by_cpus) or len(set(all_near)) < len(all_near):
        return None
    free = {cpu for core in list_cores(allowed_cpus, folder)[reserved_cores:] for cpu in core}
    planned: dict[int, list[int]] = {}
    for near, ranks in ranks_by_cpus.items():
        if len(near & free) < len(ranks) * threads:
            return None
        try:
            part = plan_cpus(pinning, len(ranks), threads, 0, set(near & free), folder)
        except PinningError:
            return None
        if part is None:
            return None
        planned.update(zip(ranks, part))
    return [planned[rank] for rank in range(len(near_cpus))]


def pin_rank(
    pinning: str,
    rank: int,
    ranks_per_node: int,
    threads: int,
    reserved_cores: int,
    near_cpus: Sequence[Set[int]] = (),
) -> list[int] | None:
    """Pin this process to the CPUs of `rank` and return these CPUs.

    Processes and threads that this process starts later inherit the pinning. If `plan_cpus` returns
    None, change nothing and return None. `plan_cpus` explains the parameters. Raises PinningError.

    - `near_cpus`: for each rank of the node, the CPUs near its GPU; empty if ranks train on CPUs.
      If `plan_cpus_near_gpus` has no plan, ranks are laid out as on CPUs.
    """
    allowed_cpus = os.sched_getaffinity(0)
    laid_out = plan_cpus(pinning, ranks_per_node, threads, reserved_cores, allowed_cpus)
    if near_cpus:
        laid_out = (
            plan_cpus_near_gpus(pinning, near_cpus, threads, reserved_cores, allowed_cpus)
            or laid_out
        )
    if laid_out is None:
        return None
    rank_cpus = laid_out[rank % ranks_per_node]
    os.sched_setaffinity(0, rank_cpus)
    return rank_cpus


def _numa_node(cpu: int, folder: Path) -> int | None:
    """Return the number of the CPU's NUMA node. None if the system does not say it."""
    nodes = sorted((folder / f"cpu{cpu}").glob("node[0-9]*"))
    return int(nodes[0].name[4:]) if nodes else None


def _socket(cpu: int, folder: Path) -> int | None:
    """Return the number of the CPU's socket. None if the system does not say it."""
    number = _read_int_or_default(folder / f"cpu{cpu}" / "topology" / "physical_package_id", -1)
    return number if number >= 0 else None  # the kernel writes -1 for an unknown socket


def _read_int_or_default(file: Path, default: int) -> int:
    try:
        return int(file.read_bytes())
    except (OSError, ValueError):
        return default
