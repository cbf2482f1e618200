"""Layer times of PyTorch, measured by torch.profiler with a named range for each layer.

Autograd gives a forward operation and its gradient the same sequence number. This number shows to
which layer a gradient belongs.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext
from typing import Any, Callable, Dict, Iterator

import torch
from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as profiler

from xfbench.worker.protocol import Profile

_LAYER, _UPDATE = "xfbench.layer ", "Optimizer.step"
_GRADIENT = "autograd::engine::evaluate_function"
_MICROSECOND = 1e-6


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
    events = [
        event for event in recording.events() if event.device_type == torch.autograd.DeviceType.CPU
    ]
    field = "device_time_total" if device == "cuda" else "cpu_time_total"
    return _sum_by_layer(events, lambda event: _MICROSECOND * getattr(event, field))


def _sum_by_layer(events: list[Any], seconds: Callable[[Any], float]) -> Profile:
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
    update = unattributed = 0.0
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
