"""Facts about this host, read from system files without additional packages.

No fact names the machine or its user.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from xfbench.worker import affinity, cgroup, processor_models
from xfbench.worker.system_files import read_system_file


def machine_facts() -> dict[str, Any]:
    """Return the facts of a record's `machine`, plus the processor's vendor and flags.

    The record also has a hash of the host name. Its salt is only for the user who measures.
    """
    processor = processor_models.read_processor_fields()
    return {
        "cpu_model": processor_models.find_model(processor) or platform.machine(),
        "cores": count_usable_physical_cores(),
        "logical_cpus": os.cpu_count() or 1,
        "memory_bytes": _memory_bytes(),
        "accelerators": nvidia_device_models(),
        "kernel_release": platform.release(),
        "governor": read_system_file(affinity.CPU_FOLDER / "cpu0/cpufreq/scaling_governor"),
        "cgroup_cpus": cgroup.cpu_limit(),
        "cgroup_memory_bytes": cgroup.memory_limit_bytes(),
        "architecture": platform.machine(),
        "vendor": processor.get("vendor_id", "generic"),
        "flags": processor.get("flags", "").split(),
    }


def count_usable_physical_cores() -> int:
    """Return how many physical cores this process may use, by its affinity and cgroup quota."""
    cores = {affinity.find_core(cpu) for cpu in os.sched_getaffinity(0)}
    quota = cgroup.cpu_limit()
    return max(1, len(cores) if quota is None else min(len(cores), int(quota)))


def nvidia_device_models(folder: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """Return the model names of the GPUs that NVIDIA's driver lists. Empty without the driver."""
    files = sorted(folder.glob("*/information"))
    lines = [line for file in files for line in (read_system_file(file) or "").splitlines()]
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]


def _memory_bytes() -> int:
    text = read_system_file(Path("/proc/meminfo")) or ""
    total_kib = re.search(r"^MemTotal: *([0-9]{1,18}) kB", text, re.MULTILINE)
    return 1024 * int(total_kib[1]) if total_kib else 0
