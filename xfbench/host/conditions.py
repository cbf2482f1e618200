"""The noise check: other activity on the machine during a launch.

xfbench reads counters before and after a launch. No monitor runs during the launch. The record
stores the differences of the counters. `list_disturbances` finds the activity that may have changed
the launch's figures.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from xfbench.host import core_latency, machine
from xfbench.model import gpus
from xfbench.model.record import Competitor, Conditions, Record
from xfbench.worker import cgroup
from xfbench.worker.core_latency import has_far_core_latency
from xfbench.worker.system_files import replace_undecodable

_CPUS = Path("/sys/devices/system/cpu")
# A process that uses a larger share of one core counts as competing. Daemons use less.
_COMPETING_CPUS = 0.1
_MAX_STEAL_SHARE = 0.01  # of the time of all cores
# Above these limits the launch is invalid.
_MAX_THROTTLED_SHARE = 0.01  # of the launch's time
_MAX_SWAP_BYTES = 1_000_000
ProcessKey = tuple[int, float]


@dataclass(frozen=True)
class Reading:
    """The state of the machine at one time.

    - `moment`: when the state was read, on the monotonic clock in seconds.
    - `load`: the load average of the last minute.
    - `steal`: CPU seconds since boot that the hypervisor gave to other virtual machines.
    - `busy`: CPU seconds of all processes since boot.
    - `own`: CPU seconds of this process and its ended children.
    - `throttled`: seconds for which CPU limits have throttled this process.
    - `swap`: bytes of swap space in use.
    - `processes`: the name and CPU seconds of each process other than this one and its descendants.
      The key is the process's pid and start time.
    - `on_accelerators`: names of processes that compute on NVIDIA devices.
    - `thermal`: number of thermal throttles since boot; None if unknown.
    - `core_latency_s`: the core-to-core latency in seconds; None if it was not measured.
    """

    moment: float
    load: float
    steal: float
    busy: float
    own: float
    throttled: float
    swap: int
    processes: Mapping[ProcessKey, tuple[str, float]]
    on_accelerators: tuple[str, ...] = ()
    thermal: int | None = None
    core_latency_s: float | None = None


def read_conditions() -> Reading:
    """Read the present state of the machine."""
    core_latency_s = core_latency.measure_core_latency_s()
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "steal", 0.0)
    return Reading(
        moment=time.monotonic(),
        load=os.getloadavg()[0],
        steal=getattr(times, "steal", 0.0),
        # `user` already includes the time of guests.
        busy=sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0),
        own=_own_cpu_seconds(),
        throttled=cgroup.throttled_seconds(),
        swap=psutil.swap_memory().used,
        processes=_read_other_processes(),
        on_accelerators=tuple(machine.list_accelerator_processes()),
        thermal=_count_thermal_throttles(),
        core_latency_s=core_latency_s,
    )


def conditions_between(
    before: Reading, after: Reading, launch_cpu_seconds: float = 0.0
) -> Conditions:
    """Return the activity between two readings, as a record's `conditions`.

    `launch_cpu_seconds` is CPU time that the launch used on this machine in processes other than
    this process's children. For example, ranks that Slurm starts are not its children.
    """
    seconds = max(after.moment - before.moment, 1e-9)
    competing = [
        Competitor(
            name=name,
            cpus=(used - before.processes.get(key, (name, 0.0))[1]) / seconds,
            pid=key[0],
        )
        for key, (name, used) in after.processes.items()
    ]
    return Conditions(
        load_before=before.load,
        load_after=after.load,
        steal_seconds=max(0.0, after.steal - before.steal),
        swap_bytes=max(0, after.swap - before.swap),
        throttled_seconds=max(0.0, after.throttled - before.throttled),
        other_cpus=max(
            0.0, after.busy - before.busy - (after.own - before.own) - launch_cpu_seconds
        )
        / seconds,
        competing=tuple(
            sorted(
                (competitor for competitor in competing if competitor.cpus >= _COMPETING_CPUS),
                key=lambda competitor: -competitor.cpus,
            )
        ),
        thermal_throttles=None
        if before.thermal is None or after.thermal is None
        else max(0, after.thermal - before.thermal),
        accelerator_processes=max(before.on_accelerators, after.on_accelerators, key=len),
        handover_seconds=tuple(
            latency for latency in (before.core_latency_s, after.core_latency_s) if latency
        ),
        seconds=seconds,
    )


def list_disturbances(conditions: Conditions, cores: int) -> list[str]:
    """Return the activity that may have changed a launch's figures, one line for each kind.

    `cores` is the number of cores that the launch could use. Programs are not named, because the
    lines go into reports and records.
    """
    reasons = [
        f"another process used {competitor.cpus:.1f} cores" for competitor in conditions.competing
    ]
    named_cpus = sum(competitor.cpus for competitor in conditions.competing)
    if (
        conditions.other_cpus is not None
        and conditions.other_cpus - named_cpus > _COMPETING_CPUS * cores
    ):
        reasons.append(
            f"short-lived or small processes used {conditions.other_cpus - named_cpus:.1f} cores"
        )
    if (
        conditions.seconds
        and conditions.steal_seconds > _MAX_STEAL_SHARE * conditions.seconds * cores
    ):
        share = conditions.steal_seconds / (conditions.seconds * cores)
        reasons.append(f"the hypervisor took {share:.0%} of the CPU time")
    if conditions.throttled_seconds:
        reasons.append(
            f"the CPU limit throttled processes for {conditions.throttled_seconds:.1f} s"
        )
    if conditions.swap_bytes:
        reasons.append(f"{conditions.swap_bytes / 1e6:.0f} MB were swapped out")
    return reasons


def name_other_programs(conditions: Conditions, on_gpus: Iterable[str] = ()) -> str:
    """Return the names of other programs that ran during a launch; "" if there were none.

    This text is for the person who measures, and not for records, which count programs only.
    `on_gpus` are the programs that the ranks found on their GPUs.
    """
    programs = [
        f"{competitor.name}{'' if competitor.pid is None else f' (pid {competitor.pid})'} "
        f"used {competitor.cpus:.1f} cores"
        for competitor in conditions.competing
    ]
    on_gpus = dict.fromkeys((*conditions.accelerator_processes, *on_gpus))
    return "; ".join([*programs, *(f"{name} computed on a GPU" for name in on_gpus)])


def list_record_disturbances(record: Record) -> list[str]:
    """Return the activity on the machine and its GPUs that may have changed a record's figures."""
    conditions, observation, measurement = record.conditions, record.observed, record.measurement
    reasons = (
        list_disturbances(conditions, record.machine.cores) if conditions and record.machine else []
    )
    if has_far_core_latency(latencies := core_latency.latencies_of_record(record)):
        latency_range = f"{1e6 * min(latencies):.2f}–{1e6 * max(latencies):.2f} µs"
        reasons.append(
            f"vCPUs were migrated during the launch (core-to-core latency {latency_range})"
        )
    if observation and measurement:
        reasons += gpus.noise_causes(observation.gpus, measurement.wall_seconds)
    if conditions and observation and observation.gpus and conditions.accelerator_processes:
        processes = gpus.count_other_processes(conditions.accelerator_processes)
        reasons.append(f"{processes} computed on a GPU of this node")
    return reasons


