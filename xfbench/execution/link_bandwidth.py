"""The bandwidth of this host's links: between NUMA nodes, between CPUs and GPUs, between GPUs.

Each pair of places is measured by copies in a process of its own kind: `worker/memory_copy.py` in
NumPy, pinned to a NUMA node, and `adapters/torch/copies.py` in PyTorch's environment. Each copied
byte counts once, so that a figure is that of one direction of a link.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tabulate import tabulate

from xfbench.base import processes, tool_output
from xfbench.base.errors import UnavailableError, XfbenchError
from xfbench.base.process_variables import Purpose
from xfbench.environments import environment, worker_archive
from xfbench.host import roofline
from xfbench.model import adapter
from xfbench.statistics import Interval, median_interval
from xfbench.worker import affinity, nvml, placement, system_files

_FRAMEWORK = "torch"  # whose environment measures GPUs
_MAX_COPY_BYTES = 2**30  # much larger than caches
_MAX_MEMORY_SHARE = 1 / 8  # of the free memory, for each of the two arrays of a copy
_GPU_COPY_BYTES = 256 * 2**20
_ROUNDS = 6  # minimum and maximum of six rounds are a 97 % interval of the median
_TIMEOUT_S = 600.0
_MIN_SHARE_ON_NODE = 0.99
# B/s of one lane in each direction, by generation (PCI-SIG's base specifications).
_PCIE_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}

Kind = Literal["memory", "cpu-gpu", "gpu-gpu"]


@dataclass(frozen=True)
class Node:
    """A NUMA node of this host.

    - `number`: None if the system does not number its nodes.
    - `cpus`: a CPU of each core that this process may use; empty if the node has only memory.
    - `socket`: None if unknown.
    """

    number: int | None
    cpus: tuple[int, ...]
    socket: int | None

    @property
    def name(self) -> str:
        """Return the name of the node's memory."""
        if self.number is None:
            return "memory"
        socket = "" if self.socket is None else f" (socket {self.socket})"
        return f"memory of node {self.number}{socket}"


@dataclass(frozen=True)
class LinkSpeed:
    """The measured bandwidth from one place to another.

    - `kind`: "memory" is between NUMA nodes, or within one.
    - `link`: what connects the places, in words; "": unknown.
    - `is_direct`: whether two GPUs have a link of their own or through a switch; None: unknown, or
      not two GPUs.
    - `bytes_per_second`: the median of the rounds with its interval; None: see `reason`.
    - `peak_bytes_per_second`: the theoretical peak of the link; None if unknown.
    """

    kind: Kind
    source: str
    target: str
    link: str = ""
    is_direct: bool | None = None
    bytes_per_second: Interval | None = None
    peak_bytes_per_second: float | None = None
    reason: str | None = None

    @property
    def share_of_peak(self) -> float | None:
        """The median as a share of the peak; None if one of them is unknown."""
        if self.bytes_per_second is None or not self.peak_bytes_per_second:
            return None
        return self.bytes_per_second.value / self.peak_bytes_per_second


def measure_links() -> tuple[list[LinkSpeed], list[str]]:
    """Measure all links of this host. Return their speeds, and notes on what has no figure."""
    nodes = list_nodes(os.sched_getaffinity(0))
    speeds = measure_memory(nodes)
    if not nvml.list_visible_devices():
        absent = "one NUMA node and no NVIDIA GPU" if len(nodes) == 1 else "no NVIDIA GPU"
        nothing = ": there is nothing between to measure" if len(nodes) == 1 else ""
        return speeds, [f"This host has {absent}{nothing}."]
    gpu_speeds, gpu_note = measure_gpus()
    node_note = "This host has one NUMA node." if len(nodes) == 1 else ""
    return [*speeds, *gpu_speeds], [*filter(None, (node_note, gpu_note))]


def list_nodes(
    allowed_cpus: set[int],
    cpu_folder: Path = affinity.CPU_FOLDER,
    node_folder: Path = placement.NODE_FOLDER,
) -> list[Node]:
    """Return the NUMA nodes that have memory, or CPUs that this process may use.

    The folders are the system's. Without them, the host is one node.
    """
    cores = affinity.list_cores(allowed_cpus, cpu_folder)
    with_memory = placement.numa_nodes("has_memory", node_folder)
    nodes = []
    for folder in sorted(node_folder.glob("node[0-9]*"), key=lambda folder: int(folder.name[4:])):
        number, all_cpus = int(folder.name[4:]), placement.read_number_list(folder / "cpulist")
        cpus = tuple(core[0] for core in cores if core[0] in all_cpus)
        if cpus or number in with_memory:
            nodes.append(Node(number, cpus, _find_socket(all_cpus, cpu_folder)))
    return nodes or [Node(None, tuple(core[0] for core in cores), None)]


