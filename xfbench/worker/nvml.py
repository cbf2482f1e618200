"""The state of this node's NVIDIA devices, as reported by NVML.

xfbench reads the state before and after the timed steps, never during a step. A value that the
device or driver does not report is None and never estimated. Function names, units and constants
are those of NVIDIA's NVML API reference.
"""

from __future__ import annotations

import ctypes
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List

LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _GPU_SENSOR = 1, 0
_MAX_NAME_BYTES = 96
_MAX_PROCESSES = 256
# Each utilization sample covers 1/6 s to 1 s, depending on the device type.
_SAMPLE_SECONDS, _SAMPLES = 1.0, 3
# Reasons for low clocks, by bit (nvmlClocksEventReasons). The reason "idle" is left out.
_REASONS = {
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x100: "display clocks",
}
# Causes of low clocks whose durations NVML counts, with their numbers (nvmlPerfPolicyType_t).
_POLICIES = {"power": 0, "thermal": 1, "sync boost": 2, "board limit": 3, "reliability": 5}


class _Memory(ctypes.Structure):
    """nvml.h's nvmlMemory_t: sizes in bytes."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Utilization(ctypes.Structure):
    """nvml.h's nvmlUtilization_t: busy time in percent of the duration of the last sample."""

    _fields_ = [(name, ctypes.c_uint) for name in ("gpu", "memory")]


class _Violation(ctypes.Structure):
    """nvml.h's nvmlViolationTime_t.

    - `moment`: the time of the reading in microseconds.
    - `held`: the total time with lowered clocks in nanoseconds.
    """

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("moment", "held")]


