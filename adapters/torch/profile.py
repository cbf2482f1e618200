"""Layer times of PyTorch, and what a GPU ran, as torch.profiler saw it.

A named range marks each layer. Autograd gives a forward operation and its gradient the same
sequence number. This number shows to which layer a gradient belongs.

Each kernel of a GPU counts once, for the call of CUDA that launched it. PyTorch's own sums may
count a kernel twice, because records of the profiler's overhead claim the kernels of the operation
in which they lie.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as profiler

from xfbench.worker.protocol import Profile

_LAYER, _UPDATE = "xfbench.layer ", "Optimizer.step"
_LAUNCH = "cu"  # functions of CUDA's runtime and of its driver
_GRADIENT = "autograd::engine::evaluate_function"
_MICROSECOND = 1e-6
_CUDNN_OPERATION = "aten::cudnn_"
_GRAPH_LAUNCH = "cudaGraphLaunch"
_NO_KERNELS = ("Memcpy", "Memset")
# Copies between a GPU and the CPU, or another GPU. NCCL copies between GPUs in kernels of its own.
_COPIES = ("Memcpy HtoD", "Memcpy DtoH", "Memcpy PtoP", "nccl")
_MAX_KERNELS = 20  # described, those with the most time
_MAX_NAME_LENGTH = 100


def profile(graph: Any, device: str, run_steps: Callable[[], float]) -> Profile:
    """Run `run_steps` under PyTorch's profiler and return the seconds of each layer of `graph`.

    If `device` is "cuda", these are the seconds of the layer's kernels on the GPU.
    """
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    graph.scope = lambda layer: record_function(_LAYER + layer)
    try:
        with profiler(activities=activities) as recording:
            run_steps()
    finally:
        graph.scope = nullcontext
    recorded = list(recording.events())
    events = [event for event in recorded if event.device_type == DeviceType.CPU]
    if device != "cuda":
        return _sum_by_layer(events, lambda event: _MICROSECOND * event.cpu_time_total)
    seconds, unattributed = _sum_device_seconds(events, _list_device_events(recorded))
    return _sum_by_layer(events, lambda event: seconds[id(event)], unattributed)


@dataclass(frozen=True)
class GpuCalls:
    """What ran on the GPU.

    - `kernels`: how often each kernel ran, by name.
    - `seconds`: the time of each kernel, by name.
    - `cudnn_operations`: how often PyTorch called each of its operations that use cuDNN.
    - `graph_launches`: how often a CUDA graph was launched.
    - `copy_share`: the share of the time of all that ran which was copying to or from the CPU's
      memory or another GPU.
    """

    kernels: Counter[str]
    seconds: Dict[str, float]
    cudnn_operations: Counter[str]
    graph_launches: int
    copy_share: float

    def describe(self) -> list[str]:
        """Return lines with the calls of cuDNN and of graphs, and the kernels by their time."""
        lines = [f"PyTorch called {name} ×{n}" for name, n in sorted(self.cudnn_operations.items())]
        if self.graph_launches:
            lines.append(f"CUDA graphs were launched ×{self.graph_launches}")
        names = sorted(self.seconds, key=lambda name: -self.seconds[name])
        lines += [
            f"the GPU ran {name} ×{self.kernels[name]} in {1e3 * self.seconds[name]:.3g} ms"
            for name in names[:_MAX_KERNELS]
        ]
        if len(names) > _MAX_KERNELS:
            rest = sum(self.seconds[name] for name in names[_MAX_KERNELS:])
            lines.append(f"and {len(names) - _MAX_KERNELS} other kernels in {1e3 * rest:.3g} ms")
        return lines


def record_gpu_calls(work: Callable[[], Any]) -> GpuCalls | None:
    """Run `work` under PyTorch's profiler and return what the GPU ran.

    Returns None if the profiler sees no kernel, for example because the driver does not allow it.
    """
    try:
        with profiler(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recording:
            work()
            torch.cuda.synchronize()
        events = list(recording.events())
    except RuntimeError:
        return None
    operations = Counter(event.name for event in events if event.device_type == DeviceType.CPU)
    kernels: Counter[str] = Counter()
    seconds: Dict[str, float] = defaultdict(float)
    total_seconds = copy_seconds = 0.0
    for event in _list_device_events(events):
        event_seconds = _MICROSECOND * event.time_range.elapsed_us()
        total_seconds += event_seconds
        if event.name.startswith(_COPIES):
            copy_seconds += event_seconds
        if not event.name.startswith(_NO_KERNELS):
            name = _shorten(event.name)
            kernels[name] += 1
            seconds[name] += event_seconds
    if not kernels or not total_seconds:
        return None
    cudnn = Counter(
        {name: n for name, n in operations.items() if name.startswith(_CUDNN_OPERATION)}
    )
    graph_launches, copy_share = operations[_GRAPH_LAUNCH], copy_seconds / total_seconds
    return GpuCalls(kernels, dict(seconds), cudnn, graph_launches, copy_share)


def _sum_device_seconds(
    events: list[Any], device_events: list[Any]
) -> tuple[Dict[int, float], float]:
    """Return the GPU's seconds for each of the CPU's `events`, and those that belong to none.

    The keys are the ids of the Python objects. The seconds of an event include those of its
    children. The call that launches a kernel has the same number in the profiler as the kernel.
    """
    launches = {event.id: event for event in events if event.name.startswith(_LAUNCH)}
    totals: Dict[int, float] = defaultdict(float)
    unattributed = 0.0
    for kernel in device_events:
        seconds = _MICROSECOND * kernel.time_range.elapsed_us()
        event = launches.get(kernel.id)
        if event is None:
            unattributed += seconds
        while event is not None:
            totals[id(event)] += seconds
            event = event.cpu_parent
    return totals, unattributed


def _sum_by_layer(
    events: list[Any], seconds: Callable[[Any], float], unattributed: float = 0.0
) -> Profile:
    forward: Dict[str, float] = defaultdict(float)
    backward: Dict[str, float] = defaultdict(float)
    of: Dict[int, str] = {}
    for event in sorted(events, key=lambda event: event.time_range.start):
        if event.name.startswith(_LAYER):
            layer = event.name[len(_LAYER) :]
            forward[layer] += seconds(event)
            # An operation without a gradient has the number of the next operation that has one.
            of.update(
                {
                    child.sequence_nr: layer
                    for child in _descendants(event)
                    if child.sequence_nr >= 0
                }
            )
    update = 0.0
    for event in events:
        if event.cpu_parent is not None or event.name.startswith(_LAYER):
            continue
        if event.name.startswith(_GRADIENT) and event.sequence_nr in of:
            backward[of[event.sequence_nr]] += seconds(event)
        elif event.name.startswith(_UPDATE):
            update += seconds(event)
        else:
            unattributed += seconds(event)
    name = f"torch.profiler of PyTorch {torch.__version__}"
    return Profile(name, dict(forward), dict(backward), update, unattributed)


def _descendants(event: Any) -> Iterator[Any]:
    for child in event.cpu_children:
        yield child
        yield from _descendants(child)


def _list_device_events(events: list[Any]) -> list[Any]:
    """Return the kernels and copies of the GPU among a profiler's `events`.

    The profiler also reports each named range as an event of the GPU. It spans the kernels of the
    range, so it would count them again.
    """
    ranges = {event.name for event in events if event.device_type == DeviceType.CPU}
    return [
        event
        for event in events
        if event.device_type == DeviceType.CUDA and event.name not in ranges
    ]


def _shorten(name: str) -> str:
    """Return the name of a kernel without its return type and arguments."""
    name = re.sub(r"^void |\(anonymous namespace\)::", "", name)
    return name.partition("(")[0][:_MAX_NAME_LENGTH]
