"""What this host is: facts, without judgement.

`doctor.py` judges them, and `conditions.py` sees what goes on beside a launch. Nothing here
names the machine or its user: the host name is kept as a hash, so that records of one host
can be told to be of one host.
"""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from pathlib import Path

import archspec.cpu
import psutil

from xfbench import command
from xfbench.record import Machine

_CGROUP = Path("/sys/fs/cgroup")


@cache
def describe() -> Machine:
    """This host: processor, cores usable by us, memory, accelerators, limits."""
    return Machine(
        hostname_hash=hashlib.sha256(platform.node().encode()).hexdigest()[:16],
        cpu_model=_cpu_model(),
        microarchitecture=archspec.cpu.host().name,
        cores=usable_cores(),
        logical_cpus=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        accelerators=tuple(accelerators()),
        kernel_release=platform.release(),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        cgroup_cpus=_cgroup_cpus(),
        cgroup_memory_bytes=_cgroup_memory(),
    )


def usable_cores() -> int:
    """Physical cores this process may use: affinity, hyper-threads and cgroup quota counted."""
    allowed = os.sched_getaffinity(0)
    cores = set()
    for cpu in allowed:
        siblings = _read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings or str(cpu))
    quota = _cgroup_cpus()
    return max(1, min(len(cores), int(quota) if quota and quota >= 1 else len(cores)))


@cache
def accelerators() -> list[str]:
    """Models of the NVIDIA devices that the driver lists; none where there is no driver."""
    try:
        listing = command.output(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout=30
        )
    except command.CommandError:
        return []
    return [line.strip() for line in listing.splitlines() if line.strip()]


def accelerator_processes() -> list[str]:
    """Names of processes that compute on an NVIDIA device now; none where there is no driver."""
    if not accelerators():
        return []
    try:
        listing = command.output(
            ["nvidia-smi", "--query-compute-apps=process_name", "--format=csv,noheader"], timeout=30
        )
    except command.CommandError:
        return []
    return [Path(line.strip()).name for line in listing.splitlines() if line.strip()]


def libraries() -> list[str]:
    """BLAS, OpenMP, MPI and CUDA libraries that the dynamic linker knows."""
    try:
        listing = command.output(["/sbin/ldconfig", "-p"], timeout=30)
    except command.CommandError:
        return []
    names = {line.split()[0] for line in listing.splitlines() if "=>" in line}
    parts = ("blas", "mkl", "dnnl", "gomp", "iomp", "libmpi", "cudart", "cudnn")
    return sorted(name for name in names if any(part in name for part in parts))


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cgroup_cpus() -> float | None:
    quota, _, period = (_read(_CGROUP / "cpu.max") or "max").partition(" ")
    return None if quota == "max" else int(quota) / int(period)


def _cgroup_memory() -> int | None:
    limit = _read(_CGROUP / "memory.max") or "max"
    return None if limit == "max" else int(limit)


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None
