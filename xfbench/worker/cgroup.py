"""CPU and memory limits of this process's control groups (cgroup versions 1 and 2), on all levels.

A scheduler limits a job's group, and a container runtime limits the container's group. Outside of
containers, the root group has no limit. Inside a container, the root is the container's group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List, Tuple

from xfbench.worker.system_files import read_system_file

_ROOT = Path("/sys/fs/cgroup")
_PROCESS_GROUPS = Path("/proc/self/cgroup")
_UNLIMITED = 2**60  # version 1 reports "no limit" as a number just below 2**63


def cpu_limit() -> float | None:
    """Return how many CPUs this process may use, possibly a fraction. None if unlimited."""
    limits = []
    for folder in _group_folders_up_to_root("cpu"):
        quota, _, period = (read_system_file(folder / "cpu.max") or "max").partition(" ")
        if quota == "max":
            quota = read_system_file(folder / "cpu.cfs_quota_us") or "-1"
            period = read_system_file(folder / "cpu.cfs_period_us") or "1"
        if int(quota) > 0:
            limits.append(int(quota) / int(period))
    return min(limits) if limits else None


def memory_limit_bytes() -> int | None:
    """Return the memory limit in bytes. None if there is no limit.

    All processes in the limited group share the limit.
    """
    return min((limit for limit, _ in _memory_limits_and_use_bytes()), default=None)


def free_memory_below_limit_bytes() -> int | None:
    """Return how many bytes are free below the memory limit. None if there is no limit.

    If several levels have a limit, the result is the smallest free amount.
    """
    return min((limit - used for limit, used in _memory_limits_and_use_bytes()), default=None)


def throttled_seconds() -> float:
    """Return the total seconds for which CPU limits have throttled this process's groups.

    Each level of groups has its own total, and the result is the largest of these totals. The
    result is 0 if no level has a limit.
    """
    seconds = [0.0]
    for folder in _group_folders_up_to_root("cpu"):
        lines = (read_system_file(folder / "cpu.stat") or "").splitlines()
        values = dict(line.split(None, 1) for line in lines if " " in line)
        seconds.append(int(values.get("throttled_usec", 0)) / 1e6)
        seconds.append(int(values.get("throttled_time", 0)) / 1e9)
    return max(seconds)


def _memory_limits_and_use_bytes() -> List[Tuple[int, int]]:
    """Return (limit, used memory) in bytes for each level that has a limit."""
    limits_and_use = []
    for folder in _group_folders_up_to_root("memory"):
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            most = read_system_file(folder / limit) or "max"
            if most != "max" and int(most) < _UNLIMITED:
                limits_and_use.append((int(most), int(read_system_file(folder / used) or 0)))
    return limits_and_use


def _group_folders_up_to_root(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's groups for `controller`, from the lowest to the root."""
    for line in (read_system_file(_PROCESS_GROUPS) or "0::/").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = _ROOT / controllers if controllers else _ROOT
        folder = top / path.lstrip("/")
        if ".." in folder.parts or not folder.is_dir():  # a path outside of the container
            folder = top
        yield folder
        while folder != top:
            folder = folder.parent
            yield folder
