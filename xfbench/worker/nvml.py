"""The state of this node's NVIDIA devices, as reported by NVML.

xfbench reads the state before and after the timed steps, never during a step. A value that the
device or driver does not report is None and never estimated. Function names, units and constants
are those of NVIDIA's NVML API reference.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Set

LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _GPU_SENSOR = 1, 0
_MAX_NAME_BYTES = 96
_CPU_WORDS = 64  # of a set of CPUs, each with a bit for every CPU
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
_NOT_RECORDED = ("busy", "pids", "foreign")  # what `read_device_state` returns for this module
# By number (nvmlComputeMode_t): how many processes may compute on the device.
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_MAX_NVLINKS = 18
_NVLINK_ENDS = {0: "gpu", 1: "cpu", 2: "switch"}  # nvmlIntNvLinkDeviceType_t
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


class _PciInfo(ctypes.Structure):
    """nvml.h's nvmlPciInfo_t."""

    _fields_ = [
        ("legacy_id", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "slot", "ids", "subsystem")),
        ("id", ctypes.c_char * 32),
    ]

    @property
    def address(self) -> str:
        """The address as `lspci` writes it."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}"


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
    start = find_function(nvml, "nvmlInit_v2", "nvmlInit")
    return None if start is None or start() else nvml


def find_function(library: Any, *names: str) -> Any:
    """Return the first function of `names` that the library has. None if it has none of them.

    Drivers of each year have added functions, and new versions of functions.
    """
    return next((found for name in names if (found := getattr(library, name, None))), None)


class Device(NamedTuple):
    """A device of this node.

    - `library`: the loaded NVML.
    - `handle`: NVML's handle of the GPU, or of the MIG instance.
    """

    library: Any
    handle: Any

    def query(self, function: str, answer: Any, *which: Any) -> Any:
        """Call NVML's `function` for this device to fill in `answer`, and return `answer`.

        `which` are further arguments, before `answer`. Returns None if the function fails, or if
        the library does not have it.
        """
        return _query(find_function(self.library, function), self.handle, answer, *which)

    def query_number(self, function: str, unit: float, *which: int) -> float | None:
        """Return the number that `function` reports, times `unit`.

        The result is None if the function fails or reports 0, because virtual GPUs report 0 for
        numbers that they do not know.
        """
        answer = self.query(function, ctypes.c_uint(), *which)
        return answer.value * unit if answer and answer.value else None

    def query_mode(self, function: str) -> int | None:
        """Return the number of the mode that `function` reports. None if the function fails."""
        answer = self.query(function, ctypes.c_uint())
        return None if answer is None else answer.value

    def query_current_and_pending_mode(self, function: str) -> tuple[int, int] | None:
        """Return two modes: that of now, and that after the next reset. None if unknown."""
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        if self.query(function, pending, ctypes.byref(current)) is None:
            return None
        return current.value, pending.value

    @property
    def name(self) -> str | None:
        """The model of the device. That of a MIG instance contains "MIG"."""
        return _query_text(find_function(self.library, "nvmlDeviceGetName"), self.handle)

    @property
    def uuid(self) -> str | None:
        """The UUID of the device, with the prefix "GPU-" or "MIG-"."""
        return _query_text(find_function(self.library, "nvmlDeviceGetUUID"), self.handle)

    @property
    def has_mig_mode(self) -> bool:
        """Whether the GPU is divided into MIG instances."""
        modes = self.query_current_and_pending_mode("nvmlDeviceGetMigMode")
        return modes is not None and modes[0] == 1


def list_node_devices(library_name: str = LIBRARY) -> List[Device]:
    """Return all GPUs of the node that NVML can open, in PCI bus order."""
    nvml = load_library(library_name)
    count = ctypes.c_uint()
    read_count = find_function(nvml, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
    if read_count is None or read_count(ctypes.byref(count)):
        return []
    return [gpu for number in range(count.value) if (gpu := _device_by_index(nvml, number))]


def list_visible_devices(library_name: str = LIBRARY) -> List[Device] | None:
    """Return the devices that CUDA shows to this process, in CUDA's order. None without NVML.

    They are those in CUDA_VISIBLE_DEVICES. If it is not set, all devices are visible. If one of
    them is divided into MIG instances, CUDA shows only one instance, and no other device.
    """
    nvml = load_library(library_name)
    if not nvml:
        return None
    chosen, devices = os.environ.get("CUDA_VISIBLE_DEVICES"), list_node_devices(library_name)
    visible = devices if chosen is None else _parse_visible_devices(nvml, chosen, devices)
    for device in visible:
        for instance in _list_mig_instances(device):
            return [instance]
    return [device for device in visible if not device.has_mig_mode]


def find_rank_device(
    rank: int, uuid: str | None = None, library_name: str = LIBRARY
) -> Device | None:
    """Return the device that `rank` uses. None if it is unknown, or if NVML is missing.

    - `uuid`: the UUID of the device according to the framework, with or without the prefix; None
      if the framework does not say it. Then adapters have assigned the visible devices to the ranks
      in turn. CUDA_DEVICE_ORDER makes CUDA number the devices like NVML, in PCI bus order.
    """
    visible = list_visible_devices(library_name)
    if visible is None:
        return None
    devices = list_node_devices(library_name)
    assigned = visible[rank % len(visible)] if visible else None
    if uuid is None:
        return assigned
    named = [
        each for each in (*visible, *devices) if _without_prefix(each.uuid) == _without_prefix(uuid)
    ]
    if named and named[0].has_mig_mode:  # the framework has named the GPU of its MIG instance
        return assigned
    return named[0] if named else None


def read_settings(device: Device) -> Dict[str, Any]:
    """Return how the administrator has set up the device. A setting is None if it is unknown.

    - `persistence`, `mig`, `ecc`: whether persistence mode, MIG or error correction is on
    - `compute_mode`: a name in `_COMPUTE_MODES`
    - `application_clock_hz`, `most_clock_hz`: the clock that applications get, and the highest one
    """
    mig, ecc = (
        device.query_current_and_pending_mode(f"nvmlDeviceGet{kind}Mode") for kind in ("Mig", "Ecc")
    )
    persistence = device.query_mode("nvmlDeviceGetPersistenceMode")
    compute_mode = device.query_mode("nvmlDeviceGetComputeMode")
    return {
        "persistence": None if persistence is None else persistence == 1,
        "mig": None if mig is None else mig[0] == 1,
        "ecc": None if ecc is None else ecc[0] == 1,
        "compute_mode": None if compute_mode is None else _COMPUTE_MODES.get(compute_mode),
        "application_clock_hz": device.query_number(
            "nvmlDeviceGetApplicationsClock", 1e6, _SM_CLOCK
        ),
        "most_clock_hz": device.query_number("nvmlDeviceGetMaxClockInfo", 1e6, _SM_CLOCK),
    }


def energy_joules(device: Device) -> float | None:
    """Return the joules that the device has used since its driver was loaded. None if unknown."""
    used = device.query("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong())
    return None if used is None else float(used.value / 1e3)


def busy_share(device: Device) -> float | None:
    """Return the share of NVML's last sample period in which a kernel ran. None if unknown."""
    utilization = device.query("nvmlDeviceGetUtilizationRates", _Utilization())
    return None if utilization is None else float(utilization.gpu / 100)


