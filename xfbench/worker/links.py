"""Bytes sent and received over a node's links, read from counters and never estimated.

The links are network interfaces, InfiniBand ports, NVLinks and PCIe. If a kind of link has no
counter, the report says why.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Dict, List, Tuple

from xfbench.worker import nvml

# By (kind, name) of the link: (bytes sent, bytes received) since an arbitrary time.
Reading = Dict[Tuple[str, str], Tuple[int, int]]

_NET, _INFINIBAND = Path("/sys/class/net"), Path("/sys/class/infiniband")
# By kind of link: NVML's field ids for data sent and received by the device, and the unit in bytes.
# NVLink's fields cover all NVLinks of the device.
_FIELDS = {"nvlink": (138, 139, 1024), "pcie": (197, 198, 1)}
_ALL_LINKS = 2**32 - 1
_WORD_BYTES = 4  # InfiniBand counts words


class _Field(ctypes.Structure):
    """The struct nvmlFieldValue_t of nvml.h."""

    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("type", ctypes.c_int),
        ("result", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    ]


class LinkMeter:
    """A meter of the bytes over the node's links since `restart`. Pauses are not counted.

    Of NVIDIA devices, only the links of `gpu` count, the rank's own. `device` is "cpu" or "cuda".
    """

    def __init__(self, device: str, gpu: nvml.Device | None = None) -> None:
        self.device, self.gpu = device, gpu
        self.restart()

    def restart(self) -> None:
        """Restart counting from 0."""
        self.before, self.uncounted = self._read()

    def pause(self) -> None:
        """Stop counting until `resume`."""
        self.paused = self._read()[0]

    def resume(self) -> None:
        """Continue counting after `pause`."""
        for name, (sent, received) in self._read()[0].items():
            start, paused = self.before.get(name, (0, 0)), self.paused.get(name, (0, 0))
            self.before[name] = start[0] + sent - paused[0], start[1] + received - paused[1]

    def report(self, steps: int) -> Dict[str, Any]:
        """Return the traffic of each link per step. `steps` is the number of steps since `restart`.

        - `links`: the bytes sent and received per step, and the speed of each link
        - `uncounted`: the reasons by kind of link, for links that were not counted

        A link whose counters are 0 is left out. A counter that decreased has restarted. The link of
        such a counter is left out, and `uncounted` gives the reason.
        """
        link_rows: List[Dict[str, Any]] = []
        for (kind, name), after in self._read()[0].items():
            if not any(after):
                continue
            begun = self.before.get((kind, name), (0, 0))
            sent, received = after[0] - begun[0], after[1] - begun[1]
            if sent < 0 or received < 0:
                self.uncounted[kind] = f"the counter of {name} restarted"
                continue
            link_rows.append(
                {
                    "kind": kind,
                    "name": name,
                    "sent_bytes": sent / max(1, steps),
                    "received_bytes": received / max(1, steps),
                    "bits_per_second": _link_bits_per_second(kind, name),
                }
            )
        return {"links": link_rows, "uncounted": dict(self.uncounted)}

    def _read(self) -> Tuple[Reading, Dict[str, str]]:
        return read_counters_and_missing_reasons(self.device, self.gpu)


def read_counters_and_missing_reasons(
    device: str, gpu: nvml.Device | None = None
) -> Tuple[Reading, Dict[str, str]]:
    """Return (counters, reasons) of this node's links, and of the links of the rank's `gpu`.

    - Counters: (bytes sent, bytes received) by (kind, name) of the link.
    - Reasons: why no counter was read, by kind of link.

    `device` is "cpu" or "cuda".
    """
    counters = _read_network_counters()
    added, without = _infiniband_counters_and_reasons()
    counters.update(added)
    added, more = _nvidia_counters_and_reasons(device, gpu)
    counters.update(added)
    return counters, {**without, **more}


def _read_network_counters() -> Reading:
    """Read the counters of every network interface (proc(5)).

    The loopback interface counts the traffic within the node.
    """
    lines = Path("/proc/net/dev").read_text(errors="replace").strip("\n").split("\n")[2:]
    fields = {name.strip(): rest.split() for name, _, rest in (ln.partition(":") for ln in lines)}
    return {
        ("loopback" if name == "lo" else "network", name): (int(counted[8]), int(counted[0]))
        for name, counted in fields.items()
    }


def _infiniband_counters_and_reasons(folder: Path = _INFINIBAND) -> Tuple[Reading, Dict[str, str]]:
    """Read the counters of every InfiniBand port.

    The result is as in `read_counters_and_missing_reasons`. The counters of network interfaces do
    not include traffic of InfiniBand verbs. Therefore the ports' own counters are needed.
    """
    port_counters: Reading = {}
    for port in sorted(folder.glob("*/ports/*")):
        counters = port / "counters"
        try:
            sent, received = (
                int((counters / name).read_bytes()) * _WORD_BYTES
                for name in ("port_xmit_data", "port_rcv_data")
            )
        except (OSError, ValueError):
            return {}, {"infiniband": "the counters of its ports cannot be read"}
        port_counters["infiniband", f"{port.parent.parent.name}:{port.name}"] = sent, received
    return port_counters, {} if port_counters else {"infiniband": "there is no InfiniBand port"}


def _nvidia_counters_and_reasons(
    device: str, gpu: nvml.Device | None
) -> Tuple[Reading, Dict[str, str]]:
    """Read the NVLink and PCIe counters of the rank's NVIDIA device.

    The result is as in `read_counters_and_missing_reasons`. If `device` is not "cuda", the reasons
    say so. Bytes that leave a device count as sent. A link's name is the number of the device on
    its node, as NVML counts.
    """
    if device != "cuda":
        return {}, dict.fromkeys(_FIELDS, "no rank used an NVIDIA device")
    if gpu is None:
        return {}, dict.fromkeys(_FIELDS, "NVML is missing or does not know the rank's device")
    number = gpu.query_mode("nvmlDeviceGetIndex")
    name = "?" if number is None else str(number)
    counters: Reading = {}
    without: Dict[str, str] = {}
    for kind, (out, into, unit) in _FIELDS.items():
        counted = _read_sent_and_received_in_nvml_units(gpu, kind, (out, into))
        if counted is None:
            without[kind] = "the device has no such counter"
        else:
            counters[kind, name] = counted[0] * unit, counted[1] * unit
    return counters, without


def _read_sent_and_received_in_nvml_units(
    gpu: nvml.Device, kind: str, field_ids: Tuple[int, int]
) -> Tuple[int, int] | None:
    scope = _ALL_LINKS if kind == "nvlink" else 0
    values = (_Field * 2)(*(_Field(field=field, scope=scope) for field in field_ids))
    read_values = nvml.find_function(gpu.library, "nvmlDeviceGetFieldValues")
    if read_values is None or read_values(gpu.handle, 2, ctypes.byref(values)):
        return None
    if any(value.result for value in values):
        return None
    return values[0].value, values[1].value


def _link_bits_per_second(
    kind: str, name: str, folder: Path = _NET, ports: Path = _INFINIBAND
) -> float | None:
    """Return the link's speed per direction in bits per second. None if it is not reported."""
    try:
        if kind == "network":
            speed = int((folder / name / "speed").read_bytes())
            return speed * 1e6 if speed > 0 else None
        if kind == "infiniband":
            device, _, port = name.rpartition(":")
            return float((ports / device / "ports" / port / "rate").read_bytes().split()[0]) * 1e9
    except (OSError, ValueError, IndexError):
        pass
    return None