def throttle_swap_or_gpu_sharing_defect(
    conditions: Conditions, device: str, *, ranks_report_gpu_sharing: bool = False
) -> str | None:
    """Return why the `conditions` make the launch invalid, or None if the launch is valid.

    - `device`: "cpu" or "cuda".
    - `ranks_report_gpu_sharing`: whether each rank checked its own GPUs for other processes. If so,
      this function ignores `conditions.accelerator_processes`. Those processes may compute on GPUs
      that no rank uses.
    """
    if device == "cuda" and conditions.accelerator_processes and not ranks_report_gpu_sharing:
        processes = gpus.count_other_processes(conditions.accelerator_processes)
        return (
            f"the GPU was shared with {processes}: wait until it is free, or request an exclusive "
            "GPU"
        )
    if conditions.thermal_throttles:
        return (
            f"the processor was thermally throttled {conditions.thermal_throttles} times: "
            "improve its cooling, or lower its clock (see xfbench doctor)"
        )
    if (
        conditions.seconds
        and (conditions.throttled_seconds or 0) > _MAX_THROTTLED_SHARE * conditions.seconds
    ):
        return (
            f"the CPU limit throttled processes for {conditions.throttled_seconds:.1f} s of "
            f"{conditions.seconds:.1f} s: request whole CPUs, or use fewer --threads"
        )
    if conditions.swap_bytes > _MAX_SWAP_BYTES:
        return (
            f"{conditions.swap_bytes / 1e6:.0f} MB were swapped out: free memory, or use a "
            "smaller --batch-size"
        )
    return None


def _own_cpu_seconds() -> float:
    """Return the CPU seconds of this process and its ended children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _count_thermal_throttles(folder: Path = _CPUS) -> int | None:
    """Return the number of thermal throttles since boot, summed over all CPUs. None if unknown."""
    files = [*folder.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    try:
        return sum(int(file.read_bytes()) for file in files) if files else None
    except (OSError, ValueError):
        return None


def _read_other_processes() -> dict[ProcessKey, tuple[str, float]]:
    own_pids = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    process_seconds = {}
    for process in psutil.process_iter(["pid", "create_time", "name", "cpu_times"]):
        info = process.info
        if info["pid"] in own_pids or info["cpu_times"] is None:
            continue
        used = info["cpu_times"].user + info["cpu_times"].system
        name = replace_undecodable(info["name"] or "a process")
        process_seconds[info["pid"], info["create_time"]] = (name, used)
    return process_seconds