class _ProcessV1(ctypes.Structure):
    """nvml.h's nvmlProcessInfo_v1_t, the only version before driver 450."""

    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    """nvml.h's nvmlProcessInfo_v2_t.

    The functions whose names end with "_v2" or "_v3" fill it in (see `_PROCESSES`).
    """

    _fields_ = [
        *_ProcessV1._fields_,
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


# Suffixes of the functions that list processes, each with its struct. The latest version is first.
_PROCESSES = {"_v3": _Process, "_v2": _Process, "": _ProcessV1}


@lru_cache(maxsize=None)
def load_library(library_name: str = LIBRARY) -> Any:
    """Load and initialize NVML. Return None if the library or a driver is missing."""
    try:
        nvml = ctypes.CDLL(library_name)
    except OSError:
        return None
    return None if nvml.nvmlInit_v2() else nvml


def all_node_device_handles(nvml: Any) -> List[Any]:
    """Return the handles of all devices of the node, in PCI bus order.

    A device that NVML cannot open is None in the list.
    """
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    return [_handle_by_index(nvml, number) for number in range(count.value)]


def rank_device_handle(nvml: Any, rank: int) -> Any:
    """Return the handle of the device that `rank` uses, or None if there is no visible device.

    Visible devices are those in CUDA_VISIBLE_DEVICES. If it is not set, all devices are visible.
    Adapters number visible devices in PCI order (CUDA_DEVICE_ORDER) and assign them to the ranks
    in turn.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        visible = all_node_device_handles(nvml)
    else:
        names = [name.strip() for name in chosen.split(",") if name.strip()]
        visible = [
            _handle_by_index(nvml, int(name)) if name.isdigit() else _handle_by_uuid(nvml, name)
            for name in names
        ]
    return visible[rank % len(visible)] if visible else None


def energy_joules(rank: int, library_name: str = LIBRARY) -> float | None:
    """Return the joules that the rank's device has used since its driver was loaded.

    Returns None if NVML or the device is missing, or if the device does not report its energy.
    """
    nvml = load_library(library_name)
    handle = nvml and rank_device_handle(nvml, rank)
    if not handle:
        return None
    used = _query(nvml.nvmlDeviceGetTotalEnergyConsumption, handle, ctypes.c_ulonglong())
    return None if used is None else float(used.value / 1e3)


def read_device_before_launch(rank: int, library_name: str = LIBRARY) -> Dict[str, Any] | None:
    """Return the state of the rank's device (`read_device_state`) before the launch uses it.

    Without persistence mode, the driver starts on the first query. Then an idle device reports
    itself as busy for a moment. Therefore a busy device is read again, up to three times in all,
    and the lowest utilization is returned as "busy".
    """
    reading = read_device_state(rank, library_name)
    for _ in range(_SAMPLES - 1):
        if not reading or not reading["busy"]:
            break
        time.sleep(_SAMPLE_SECONDS)
        least_busy, reading = reading["busy"], read_device_state(rank, library_name)
        if reading and reading["busy"] is not None:
            reading["busy"] = min(reading["busy"], least_busy)
    return reading


def read_device_state(rank: int, library_name: str = LIBRARY) -> Dict[str, Any] | None:
    """Return the state of the rank's device in SI units, or None without a device or NVML."""
    nvml = load_library(library_name)
    handle = nvml and rank_device_handle(nvml, rank)
    if not handle:
        return None

    def query(function: str, answer: Any, *which: int) -> Any:
        return _query(getattr(nvml, function, None), handle, answer, *which)

    def query_number(function: str, unit: float, *which: int) -> float | None:
        """Return the number that `function` reports, times `unit`.

        `which` are further arguments of `function`. The result is None if the function fails or
        reports 0, because virtual GPUs report 0 for numbers that they do not know.
        """
        answer = query(function, ctypes.c_uint(), *which)
        return answer.value * unit if answer and answer.value else None

    memory = query("nvmlDeviceGetMemoryInfo", _Memory())
    utilization = query("nvmlDeviceGetUtilizationRates", _Utilization())
    # NVML has two names for this function. Drivers of all versions provide the older one.
    reasons = query("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong())
    held = {
        cause: query("nvmlDeviceGetViolationStatus", _Violation(), policy)
        for cause, policy in _POLICIES.items()
    }
    return {
        "name": _query_text(nvml.nvmlDeviceGetName, handle),
        "driver": _query_text(nvml.nvmlSystemGetDriverVersion),
        "clock_hz": query_number("nvmlDeviceGetClockInfo", 1e6, _SM_CLOCK),
        "most_clock_hz": query_number("nvmlDeviceGetMaxClockInfo", 1e6, _SM_CLOCK),
        "temperature_celsius": query_number("nvmlDeviceGetTemperature", 1.0, _GPU_SENSOR),
        "power_limit_watts": query_number("nvmlDeviceGetEnforcedPowerLimit", 1e-3),
        "memory_bytes": memory and memory.used,
        "memory_of_bytes": memory and memory.total,
        "busy": utilization and utilization.gpu / 100,
        "slowed_by": [cause for bit, cause in _REASONS.items() if reasons and reasons.value & bit],
        "held": {cause: violation.held / 1e9 for cause, violation in held.items() if violation},
        "others": _foreign_process_names(nvml, handle),
    }


def state_and_changes_since(
    before: Dict[str, Any], rank: int, library_name: str = LIBRARY
) -> Dict[str, Any] | None:
    """Return what a record stores about the rank's device: its state, and changes since `before`.

    `before` is an earlier result of `read_device_state` for the same device. Returns None if the
    device no longer answers.
    """
    after = read_device_state(rank, library_name)
    if after is None:
        return None
    record_fields = {
        field: value for field, value in after.items() if field not in ("busy", "held")
    }
    return {
        **record_fields,
        "busy_before": before["busy"],
        "slowed_seconds": {
            cause: seconds - before["held"][cause]
            for cause, seconds in after["held"].items()
            if seconds >= before["held"].get(cause, float("inf"))
        },
        "others": list(dict.fromkeys([*before["others"], *after["others"]])),
    }


def _foreign_process_names(nvml: Any, handle: Any, processes: Path = Path("/proc")) -> List[str]:
    """Return names of processes that compute on the device and do not belong to this launch.

    Processes whose working folder is the launch's folder belong to the launch. Processes that
    `/proc` does not list are left out: they have ended or belong to another PID namespace.
    """
    for version, kind in _PROCESSES.items():
        function = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses" + version, None)
        count, processes_found = ctypes.c_uint(_MAX_PROCESSES), (kind * _MAX_PROCESSES)()
        if function and not function(handle, ctypes.byref(count), processes_found):
            break
    else:
        return []
    names = []
    here = str(Path.cwd())
    for process in processes_found[: count.value]:
        try:
            is_same_launch = os.readlink(processes / str(process.pid) / "cwd") == here
            named = (processes / str(process.pid) / "comm").read_text().strip()
        except PermissionError:  # another user's process
            is_same_launch, named = False, "a process"
        except OSError:  # the process has ended or belongs to another PID namespace
            continue
        if not is_same_launch:
            names.append(named)
    return names


def _handle_by_index(nvml: Any, number: int) -> Any:
    handle = ctypes.c_void_p()
    failed = nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle))
    return None if failed else handle


def _handle_by_uuid(nvml: Any, identity: str) -> Any:
    """Return the device whose UUID is `identity`, with the prefix "GPU-" or "MIG-"."""
    handle = ctypes.c_void_p()
    failed = nvml.nvmlDeviceGetHandleByUUID(identity.encode(), ctypes.byref(handle))
    return None if failed else handle


def _query(function: Any, handle: Any, answer: Any, *which: int) -> Any:
    """Call `function` to fill in `answer`, and return `answer`.

    `which` are further arguments of `function`. Returns None if `function` is None or fails.
    """
    if function is None or function(handle, *which, ctypes.byref(answer)):
        return None
    return answer


def _query_text(function: Any, *handle: Any) -> str | None:
    answer = ctypes.create_string_buffer(_MAX_NAME_BYTES)
    failed = function(*handle, answer, ctypes.c_uint(_MAX_NAME_BYTES))
    return None if failed else answer.value.decode(errors="replace")
