"""Core-to-core latency: the round-trip time of a message between two cores.

The threads of a step exchange small messages hundreds of times per step. The time of a message
depends on the positions of the cores. A hypervisor may move virtual cores at any time, and no
counter shows such a move (docs/findings.md#two-modes).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from xfbench.base import atomic_files, digests, paths, processes
from xfbench.base.process_variables import Purpose
from xfbench.model.record import Record
from xfbench.worker import pingpong, system_files

_MAX_LATENCIES = 1000  # about as many as a tuning search measures
_TIMEOUT_S = 2.0  # a hundred times the usual duration
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def measure_core_latency_s() -> float | None:
    """Return the latency in seconds between the first and the last usable CPU.

    Two Python processes measure the latency, so about 0.1 µs of it is interpreter time. Returns
    None if there is only one CPU, if the system does not support pinning, or if the cores are too
    busy.
    """
    command = [sys.executable, "-I", "-S", pingpong.__file__]
    try:
        return float(
            processes.output(
                command, purpose=Purpose.MEASUREMENT, stdin_text="\n", timeout=_TIMEOUT_S
            )
        )
    except (ValueError, processes.CommandError):
        return None


def latencies_of_record(record: Record) -> Sequence[float]:
    """Return the latencies in seconds that were measured during the record's timed steps.

    If there are none, return the latencies that were measured before and after the launch.
    """
    latencies = record.observed.handover_seconds if record.observed else ()
    return latencies or (record.conditions.handover_seconds if record.conditions else ())


def read_saved_latencies() -> list[float]:
    """Return the latencies, in seconds, that were saved since this machine's boot.

    A tuning search computes the latency of near cores from the saved latencies. Without these, a
    search would not notice that the cores are far apart during all of its launches.
    """
    try:
        return [*map(float, (system_files.read_system_file(_latency_file()) or "").split())]
    except ValueError:  # xfbench did not write the file
        return []


def save_latencies_of_record(record: Record) -> None:
    """Save the latencies of `record`, which must have been measured on this machine."""
    if new_latencies := latencies_of_record(record):
        latencies = [*read_saved_latencies(), *new_latencies][-_MAX_LATENCIES:]
        atomic_files.write(_latency_file(), (" ".join(map(repr, latencies)) + "\n").encode())


def _latency_file() -> Path:
    boot = system_files.read_system_file(_BOOT) or ""
    return paths.cache_folder("handover") / digests.of_bytes(boot.encode())[7:39]
