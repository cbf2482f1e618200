"""Problems of this host that affect measurements, and how to fix them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from xfbench.base.errors import XfbenchError
from xfbench.base.wording import pluralize
from xfbench.host import machine
from xfbench.worker import cgroup, nvml

_LOAD_PER_CORE = 0.3
_BUSY_PERCENT = 20.0
# Clock ticks of all cores are rounded, so that a small rest is no process.
_MOST_REST_PERCENT = 40.0
_SAMPLE_SECONDS = 0.5


class NoisyError(XfbenchError):
    """The machine is too noisy for measurements. The message says why and how to fix it."""


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    - `check`: the name of the check.
    - `state`: "ok", "warn" or "bad".
    - `detail`: what was found.
    - `mend`: how to fix the problem; "" if there is none.
    """

    check: str
    state: str
    detail: str
    mend: str = ""


def run_all_checks() -> list[Finding]:
    """Run all checks and return their findings. This takes about a second."""
    return [
        check_load(),
        *_check_busy_processes(),
        _check_steal(),
        _check_governor(),
        _check_turbo(),
        _check_cores(),
        _check_cgroup_cpus(),
        _check_swap(),
        _check_free_disk(),
        *_check_accelerators(),
        *check_gpu_settings(),
    ]


def require_all_checks_ok() -> None:
    """Run all checks. Raise NoisyError if the state of any check is not "ok"."""
    problems = [finding for finding in run_all_checks() if finding.state != "ok"]
    if problems:
        lines = [f"{finding.check}: {finding.detail}: {finding.mend}" for finding in problems]
        raise NoisyError("this machine is not ready to measure (--strict): " + "; ".join(lines))


def check_load() -> Finding:
    """Return whether the load of the last minute leaves the cores free."""
    load, cores = os.getloadavg()[0], machine.usable_cores()
    detail = f"{load:.2f} over the last minute on {cores} cores"
    if load > _LOAD_PER_CORE * cores:
        return Finding("load", "warn", detail, "wait until other work ends, or use a quiet node")
    return Finding("load", "ok", detail)


def _check_busy_processes() -> list[Finding]:
    """Check for other processes that use more than a fifth of a core at present.

    Processes that end while they are watched are found by what they leave of the cores' time.
    """
    processes = []
    for process in psutil.process_iter(["pid", "name"]):
        try:
            process.cpu_percent()
            processes.append(process)
        except psutil.Error:
            continue
    cores_percent = psutil.cpu_percent(_SAMPLE_SECONDS) * (psutil.cpu_count() or 1)
    busy, listed_percent = [], 0.0
    for process in processes:
        try:
            used = process.cpu_percent()
        except psutil.Error:
            continue
        listed_percent += used
        if used > _BUSY_PERCENT and process.pid != os.getpid():
            busy.append(f"{process.info['name']} (pid {process.pid}, {used:.0f} % of a core)")
    rest_percent = cores_percent - listed_percent
    if rest_percent > _MOST_REST_PERCENT:
        busy.append(f"processes that end quickly ({rest_percent:.0f} % of a core)")
    if busy:
        return [Finding("processes", "warn", ", ".join(busy), "stop them, or wait until they end")]
    return [Finding("processes", "ok", "no other process is busy")]


def _check_steal() -> Finding:
    share = getattr(psutil.cpu_times_percent(_SAMPLE_SECONDS), "steal", 0.0)
    detail = f"{share:.1f} % of the time was taken by the hypervisor"
    if share > 1:
        return Finding("steal", "warn", detail, "use a dedicated host, or more --launches")
    return Finding("steal", "ok", detail)


def _check_governor() -> Finding:
    governor = machine.describe_machine().governor
    if governor is None:
        return Finding("governor", "ok", "not visible (a virtual machine, or no cpufreq)")
    if governor != "performance":
        mend = "as root: cpupower frequency-set --governor performance"
        return Finding("governor", "warn", f"{governor}: the clock follows the load", mend)
    return Finding("governor", "ok", governor)


