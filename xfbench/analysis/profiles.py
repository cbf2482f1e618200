"""Where a step's time goes, layer by layer: what launches with `--profile` brought along.

The seconds are a framework's own profiler's, of a few steps after those that are measured. A
profiler slows steps down, and counts what runs at once each by itself: they say where the time
goes, and never how fast a framework is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from xfbench.model import facts
from xfbench.model.record import Measurement, Record
from xfbench.workloads import WorkloadError, workloads
from xfbench.workloads.layers import Network

PHASES = ("forward", "backward")
_PREFIX = "profile/"
# Such layers do no arithmetic that is counted (see `Network.forward_macs`).
_UNKNOWN = "–"


@dataclass(frozen=True)
class LayerTime:
    """A layer of a step: its kind, and per direction its seconds and operations per second.

    `flops`: of convolutions and inner products, two operations per multiply-add, over the
    whole batch of a rank; `share_of_peak` that of the cores' matrix product. None where there
    is nothing to count, or where it is not known.
    """

    layer: str
    kind: str
    forward_seconds: float
    backward_seconds: float
    flops: float | None
    share_of_peak: float | None

    @property
    def seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds


@dataclass(frozen=True)
class Profile:
    """Of one cell: medians over its launches that are ok, in seconds of a step.

    `step_seconds` is what a step took under the `profiler`, `slowdown` that relative to the
    timed ones. `update_seconds` changed the weights; `other_seconds` belong to no layer.
    """

    profiler: str
    launches: int
    step_seconds: float
    slowdown: float
    update_seconds: float
    other_seconds: float
    layers: tuple[LayerTime, ...]

    @property
    def unseen_seconds(self) -> float:
        """What passed and no operation was seen in: the framework between its operations."""
        seen_seconds = (
            sum(layer.seconds for layer in self.layers) + self.update_seconds + self.other_seconds
        )
        return max(0.0, self.step_seconds - seen_seconds)

    @property
    def kinds(self) -> tuple[LayerTime, ...]:
        """All layers of a kind that has several as one, named by how many they are; longest first.

        `flops` and `share_of_peak` are of those layers' seconds in which operations are counted.
        """
        layers_by_kind: dict[str, list[LayerTime]] = {}
        for layer in self.layers:
            if layer.kind != _UNKNOWN:
                layers_by_kind.setdefault(layer.kind, []).append(layer)
        kind_times = (
            _merge_layers(kind, layers)
            for kind, layers in layers_by_kind.items()
            if len(layers) > 1
        )
        return tuple(sorted(kind_times, key=lambda layer: -layer.seconds))


def _merge_layers(kind: str, layers: Sequence[LayerTime]) -> LayerTime:
    return LayerTime(
        layer=f"all {len(layers)}",
        kind=kind,
        forward_seconds=math.fsum(layer.forward_seconds for layer in layers),
        backward_seconds=math.fsum(layer.backward_seconds for layer in layers),
        flops=_mean_rate([(layer.flops, layer.seconds) for layer in layers]),
        share_of_peak=_mean_rate([(layer.share_of_peak, layer.seconds) for layer in layers]),
    )


def _mean_rate(rates: Sequence[tuple[float | None, float]]) -> float | None:
    """Of rates that are known, each with its seconds."""
    weighted_rates = [(rate, seconds) for rate, seconds in rates if rate is not None]
    if not weighted_rates:
        return None
    return math.fsum(rate * s for rate, s in weighted_rates) / math.fsum(
        s for _, s in weighted_rates
    )


def profile(records: Sequence[Record]) -> Profile | None:
    """The profile of a cell's launches; None where none has one."""
    launches = [
        (record, record.measurement)
        for record in records
        if record.status == "ok"
        and record.measurement
        and _profiled_step_seconds(record.measurement)
    ]
    if not launches:
        return None
    last, _ = launches[-1]
    phase_seconds = {
        name: statistics.median(_phase_seconds(measurement, name) for _, measurement in launches)
        for name in dict.fromkeys(
            name for _, measurement in launches for name in measurement.phases
        )
        if name.startswith(_PREFIX)
    }
    network = _find_network(last)
    names = [layer.name for layer in network.layers] if network else _layer_names(phase_seconds)
    if not names:
        return None
    timed_step_seconds = statistics.median(
        statistics.median(measurement.step_seconds) for _, measurement in launches
    )
    return Profile(
        profiler=(last.observed and last.observed.profiler) or _UNKNOWN,
        launches=len(launches),
        step_seconds=phase_seconds[f"{_PREFIX}step"],
        slowdown=phase_seconds[f"{_PREFIX}step"] / timed_step_seconds,
        update_seconds=phase_seconds.get(f"{_PREFIX}update", 0.0),
        other_seconds=phase_seconds.get(f"{_PREFIX}other", 0.0),
        layers=tuple(_build_layer_time(name, phase_seconds, network, last) for name in names),
    )


def _profiled_step_seconds(measurement: Measurement) -> float | None:
    """The seconds of a profiled step; None where there is no profile."""
    seconds = measurement.phases.get(f"{_PREFIX}step") if measurement.step_seconds else None
    return seconds if seconds and math.isfinite(seconds) and seconds > 0 else None


def _phase_seconds(measurement: Measurement, name: str) -> float:
    """Those of a part of a step; what cannot be a time is none."""
    seconds = measurement.phases.get(name, 0.0)
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _layer_names(phase_seconds: dict[str, float]) -> list[str]:
    """The layers in the order that the launch told them in."""
    starts = tuple(f"{_PREFIX}{phase}/" for phase in PHASES)
    names = [
        name.removeprefix(start)
        for name in phase_seconds
        for start in starts
        if name.startswith(start)
    ]
    return list(dict.fromkeys(names))


def _find_network(record: Record) -> Network | None:
    """The network that was trained, where we have it still: by its digest, not its name."""
    workload = record.workload
    try:
        current_workload = workloads().get(workload.name) if workload else None
    except WorkloadError:
        return None
    return (
        current_workload.network
        if current_workload
        and workload
        and facts.workload_facts(current_workload).digest == workload.digest
        else None
    )


def _build_layer_time(
    name: str, phase_seconds: dict[str, float], network: Network | None, record: Record
) -> LayerTime:
    forward, backward = (phase_seconds.get(f"{_PREFIX}{phase}/{name}", 0.0) for phase in PHASES)
    layer = (
        next((layer for layer in network.layers if layer.name == name), None) if network else None
    )
    flops = None
    if layer and network and record.request and forward + backward:
        directions = 2 if layer.inputs == ("data",) else 3
        macs = layer.macs(network.input_shapes(layer)) * directions
        flops = 2 * macs * record.request.batch_size_per_rank / (forward + backward) or None
    return LayerTime(
        layer=name,
        kind=type(layer).__name__ if layer else _UNKNOWN,
        forward_seconds=forward,
        backward_seconds=backward,
        flops=flops,
        share_of_peak=flops / record.limit.matrix_product if flops and record.limit else None,
    )
