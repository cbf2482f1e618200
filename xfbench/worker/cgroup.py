"""CPU and memory limits of this process's control groups (cgroup versions 1 and 2), on all levels.

A scheduler limits a job's group, and a container runtime limits the container's group. Outside of
containers, the root group has no limit. Inside a container, the root is the container's group.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Iterator, List, Tuple

from xfbench.worker.mounts import Mount, list_mounts
from xfbench.worker.system_files import read_system_file

_ROOT = Path("/sys/fs/cgroup")
_PROCESS_GROUPS = Path("/proc/self/cgroup")
_LIMIT_FILES = {
    "cpu": ("cpu.max", "cpu.cfs_quota_us"),
    "memory": ("memory.max", "memory.limit_in_bytes"),
}
_LIMIT = re.compile("(max|-1|[0-9]{1,39})( [0-9]{1,39})?")
_UNLIMITED = 2**60  # version 1 reports "no limit" as a number just below 2**63


def cpu_limit() -> float | None:
    """Return how many CPUs this process may use, possibly a fraction. None if unlimited."""
    limits = []
    for folder in _group_folders_up_to_root("cpu"):
        quota, _, period = (read_system_file(folder / "cpu.max") or "max").partition(" ")
        if quota == "max":
            quota = read_system_file(folder / "cpu.cfs_quota_us") or "-1"
            period = read_system_file(folder / "cpu.cfs_period_us") or ""
        quota_us, period_us = _parse_count(quota), _parse_count(period)
        if quota_us and period_us:
            limits.append(quota_us / period_us)
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
        lines = (read_system_file(folder / "cpu.stat") or "").split("\n")
        values = dict(line.partition(" ")[::2] for line in lines)
        seconds.append((_parse_count(values.get("throttled_usec", "")) or 0) / 1e6)
        seconds.append((_parse_count(values.get("throttled_time", "")) or 0) / 1e9)
    return max(seconds)


def list_unknown_limits() -> List[str]:
    """Return "FILE: TEXT" for each limit whose text means neither a number nor no limit."""
    unknown = []
    for controller, names in _LIMIT_FILES.items():
        for folder in _group_folders_up_to_root(controller):
            for name in names:
                text = read_system_file(folder / name)
                if text and not _LIMIT.fullmatch(text):
                    unknown.append(f"{name}: {text[:80]}")
    return unknown


def _memory_limits_and_use_bytes() -> List[Tuple[int, int]]:
    """Return (limit, used memory) in bytes for each level that has a limit."""
    limits_and_use = []
    for folder in _group_folders_up_to_root("memory"):
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit_bytes = _parse_count(read_system_file(folder / limit) or "")
            if limit_bytes is not None and limit_bytes < _UNLIMITED:
                used_bytes = _parse_count(read_system_file(folder / used) or "") or 0
                limits_and_use.append((limit_bytes, used_bytes))
    return limits_and_use


def _parse_count(text: str) -> int | None:
    """Return the number in `text`. None for "max", "-1", and whatever the kernel does not write."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 40 else None


def _group_folders_up_to_root(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's groups for `controller`, from the lowest to the root."""
    mounts = list_mounts()
    for line in _process_groups().split("\n"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        names = controllers.split(",") if controllers else []
        if not path.startswith("/") or "\0" in path or (names and controller not in names):
            continue
        top, group = _find_hierarchy(controller if names else None, path, mounts)
        folder = top if ".." in group.parts else top / group  # outside of the container
        yield folder
        while folder != top:
            folder = folder.parent
            yield folder


def _process_groups() -> str:
    """Return the lines of this process's groups. Names may contain any white space but "\\n"."""
    try:
        return os.fsdecode(_PROCESS_GROUPS.read_bytes())
    except OSError:
        return "0::/"


def _parse_group(path: str) -> PurePosixPath:
    return PurePosixPath("/" + path.lstrip("/"))


def _find_hierarchy(
    controller: str | None, path: str, mounts: List[Mount]
) -> Tuple[Path, PurePosixPath]:
    """Return the folder where a hierarchy is mounted, and the path of a group in this folder.

    A mount may show only a part of the hierarchy, such as a container's group. Without a mount, the
    folder is the usual one, such as "cpu", "cpu,cpuacct" or "cpuacct,cpu".

    - `controller`: a controller of the hierarchy; None for version 2.
    - `path`: the path of the group in /proc/self/cgroup.
    - `mounts`: the mounts that this process sees.
    """
    group = _parse_group(path)
    tops = [
        (Path(mount.point), _parse_group(mount.root))
        for mount in mounts
        if (controller in mount.options if controller else mount.file_system == "cgroup2")
        and mount.file_system in ("cgroup", "cgroup2")
        and Path(mount.point).is_dir()
    ]
    for top, root in reversed(tops):
        if root == group or root in group.parents:
            return top, group.relative_to(root)
    if tops:
        return tops[-1][0], group.relative_to("/")
    folders = sorted(_ROOT.glob("*")) if controller else []
    top = next((folder for folder in folders if controller in folder.name.split(",")), _ROOT)
    return top, group.relative_to("/")