def _find_socket(cpus: set[int], cpu_folder: Path) -> int | None:
    """Return the socket of all of these CPUs. None if they have several, or if it is unknown."""
    files = [cpu_folder / f"cpu{cpu}" / "topology" / "physical_package_id" for cpu in cpus]
    texts = {system_files.read_system_file(file) for file in files}
    text = texts.pop() if len(texts) == 1 else None
    return int(text) if text and text.isdecimal() else None


def measure_memory(nodes: Sequence[Node]) -> list[LinkSpeed]:
    """Measure copies to the memory of each node with CPUs, from that of each node.

    The CPUs of the target copy, with a thread on each core.
    """
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = min(_MAX_COPY_BYTES, int(_MAX_MEMORY_SHARE * free_bytes)) // 2**20 * 2**20
    speeds = []
    for target in nodes:
        for source in nodes if target.cpus else ():
            job = {
                "cpus": target.cpus,
                "source": source.number,
                "target": target.number,
                "source_cpus": source.cpus,
                "size_bytes": size,
                "rounds": _ROUNDS,
            }
            speeds.append(_measure_memory_copy(source, target, job))
    return speeds


def _measure_memory_copy(source: Node, target: Node, job: Mapping[str, Any]) -> LinkSpeed:
    link = "within the node" if source is target else ""
    if source is not target and None not in (source.socket, target.socket):
        is_same_socket = source.socket == target.socket
        link = "within the socket" if is_same_socket else "between sockets"
    speed = LinkSpeed("memory", source.name, target.name, link)
    command = [sys.executable, "-P", "-m", "xfbench.worker.memory_copy", json.dumps(job)]
    try:
        printed = processes.output(command, purpose=Purpose.MEASUREMENT, timeout=_TIMEOUT_S)
        reply = tool_output.read_json_object(printed)
    except (XfbenchError, ValueError) as error:
        return replace(speed, reason=str(error))
    for node, share in zip((source, target), reply["shares"], strict=True):
        if share is not None and share < _MIN_SHARE_ON_NODE:
            return replace(speed, reason=f"only {share:.0%} of the copy was in the {node.name}")
    return _with_rounds(speed, job["size_bytes"], reply["seconds"])


def measure_gpus() -> tuple[list[LinkSpeed], str]:
    """Measure copies between the CPU's memory and each GPU, and between GPUs.

    Return their speeds, and why there are none; "" if there are some. Call it only with a GPU.
    """
    job = {"size_bytes": _GPU_COPY_BYTES, "rounds": _ROUNDS}
    try:
        reply = _measure_in_framework(job)
    except (XfbenchError, ValueError) as error:
        return [], f"The GPUs were not measured: {error}."
    if not reply["gpus"]:
        return [], "The GPUs were not measured: PyTorch finds none of them."
    gpus = [_describe_gpu(number, gpu["uuid"]) for number, gpu in enumerate(reply["gpus"])]
    speeds = []
    for copy in reply["copies"]:
        ends = [None if end is None else gpus[end] for end in (copy["source"], copy["target"])]
        speeds.append(_with_rounds(_describe_link(*ends), job["size_bytes"], copy["seconds"]))
    return speeds, ""


