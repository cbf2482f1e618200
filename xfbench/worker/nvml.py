"""NVIDIA devices of this node as reported by NVML.

They are read before and after timed steps, never during one. A value that the device or driver
does not report is None and never estimated. Names, units and numbers follow NVIDIA's NVML API
reference.
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
# Reasons for low clocks, by NVML's bits (nvmlClocksEventReasons). The reason "idle" is left out.
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
# Counters of the time for which clocks were held down, by NVML's numbers (nvmlPerfPolicyType_t).
_POLICIES = {"power": 0, "thermal": 1, "sync boost": 2, "board limit": 3, "reliability": 5}


class _Memory(ctypes.Structure):
    """nvml.h's nvmlMemory_t."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Utilization(ctypes.Structure):
    """nvml.h's nvmlUtilization_t, in percent of the time of the device's last sample."""

    _fields_ = [(name, ctypes.c_uint) for name in ("gpu", "memory")]


class _Violation(ctypes.Structure):
    """nvml.h's nvmlViolationTime_t: `moment` in microseconds, `held` in nanoseconds."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("moment", "held")]


class _ProcessV1(ctypes.Structure):
    """nvml.h's nvmlProcessInfo_v1_t, the only one before driver 450."""

    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    """nvml.h's nvmlProcessInfo_v2_t, which version 3 of the functions uses too."""

    _fields_ = [
        *_ProcessV1._fields_,
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


# The functions that list processes, and the struct that each fills in; the latest version first.
_PROCESSES = {"_v3": _Process, "_v2": _Process, "": _ProcessV1}


@lru_cache(maxsize=None)
def load_library(library_name: str = LIBRARY) -> Any:
    """Return NVML, initialized. None if the library or a driver is missing."""
    try:
        nvml = ctypes.CDLL(library_name)
    except OSError:
        return None
    return None if nvml.nvmlInit_v2() else nvml


def device_handles(nvml: Any) -> List[Any]:
    """Return all devices of the node in PCI bus order."""
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    return [_handle_by_index(nvml, number) for number in range(count.value)]


def rank_device_handle(nvml: Any, rank: int) -> Any:
    """Return the device of a rank, among those in CUDA_VISIBLE_DEVICES. None if there is none.

    Adapters number visible devices by PCI order (CUDA_DEVICE_ORDER) and assign them to the ranks
    in turn.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        visible = device_handles(nvml)
    else:
        names = [name.strip() for name in chosen.split(",") if name.strip()]
        visible = [
            _handle_by_index(nvml, int(name)) if name.isdigit() else _handle_by_uuid(nvml, name)
            for name in names
        ]
    return visible[rank % len(visible)] if visible else None


def energy_joules(rank: int, library_name: str = LIBRARY) -> float | None:
    """Return the joules that the rank's device used since its driver was loaded."""
    nvml = load_library(library_name)
    handle = nvml and rank_device_handle(nvml, rank)
    if not handle:
        return None
    used = _query(nvml.nvmlDeviceGetTotalEnergyConsumption, handle, ctypes.c_ulonglong())
    return None if used is None else float(used.value / 1e3)


def read_device_before_launch(rank: int, library_name: str = LIBRARY) -> Dict[str, Any] | None:
    """Return the state of the rank's device (`read_device`) before the launch uses the device.

    Without persistence mode the driver starts on the first query. An idle device then reports
    itself as busy for a moment. Therefore several samples are taken, and the lowest utilization is
    returned.
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
    """Return the state of the rank's device in SI units. None if there is no device or no NVML."""
    nvml = load_library(library_name)
    handle = nvml and rank_device_handle(nvml, rank)
    if not handle:
        return None

    def query(function: str, answer: Any, *which: int) -> Any:
        return _query(getattr(nvml, function, None), handle, answer, *which)

    def query_number(function: str, unit: float, *which: int) -> float | None:
        """Return the value, or None if it is 0: a virtual GPU reports 0 for unknown values."""
        answer = query(function, ctypes.c_uint(), *which)
        return answer.value * unit if answer and answer.value else None

    memory = query("nvmlDeviceGetMemoryInfo", _Memory())
    utilization = query("nvmlDeviceGetUtilizationRates", _Utilization())
    # The function has two names. This is the older one, which later drivers also provide.
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
    """Return the record's fields of the device: its state now and the changes since `before`.

    Returns None if the device no longer answers.
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

    All ranks of a launch work in the launch's folder, and no other process does. If this process
    computes but is not listed, the listed processes are of another namespace, and nothing can be
    said about them.
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
        except OSError:  # a process of another namespace, or one that has ended
            continue
        if not is_same_launch:
            names.append(named)
    return names


def _handle_by_index(nvml: Any, number: int) -> Any:
    handle = ctypes.c_void_p()
    failed = nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle))
    return None if failed else handle


def _handle_by_uuid(nvml: Any, identity: str) -> Any:
    """Return the device of an entry in CUDA_VISIBLE_DEVICES: a UUID with its prefix GPU or MIG."""
    handle = ctypes.c_void_p()
    failed = nvml.nvmlDeviceGetHandleByUUID(identity.encode(), ctypes.byref(handle))
    return None if failed else handle


def _query(function: Any, handle: Any, answer: Any, *which: int) -> Any:
    """Call `function` to fill in `answer`. Return None if the library or device lacks it."""
    if function is None or function(handle, *which, ctypes.byref(answer)):
        return None
    return answer


def _query_text(function: Any, *handle: Any) -> str | None:
    answer = ctypes.create_string_buffer(_MAX_NAME_BYTES)
    failed = function(*handle, answer, ctypes.c_uint(_MAX_NAME_BYTES))
    return None if failed else answer.value.decode(errors="replace")
