"""The layout of this host's processors: sockets, cores, hardware threads, NUMA nodes and caches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from xfbench.worker.system_files import read_system_file

_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Cache:
    """A level of cache.

    - `name`: such as "L1d" or "L3".
    - `size`: as the system writes it, such as "32K".
    - `count`: number of such caches.
    """

    name: str
    size: str
    count: int


@dataclass(frozen=True)
class Topology:
    """The layout of the processors. A number is None if the system does not say it.

    - `threads_per_core`: hardware threads of a core; 2 or more means SMT is on.
    - `numa_nodes`: the CPUs of each NUMA node, such as "0-15".
    - `nvidia_driver`: version of the NVIDIA driver; None: no driver is loaded.
    """

    sockets: int | None
    cores: int | None
    threads_per_core: int | None
    numa_nodes: tuple[str, ...]
    caches: tuple[Cache, ...]
    nvidia_driver: str | None


def read_topology(
    cpus: Path = _CPUS, nodes: Path = _NODES, driver: Path = _NVIDIA_DRIVER
) -> Topology:
    """Return the layout of the processors. The parameters are the system's folders."""
    folders = sorted(cpus.glob("cpu[0-9]*"))
    packages = _distinct(folders, "topology/physical_package_id")
    siblings = _distinct(folders, "topology/thread_siblings_list")  # one text for each core
    version = read_system_file(driver)
    return Topology(
        sockets=len(packages) or None,
        cores=len(siblings) or None,
        threads_per_core=max(map(_count_cpus, siblings), default=None),
        numa_nodes=tuple(
            filter(None, (read_system_file(node / "cpulist") for node in _list_nodes(nodes)))
        ),
        caches=_read_caches(folders),
        nvidia_driver=_find_driver_version(version) if version else None,
    )


def describe(topology: Topology) -> dict[str, str]:
    """Return the topology as texts by name, without what is unknown."""
    sizes = [
        f"{cache.name} {cache.count} × {cache.size}"
        if cache.count > 1
        else f"{cache.name} {cache.size}"
        for cache in topology.caches
    ]
    smt = topology.threads_per_core
    texts = {
        "sockets": topology.sockets,
        "physical cores": topology.cores,
        "SMT": smt and (f"on, {smt} threads per core" if smt > 1 else "off"),
        "NUMA nodes": topology.numa_nodes
        and f"{len(topology.numa_nodes)}: CPUs {'; '.join(topology.numa_nodes)}",
        "caches": ", ".join(sizes),
        "NVIDIA driver": topology.nvidia_driver,
    }
    return {name: str(text) for name, text in texts.items() if text}


def _count_cpus(cpu_list: str) -> int:
    """Return the number of CPUs in a list such as "0-3,8"."""
    bounds = [part.partition("-") for part in cpu_list.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in bounds)


def _list_nodes(nodes: Path) -> list[Path]:
    return sorted(nodes.glob("node[0-9]*"), key=lambda node: int(node.name[4:]))


def _distinct(folders: Iterable[Path], name: str) -> set[str]:
    return {text for folder in folders if (text := read_system_file(folder / name)) is not None}


def _read_caches(cpu_folders: Iterable[Path]) -> tuple[Cache, ...]:
    """Return the caches of all CPUs, smallest level first. Shared caches count once."""
    instances: dict[tuple[str, str], set[str]] = {}
    for folder in cpu_folders:
        for index in sorted(folder.glob("cache/index[0-9]*")):
            level, kind, size, shared = (
                read_system_file(index / name)
                for name in ("level", "type", "size", "shared_cpu_list")
            )
            if level and size and kind and shared:
                suffix = {"Data": "d", "Instruction": "i"}.get(kind, "")
                instances.setdefault((f"L{level}{suffix}", size), set()).add(shared)
    return tuple(
        Cache(name, size, len(owners)) for (name, size), owners in sorted(instances.items())
    )


def _find_driver_version(text: str) -> str | None:
    """Return the version in the text of /proc/driver/nvidia/version."""
    words = text.partition("Kernel Module")[2].split()
    return next((word for word in words if word[:1].isdigit()), None)