def _measure_in_framework(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of `adapters/torch/copies.py`, run in the environment of PyTorch.

    Raises UnavailableError without that environment, and CommandError if the copies fail.
    """
    framework_adapter = adapter.load(_FRAMEWORK)
    framework = environment.find_environment(framework_adapter)
    if framework is None:
        raise UnavailableError(
            f"PyTorch is not installed here: run `xfbench env create {_FRAMEWORK}`"
        )
    kernel = framework_adapter.kernels_on("cuda")[0]
    variables = framework.variables(framework_adapter, kernel, 1)
    archive = worker_archive.ensure_worker_archive(_FRAMEWORK)
    module = f"xfbench.adapters.{_FRAMEWORK}.copies"
    printed = processes.output(
        [str(framework.interpreter), "-m", module, json.dumps(job)],
        environment={**variables, "PYTHONPATH": str(archive)},
        cwd=archive.parent,  # "-m" imports from the working folder first
        timeout=_TIMEOUT_S,
    )
    return tool_output.read_json_object(printed)


@dataclass(frozen=True)
class _Gpu:
    """A GPU: its name in tables, and its `nvml.describe_connections` with the peak of a link."""

    name: str
    address: str | None
    nvlinks: Sequence[Mapping[str, Any]]
    nvlink_peak: float | None
    pcie_peak: float | None
    pcie: str

    def count_nvlinks(self, kind: str, address: str | None = None) -> int:
        """Return the number of NVLinks to this kind of end, and to this address if it is given."""
        return sum(
            link["kind"] == kind and address in (None, link["address"]) for link in self.nvlinks
        )

    def nvlinks_peak(self, count: int) -> float | None:
        """Return the peak of so many NVLinks in one direction."""
        return None if self.nvlink_peak is None else count * self.nvlink_peak


def _describe_gpu(number: int, uuid: str | None) -> _Gpu:
    device = nvml.find_rank_device(number, uuid)
    connections: dict[str, Any] = nvml.describe_connections(device) if device else {}
    model = (device.name if device else None) or ""
    peaks = [
        machine["nvlink"]
        for machine in roofline.load_published_peaks().values()
        if machine["name"] in model and "nvlink" in machine
    ]
    generation, lanes = (connections.get(f"pcie_{name}") for name in ("generation", "lanes"))
    lane_peak = _PCIE_LANE.get(generation or 0)
    return _Gpu(
        name=f"GPU {number}",
        address=connections.get("address"),
        nvlinks=connections.get("nvlinks", ()),
        nvlink_peak=peaks[0] if peaks else None,
        pcie_peak=lanes * lane_peak if lanes and lane_peak else None,
        pcie=f"PCIe {generation}.0 ×{lanes}" if lanes and lane_peak else "",
    )


def _describe_link(source: _Gpu | None, target: _Gpu | None) -> LinkSpeed:
    """Return the link between two GPUs, or between the CPU (None) and a GPU, without its speed."""
    from_name, to_name = (end.name if end else "CPU memory" for end in (source, target))
    is_direct: bool | None = None
    if source is None or target is None:
        gpu = source or target
        assert gpu
        link, peak = gpu.pcie, gpu.pcie_peak
        if count := gpu.count_nvlinks("cpu"):
            link, peak = f"{count} NVLinks", gpu.nvlinks_peak(count)
        return LinkSpeed("cpu-gpu", from_name, to_name, link, is_direct, peak_bytes_per_second=peak)
    link, peak, is_direct = "indirect", None, False
    if target.address and (count := source.count_nvlinks("gpu", target.address)):
        link, peak, is_direct = f"{count} NVLinks", source.nvlinks_peak(count), True
    elif count := min(source.count_nvlinks("switch"), target.count_nvlinks("switch")):
        link, peak, is_direct = f"{count} NVLinks to a switch", source.nvlinks_peak(count), True
    return LinkSpeed("gpu-gpu", from_name, to_name, link, is_direct, peak_bytes_per_second=peak)


def _with_rounds(speed: LinkSpeed, size_bytes: int, seconds: Sequence[float]) -> LinkSpeed:
    rates = [size_bytes / duration_s for duration_s in seconds]
    return replace(speed, bytes_per_second=median_interval(rates))


def build_document(speeds: Sequence[LinkSpeed], notes: Sequence[str]) -> dict[str, Any]:
    """Return the document that `machine --links --json` prints."""
    links = [{**asdict(speed), "share_of_peak": speed.share_of_peak} for speed in speeds]
    return {"links": links, "notes": list(notes)}


def format_lines(speeds: Sequence[LinkSpeed], notes: Sequence[str]) -> list[str]:
    """Return the lines that `machine --links` prints."""
    rows = []
    for speed in speeds:
        rate, peak = speed.bytes_per_second, speed.peak_bytes_per_second
        share = speed.share_of_peak
        figure = "–"
        if rate:
            figure = f"{rate.value / 1e9:.3g}"
            if rate.low is not None and rate.high is not None:
                figure += f" ({rate.low / 1e9:.3g} – {rate.high / 1e9:.3g})"
        rows.append(
            [
                *(speed.source, speed.target, speed.link or "–", figure),
                "–" if peak is None else f"{peak / 1e9:.3g}",
                "–" if share is None else f"{share:.0%}",
            ]
        )
    headers = ["from", "to", "link", "GB/s", "peak", "of peak"]
    table = tabulate(rows, headers, tablefmt="simple", disable_numparse=True)
    reasons = [f"{each.source} to {each.target}: {each.reason}." for each in speeds if each.reason]
    return [
        *table.splitlines(),
        f"Medians of {_ROUNDS} copies with 95 % intervals. Each copied byte counts once.",
        *reasons,
        *notes,
    ]
