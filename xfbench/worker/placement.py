"""The placement of this process's memory: huge pages, NUMA nodes, and the preferred node."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from pathlib import Path
from typing import Set

NODE_FOLDER = Path("/sys/devices/system/node")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_PREFERRED = 1  # set_mempolicy(2)
_SYSTEM_CALL = {"x86_64": 238, "aarch64": 237, "ppc64le": 261}
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def mapped_bytes(memory_kind: str, file: Path = Path("/proc/self/smaps_rollup")) -> int | None:
    """Return how many mapped bytes of one kind this process has. None if not reported.

    `memory_kind` is a field of smaps in proc(5), such as "AnonHugePages".
    """
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return None
    matching_lines = [line.split() for line in lines if line.startswith(memory_kind + ":")]
    return sum(int(fields[1]) * 1024 for fields in matching_lines) if matching_lines else None


def huge_page_mode(file: Path = _HUGE_PAGES) -> str:
    """Return the mode of transparent huge pages: "always", "madvise" or "never". "" if unknown."""
    try:
        return file.read_text(errors="replace").partition("[")[2].partition("]")[0]
    except OSError:
        return ""


def numa_nodes(kind: str, folder: Path = NODE_FOLDER) -> Set[int]:
    """Return the numbers of the NUMA nodes of one kind. Empty if the system has no such list.

    `kind`: "has_memory" (nodes with memory) or "has_cpu" (nodes with processors).
    """
    return read_number_list(folder / kind)


def read_number_list(file: Path) -> Set[int]:
    """Return the numbers in a file of the system, such as "0-3,8". Empty without the file."""
    try:
        text = file.read_text(errors="replace").strip()
    except OSError:
        return set()
    numbers: Set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def prefer_memory_of_node(node: int) -> str | None:
    """Set `node` as the preferred NUMA node for memory of this thread and the threads it starts.

    Return the error message, or None if there is no error.
    """
    number = _SYSTEM_CALL.get(platform.machine())
    if number is None:
        return "the number of the system call set_mempolicy is unknown on " + platform.machine()
    libc = ctypes.CDLL(None, use_errno=True)
    mask = (ctypes.c_ulong * 16)()
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask[node // bits] = 1 << node % bits
    if libc.syscall(number, _PREFERRED, mask, ctypes.c_ulong(16 * bits)):
        return "set_mempolicy: " + os.strerror(ctypes.get_errno())
    return None


def anonymous_pages_by_node(file: Path = Path("/proc/self/numa_maps")) -> dict[int, int]:
    """Return the number of this process's memory pages on each NUMA node, by node number.

    Mappings without anonymous pages are left out. The result is empty if the system does not report
    where pages are.
    """
    try:
        lines = os.fsdecode(file.read_bytes()).split("\n")
    except OSError:
        return {}
    page_counts: dict[int, int] = {}
    for line in lines:
        if " anon=" not in line:
            continue
        for field in line.split(" "):
            name, _, count = field.partition("=")
            if re.fullmatch("N[0-9]+=[0-9]+", field):
                page_counts[int(name[1:])] = page_counts.get(int(name[1:]), 0) + int(count)
    return page_counts
