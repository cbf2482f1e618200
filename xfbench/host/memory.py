"""The memory available to launches, and signs that a launch without a reply ran out of memory.

With every launcher, the worker itself applies its memory limit (`worker/memory.py`).
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psutil

from xfbench.base.processes import Outcome
from xfbench.model.record import Record
from xfbench.worker import cgroup, memory

# Share of the available memory left for the driver, libraries and other processes.
_MARGIN = 0.15
_LIMIT_STEP_BYTES = 2**28  # a limit derived from the available memory is a multiple of this size


def available_launch_bytes() -> int:
    """Return how many bytes of memory the launches on this node may use together.

    This is 85 % of the smallest of these amounts:

    - the machine's available memory
    - the free memory below the limits of this process's cgroups
    - the memory that Slurm granted

    The result is rounded down to a multiple of 256 MiB, and is at least 256 MiB. Because of the
    margin of 15 %, launches run out of memory before other processes do.
    """
    limits = [
        psutil.virtual_memory().available,
        *filter(None, (cgroup.free_memory_below_limit_bytes(), _slurm_memory_bytes())),
    ]
    return max(
        _LIMIT_STEP_BYTES, int(min(limits) * (1 - _MARGIN)) // _LIMIT_STEP_BYTES * _LIMIT_STEP_BYTES
    )


def _slurm_memory_bytes() -> int | None:
    """Return the Slurm job's memory on a node in bytes. None if Slurm does not limit it."""
    per_node, per_cpu = (os.environ.get(f"SLURM_MEM_PER_{per}", "") for per in ("NODE", "CPU"))
    cpus = os.environ.get("SLURM_CPUS_ON_NODE", "")
    if per_node.isdecimal() and int(per_node):
        return int(per_node) * 2**20
    if per_cpu.isdecimal() and cpus.isdecimal():
        return int(per_cpu) * int(cpus) * 2**20
    return None


def count_oom_kills_since_boot() -> int:
    """Return how many processes the kernel has killed since boot because memory ran out."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def out_of_memory_reason(
    outcome: Outcome, stderr: str, limit: int | None, kill_count: int
) -> str | None:
    """Return how a process ran out of memory, or None if it did not.

    - `outcome`: how the process ended.
    - `stderr`: the process's standard error.
    - `limit`: the process's memory limit in bytes, or None.
    - `kill_count`: how many processes the kernel killed for lack of memory while this process ran.

    The result says "probably" in two cases. Either the process had a limit and ended with a signal
    that often means missing memory. Or it wrote a message that often means so on a GPU.
    """
    if outcome.timed_out or outcome.status == 0:
        return None
    message = memory.out_of_memory_line(stderr, limit)
    if message:
        return f"{memory.PREFIX}: it aborted: {message}"
    if outcome.status == -signal.SIGKILL and kill_count:
        return f"{memory.PREFIX}: the kernel killed it"
    if message := memory.probable_out_of_memory_line(stderr):
        return f"{memory.PREFIX}, probably: it aborted: {message}"
    memory_signals = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
    if limit and outcome.status in memory_signals:
        return f"{memory.PREFIX}, probably: {outcome} without an error message under a memory limit"
    return None


def is_out_of_memory(record: Record) -> bool:
    """Return whether the launch of `record` ran out of memory."""
    reason = re.sub(r"^rank \d+ of \d+: ", "", record.reason or "")
    return record.status == "failed" and reason.startswith(memory.PREFIX)