def _check_turbo() -> Finding:
    for path, enabled_value in (
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0"),
        ("/sys/devices/system/cpu/cpufreq/boost", "1"),
    ):
        try:
            value = Path(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
        if value == enabled_value:
            mend = f"for steadier figures, as root: echo {1 - int(enabled_value)} > {path}"
            return Finding("turbo", "warn", "on: the clock depends on temperature and load", mend)
        return Finding("turbo", "ok", "off")
    return Finding("turbo", "ok", "not visible")


def _check_cores() -> Finding:
    cores, logical = machine.usable_cores(), len(os.sched_getaffinity(0))
    if logical > cores:
        detail = f"{logical} hardware threads on {cores} cores"
        return Finding("cores", "ok", f"{detail}; the default is one thread per core")
    return Finding("cores", "ok", f"{cores} usable")


def _check_cgroup_cpus() -> Finding:
    if unknown := cgroup.list_unknown_limits():
        detail = f"a limit that is no number is ignored: {'; '.join(unknown)}"
        return Finding("cgroup", "warn", detail, "use --threads, and check the job's limits")
    host = machine.describe_machine()
    if host.cgroup_cpus is not None and host.cgroup_cpus < len(os.sched_getaffinity(0)):
        detail = f"limited to {host.cgroup_cpus:g} CPUs by a cgroup quota"
        return Finding(
            "cgroup", "warn", detail, f"request whole CPUs, or use --threads {host.cores}"
        )
    return Finding("cgroup", "ok", "no cgroup quota reduces the usable CPUs")


def _check_swap() -> Finding:
    used, memory = psutil.swap_memory().used, psutil.virtual_memory()
    if used > 0.01 * memory.total:
        mend = "free memory, or as root: swapoff --all"
        return Finding("swap", "warn", f"{used / 1e9:.1f} GB of swap in use", mend)
    return Finding("swap", "ok", f"unused; {memory.available / 1e9:.0f} GB of memory free")


def _check_free_disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    if free < 1e9:
        return Finding(
            "disk",
            "bad",
            f"{free / 1e6:.0f} MB free in this folder",
            "use --results on another disk",
        )
    return Finding("disk", "ok", f"{free / 1e9:.0f} GB free in this folder")


def check_gpu_settings(library_name: str = nvml.LIBRARY) -> list[Finding]:
    """Check how the NVIDIA devices are set up. Devices that are set up alike share a finding.

    The list is empty without NVML. Settings that an old driver does not know are left out.
    """
    settings = (nvml.read_settings(device) for device in nvml.list_node_devices(library_name))
    counts = Counter(tuple(each.items()) for each in settings)
    return [_judge_gpu_settings(dict(each), count) for each, count in counts.items()]


def _judge_gpu_settings(settings: Mapping[str, Any], count: int) -> Finding:
    clock_hz, most_clock_hz = settings["application_clock_hz"], settings["most_clock_hz"]
    texts = [
        *(
            f"{words} {'on' if settings[name] else 'off'}"
            for name, words in (("persistence", "persistence mode"), ("mig", "MIG"), ("ecc", "ECC"))
            if settings[name] is not None
        ),
        *([f"compute mode {settings['compute_mode']}"] if settings["compute_mode"] else []),
        *(
            [f"clock set to {clock_hz / 1e6:.0f} MHz of {most_clock_hz / 1e6:.0f}"]
            if clock_hz and most_clock_hz and clock_hz < most_clock_hz
            else []
        ),
    ]
    detail = f"{pluralize(count, 'GPU')}: {', '.join(texts) or 'the driver reports no settings'}"
    if settings["compute_mode"] == "prohibited":
        mend = "as root: nvidia-smi --compute-mode=DEFAULT"
        return Finding("gpu settings", "bad", detail, mend)
    if settings["persistence"] is False:
        mend = "as root: nvidia-smi --persistence-mode=1"
        return Finding("gpu settings", "warn", detail, mend)
    if settings["mig"]:
        return Finding("gpu settings", "warn", detail, "use a whole GPU: instances share its power")
    return Finding("gpu settings", "ok", detail)


def _check_accelerators() -> list[Finding]:
    """Check nvidia-smi's messages, and other processes on NVIDIA devices, if there are any."""
    messages = [
        Finding("nvidia-smi", "warn", f"no GPU model: {message}", "see the message of nvidia-smi")
        for message in machine.list_accelerator_messages()
    ]
    if not machine.list_accelerator_models():
        return messages
    process_names = machine.list_accelerator_processes()
    if process_names:
        mend = "wait until they end, or request an exclusive device"
        return [*messages, Finding("gpu", "warn", f"in use by {', '.join(process_names)}", mend)]
    models = ", ".join(machine.list_accelerator_models())
    return [*messages, Finding("gpu", "ok", f"{models}: not in use")]
