"""The noise gate: what else went on in the machine while a launch ran.

Read before and after, and subtracted; nothing runs beside the launch to look. What was
seen stands in the record, `disturbances` says which of it may have changed the figures.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from xfbench.host import handover, machine
from xfbench.records import gpus
from xfbench.records.record import Competitor, Conditions, Record
from xfbench.worker import cgroup, distance

_CPUS = Path("/sys/devices/system/cpu")
# Of one core, while the launch ran: below, a daemon's housekeeping.
_COMPETES = 0.1
_STOLEN = 0.01  # of the time of all cores
# Beyond these the figures are not those of this machine at all.
_MOST_THROTTLED = 0.01  # of the launch's time
_MOST_SWAPPED = 1_000_000
Key = tuple[int, float]


@dataclass(frozen=True)
class Reading:
    """The machine at a moment: seconds and bytes, most of them counted since boot.

    `processes` has the CPU seconds of every process that is not ours, by pid and start.
    """

    moment: float
    load: float
    steal: float
    busy: float
    own: float
    throttled: float
    swap: int
    processes: Mapping[Key, tuple[str, float]]
    on_accelerators: tuple[str, ...] = ()
    thermal: int | None = None
    handover: float | None = None


def read() -> Reading:
    """The machine as it is now."""
    handed_over = handover.seconds()
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "steal", 0.0)
    return Reading(
        moment=time.monotonic(),
        load=os.getloadavg()[0],
        steal=getattr(times, "steal", 0.0),
        # A guest's time is in `user` already.
        busy=sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0),
        own=_own_seconds(),
        throttled=cgroup.throttled_seconds(),
        swap=psutil.swap_memory().used,
        processes=_processes(),
        on_accelerators=tuple(machine.accelerator_processes()),
        thermal=_thermal_throttles(),
        handover=handed_over,
    )


def between(before: Reading, after: Reading, ours: float = 0.0) -> Conditions:
    """What went on between two readings; `ours` are CPU seconds of the launch itself.

    Beyond those of this process and its children.
    """
    seconds = max(after.moment - before.moment, 1e-9)
    competing = [
        Competitor(name=name, cpus=(used - before.processes.get(key, (name, 0.0))[1]) / seconds)
        for key, (name, used) in after.processes.items()
    ]
    return Conditions(
        load_before=before.load,
        load_after=after.load,
        steal_seconds=max(0.0, after.steal - before.steal),
        swap_bytes=max(0, after.swap - before.swap),
        throttled_seconds=max(0.0, after.throttled - before.throttled),
        other_cpus=max(0.0, after.busy - before.busy - (after.own - before.own) - ours) / seconds,
        competing=tuple(
            sorted(
                (one for one in competing if one.cpus >= _COMPETES),
                key=lambda one: -one.cpus,
            )
        ),
        thermal_throttles=None
        if before.thermal is None or after.thermal is None
        else max(0, after.thermal - before.thermal),
        accelerator_processes=tuple(
            dict.fromkeys((*before.on_accelerators, *after.on_accelerators))
        ),
        handover_seconds=tuple(one for one in (before.handover, after.handover) if one),
        seconds=seconds,
    )


def disturbances(seen: Conditions, cores: int) -> list[str]:
    """What may have changed a launch's figures, a line each."""
    found = [f"{one.name} used {one.cpus:.1f} of a core" for one in seen.competing]
    named = sum(one.cpus for one in seen.competing)
    if seen.other_cpus is not None and seen.other_cpus - named > _COMPETES * cores:
        found.append(f"processes that have ended used {seen.other_cpus - named:.1f} of a core")
    if seen.seconds and seen.steal_seconds > _STOLEN * seen.seconds * cores:
        share = seen.steal_seconds / (seen.seconds * cores)
        found.append(f"the hypervisor took {share:.0%} of the time")
    if seen.throttled_seconds:
        found.append(f"the CPU limit held processes up for {seen.throttled_seconds:.1f} s")
    if seen.swap_bytes:
        found.append(f"{seen.swap_bytes / 1e6:.0f} MB went to swap")
    return found


def disturbed(record: Record) -> list[str]:
    """What may have changed the figures of a record, a line each: in the machine, and its GPUs."""
    seen, observed, measured = record.conditions, record.observed, record.measurement
    found = disturbances(seen, record.machine.cores) if seen and record.machine else []
    if distance.is_far_apart(handovers := handover.of(record)):
        told = f"{1e6 * min(handovers):.2f} to {1e6 * max(handovers):.2f} µs"
        found.append(f"the system moved the cores: from one to the other and back in {told}")
    if observed and measured:
        found += gpus.noise_causes(observed.gpus, measured.wall_seconds)
    if seen and observed and observed.gpus and seen.accelerator_processes:
        found.append(f"{', '.join(seen.accelerator_processes)} computed on a GPU of this node")
    return found


def defect(seen: Conditions, device: str, *, told: bool = False) -> str | None:
    """Why the launch does not count, whoever was the cause; None where it does.

    `told`: ranks' own devices said who else was on them, so that whoever computed on others' does
    not matter.
    """
    if device == "cuda" and seen.accelerator_processes and not told:
        return (
            f"the GPU was shared with {', '.join(seen.accelerator_processes)}: "
            "wait until it has ended, or ask for a GPU of your own"
        )
    if seen.thermal_throttles:
        return (
            f"the processor slowed down {seen.thermal_throttles} times to cool: "
            "see to its cooling, or lower its clock (see xfbench doctor)"
        )
    if seen.seconds and (seen.throttled_seconds or 0) > _MOST_THROTTLED * seen.seconds:
        return (
            f"the CPU limit held processes up for {seen.throttled_seconds:.1f} s of "
            f"{seen.seconds:.1f} s: ask for whole CPUs, or for fewer threads"
        )
    if seen.swap_bytes > _MOST_SWAPPED:
        return f"{seen.swap_bytes / 1e6:.0f} MB went to swap: free memory, or use a smaller batch"
    return None


def _own_seconds() -> float:
    """CPU seconds of this process and of those it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _thermal_throttles(folder: Path = _CPUS) -> int | None:
    """How often cores have slowed down to cool since boot; None where they do not say."""
    files = [*folder.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    try:
        return sum(int(file.read_text(encoding="utf-8")) for file in files) if files else None
    except (OSError, ValueError):
        return None


def _processes() -> dict[Key, tuple[str, float]]:
    own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    found = {}
    for process in psutil.process_iter(["pid", "create_time", "name", "cpu_times"]):
        info = process.info
        if info["pid"] in own or info["cpu_times"] is None:
            continue
        used = info["cpu_times"].user + info["cpu_times"].system
        found[info["pid"], info["create_time"]] = (info["name"] or "a process", used)
    return found
