"""How near two cores are to each other: how long a word takes to the other one and back.

Threads that share a step's work hand each other small things hundreds of times a step. Where
the two cores lie decides what that takes, and a hypervisor moves virtual ones about, within
seconds, without a word in any counter (docs/findings.md#two-modes).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from xfbench.base import atomic_files, digests, paths, processes
from xfbench.records.record import Record
from xfbench.worker import pingpong, system_files

_MAX_LATENCIES = 1000  # a search's
_TIMEOUT_S = 2.0  # seconds; a hundred times what it takes
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def measure_latency() -> float | None:
    """Between the first and the last CPU that this process may use, there and back, at the least.

    As two Python processes see it, so that a tenth of a microsecond of it is the interpreter's.
    None where there is but one CPU, where the system does not pin, or where cores are too busy.
    """
    command = [sys.executable, "-I", "-S", pingpong.__file__]
    try:
        return float(processes.output(command, told="\n", timeout=_TIMEOUT_S))
    except (ValueError, processes.CommandError):
        return None


def record_latencies(record: Record) -> Sequence[float]:
    """What was measured while its steps were timed; where nobody did, before and after it."""
    latencies = record.observed.handover_seconds if record.observed else ()
    return latencies or (record.conditions.handover_seconds if record.conditions else ())


def read_latencies() -> list[float]:
    """What searches have seen since the system started: cores may lie apart for long."""
    try:
        return [*map(float, (system_files.read(_latency_file()) or "").split())]
    except ValueError:  # nothing of ours
        return []


def save_latencies(record: Record) -> None:
    """Keep what the record of a launch on this machine tells of that."""
    if new_latencies := record_latencies(record):
        latencies = [*read_latencies(), *new_latencies][-_MAX_LATENCIES:]
        atomic_files.write(_latency_file(), (" ".join(map(repr, latencies)) + "\n").encode())


def _latency_file() -> Path:
    boot = system_files.read(_BOOT) or ""
    return paths.cache() / "handover" / digests.of_bytes(boot.encode())[7:39]