def slowed_seconds(device: Device) -> Dict[str, float]:
    """Return for how long each cause has held the clock down since the driver was loaded.

    Causes that the device does not count are left out.
    """
    violations = {
        cause: device.query("nvmlDeviceGetViolationStatus", _Violation(), policy)
        for cause, policy in _POLICIES.items()
    }
    return {cause: violation.held / 1e9 for cause, violation in violations.items() if violation}


def describe_connections(device: Device) -> Dict[str, Any]:
    """Return what connects the device.

    - `address`: its PCI address, which tells devices apart. None if unknown.
    - `nvlinks`: for each active NVLink, the `kind` of what it leads to ("gpu", "cpu", "switch", or
      None if unknown), and the `address` of that.
    - `pcie_generation`, `pcie_lanes`: the most that the device and its slot can do. None if
      unknown.
    """
    nvlinks = []
    for link in range(_MAX_NVLINKS):
        state = device.query("nvmlDeviceGetNvLinkState", ctypes.c_uint(), link)
        if state is None or state.value != 1:
            continue
        kind = device.query("nvmlDeviceGetNvLinkRemoteDeviceType", ctypes.c_uint(), link)
        remote = device.query("nvmlDeviceGetNvLinkRemotePciInfo_v2", _PciInfo(), link)
        nvlinks.append(
            {
                "kind": None if kind is None else _NVLINK_ENDS.get(kind.value),
                "address": remote and remote.address,
            }
        )
    own = device.query("nvmlDeviceGetPciInfo_v3", _PciInfo())
    return {
        "address": own and own.address,
        "nvlinks": nvlinks,
        "pcie_generation": device.query_mode("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_lanes": device.query_mode("nvmlDeviceGetMaxPcieLinkWidth"),
    }


def cpus_near(device: Device) -> Set[int]:
    """Return the CPUs of the NUMA node or socket to which the device is attached.

    The result is empty if NVML does not know them.
    """
    words = (ctypes.c_ulong * _CPU_WORDS)()
    function = find_function(device.library, "nvmlDeviceGetCpuAffinity")
    if function is None or function(device.handle, ctypes.c_uint(_CPU_WORDS), words):
        return set()
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    return {cpu for cpu in range(_CPU_WORDS * bits) if words[cpu // bits] >> cpu % bits & 1}


def list_cpus_near_ranks(
    ranks: Sequence[int], shares_gpus: bool, library_name: str = LIBRARY
) -> List[Set[int]]:
    """Return the CPUs near the GPU of each of `ranks`, which are all ranks of this node.

    Return an empty list if this process sees fewer GPUs than ranks. Then the launcher may show each
    rank only its own GPU, so the GPUs of the other ranks are unknown.

    - `shares_gpus`: whether ranks may use the same GPU, so that fewer GPUs may be all there are.
    """
    visible = list_visible_devices(library_name) or []
    if len(visible) < len(ranks) and not shares_gpus:
        return []
    devices = [find_rank_device(rank, None, library_name) for rank in ranks]
    return [cpus_near(device) if device else set() for device in devices]


def read_device_before_launch(device: Device) -> Dict[str, Any]:
    """Return the state of the rank's device (`read_device_state`) before the launch uses it.

    Without persistence mode, the driver starts on the first query. Then an idle device reports
    itself as busy for a moment. Therefore a busy device is read again, up to three times in all,
    and the lowest utilization is returned as "busy".
    """
    reading = read_device_state(device)
    for _ in range(_SAMPLES - 1):
        if not reading["busy"]:
            break
        time.sleep(_SAMPLE_SECONDS)
        least_busy, reading = reading["busy"], read_device_state(device)
        if reading["busy"] is not None:
            reading["busy"] = min(reading["busy"], least_busy)
    return reading


def read_device_state(device: Device) -> Dict[str, Any]:
    """Return the state of the device in SI units.

    Besides the fields of a record, the state has these:

    - `busy`: the share of time for which the device is busy.
    - `pids`: the process ids that NVML lists; None if it lists none at all.
    - `foreign`: the names of those processes that do not belong to this launch.
    """
    memory = device.query("nvmlDeviceGetMemoryInfo", _Memory())
    # NVML has two names for this function. Drivers of all versions provide the older one.
    reasons = device.query("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong())
    pids = _list_process_ids(device)
    uuid = device.uuid
    driver = find_function(device.library, "nvmlSystemGetDriverVersion")
    return {
        "name": device.name,
        "uuid_hash": uuid and hashlib.sha256(uuid.encode()).hexdigest()[:16],
        "driver": _query_text(driver),
        "clock_hz": device.query_number("nvmlDeviceGetClockInfo", 1e6, _SM_CLOCK),
        "most_clock_hz": device.query_number("nvmlDeviceGetMaxClockInfo", 1e6, _SM_CLOCK),
        "temperature_celsius": device.query_number("nvmlDeviceGetTemperature", 1.0, _GPU_SENSOR),
        "power_limit_watts": device.query_number("nvmlDeviceGetEnforcedPowerLimit", 1e-3),
        "memory_bytes": memory and memory.used,
        "memory_of_bytes": memory and memory.total,
        "busy": busy_share(device),
        "slowed_by": [cause for bit, cause in _REASONS.items() if reasons and reasons.value & bit],
        "pids": pids,
        "foreign": _foreign_process_names(pids or []),
    }


def use_device_of_framework(
    device: Device | None, before: Dict[str, Any] | None, rank: int, uuid: str | None
) -> tuple[Device | None, Dict[str, Any] | None]:
    """Return the device with this UUID, and its state before the launch.

    - `device`, `before`: the device that was expected, and its state.
    - `uuid`: the UUID of the device according to the framework; None if it does not say it.

    If the framework uses another device than expected, the launch already occupies it. Then it is
    unknown how busy it was before.
    """
    named = find_rank_device(rank, uuid) if uuid else device
    if named is None or (device and named.handle.value == device.handle.value):
        return named, named and before
    return named, {**read_device_state(named), "busy": None, "pids": []}


def describe_device_after_launch(before: Dict[str, Any], device: Device) -> Dict[str, Any]:
    """Return what a record stores about the rank's device. Call it while the rank still uses it.

    `before` is the result of `read_device_before_launch`.

    NVML may list the process ids of the host, which mean other processes in a container. Then the
    other processes are unknown (None). This is so if NVML does not list this process, although it
    computes on the device, or if it listed this process before.
    """
    after = read_device_state(device)
    pids_match = (
        before["pids"] is not None
        and os.getpid() not in before["pids"]
        and os.getpid() in (after["pids"] or ())
    )
    foreign = max(before["foreign"], after["foreign"], key=len)
    return {
        **{name: value for name, value in after.items() if name not in _NOT_RECORDED},
        "busy_before": before["busy"],
        "others": foreign if pids_match else None,
    }


def _list_process_ids(device: Device) -> List[int] | None:
    """Return the ids of the processes that compute on the device, according to NVML."""
    for version, kind in _PROCESSES.items():
        function = find_function(device.library, "nvmlDeviceGetComputeRunningProcesses" + version)
        count, processes = ctypes.c_uint(_MAX_PROCESSES), (kind * _MAX_PROCESSES)()
        if function and not function(device.handle, ctypes.byref(count), processes):
            return [process.pid for process in processes[: count.value]]
    return None


def _foreign_process_names(pids: List[int], folder: Path = Path("/proc")) -> List[str]:
    """Return the names of those processes that do not belong to this launch.

    Processes whose working folder is the launch's folder belong to the launch. Processes that
    `/proc` does not list are left out: they have ended or belong to another PID namespace.
    """
    names = []
    here = str(Path.cwd())
    for pid in pids:
        try:
            is_same_launch = os.readlink(folder / str(pid) / "cwd") == here
            name = (folder / str(pid) / "comm").read_text(errors="replace").strip()
        except PermissionError:  # another user's process
            is_same_launch, name = False, "a process"
        except OSError:  # the process has ended or belongs to another PID namespace
            continue
        if not is_same_launch:
            names.append(name)
    return names


def _parse_visible_devices(nvml: Any, text: str, devices: List[Device]) -> List[Device]:
    """Return the devices that a value of CUDA_VISIBLE_DEVICES names.

    The rules are CUDA's (CUDA C++ Programming Guide, "CUDA Environment Variables"; PyTorch's
    `torch.cuda._parse_visible_devices`):

    - An entry is a number, the UUID of a GPU, or a MIG instance. All are of the kind of the first.
    - A UUID may be shortened if only one GPU's UUID starts like this.
    - An entry that names no device ends the list.
    - A list that names a device twice is empty.
    - Of several MIG instances, CUDA shows the first.
    """
    visible: List[Device] = []
    entries = [entry.strip() for entry in text.split(",")]
    for entry in entries:
        device = None
        if entry[:4] == entries[0][:4] == "GPU-":
            matching = [gpu for gpu in devices if (gpu.uuid or "").startswith(entry)]
            device = matching[0] if len(matching) == 1 else None
        elif entry[:4] == entries[0][:4] == "MIG-":
            device = _find_mig_instance(entry, devices)
        elif (number := re.match(r"\+?\d+", entry)) and re.match(r"\+?\d", entries[0]):
            device = _device_by_index(nvml, int(number[0]))
        if device is None:
            break
        visible.append(device)
    if len({device.handle.value for device in visible}) < len(visible):
        return []
    return visible[:1] if entries[0].startswith("MIG-") else visible


def _find_mig_instance(name: str, devices: List[Device]) -> Device | None:
    """Return the MIG instance with this UUID, or with the name "MIG-GPU-UUID/INSTANCE/INSTANCE".

    The latter names a GPU, a GPU instance and a compute instance, as drivers before 470 do.
    """
    gpu_uuid, _, numbers = name[4:].partition("/")
    for gpu in devices:
        for instance in _list_mig_instances(gpu):
            if instance.uuid == name:
                return instance
            instance_numbers = [
                instance.query_mode(f"nvmlDeviceGet{kind}InstanceId") for kind in ("Gpu", "Compute")
            ]
            if gpu.uuid == gpu_uuid and numbers == "/".join(map(str, instance_numbers)):
                return instance
    return None


def _list_mig_instances(gpu: Device) -> Iterator[Device]:
    """Yield the MIG instances of a GPU. A GPU without MIG mode has none."""
    count = gpu.query_mode("nvmlDeviceGetMaxMigDeviceCount") if gpu.has_mig_mode else None
    for number in range(count or 0):
        handle = gpu.query("nvmlDeviceGetMigDeviceHandleByIndex", ctypes.c_void_p(), number)
        if handle:
            yield Device(gpu.library, handle)


def _device_by_index(nvml: Any, number: int) -> Device | None:
    handle = ctypes.c_void_p()
    names = "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"
    open_device = find_function(nvml, *names)
    failed = open_device is None or open_device(number, ctypes.byref(handle))
    return None if failed else Device(nvml, handle)


def _without_prefix(uuid: str | None) -> str:
    return re.sub("^(GPU|MIG)-", "", uuid or "").lower()


def _query(function: Any, handle: Any, answer: Any, *which: Any) -> Any:
    """Call `function` to fill in `answer`, and return `answer`.

    `which` are further arguments of `function`. Returns None if `function` is None or fails.
    """
    if function is None or function(handle, *which, ctypes.byref(answer)):
        return None
    return answer


def _query_text(function: Any, *handle: Any) -> str | None:
    answer = ctypes.create_string_buffer(_MAX_NAME_BYTES)
    failed = function is None or function(*handle, answer, ctypes.c_uint(_MAX_NAME_BYTES))
    return None if failed else answer.value.decode(errors="replace")
