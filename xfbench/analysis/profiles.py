"""Time that each layer takes in a step, from launches with `--profile`.

The framework's own profiler measures a few steps after the timed steps. A profiler slows steps
down, and adds up work that runs at the same time. So its seconds show where the time goes, not how
fast a framework is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from xfbench.host.roofline import usual_matrix_product
from xfbench.model import facts
from xfbench.model.record import Measurement, Record
from xfbench.workloads import WorkloadError, workloads
from xfbench.workloads.layers import Layer, Network

PHASES = ("forward", "backward")
PROFILE_PREFIX = "profile/"
# Shown for the kind of a layer, or the name of a profiler, that is unknown.
_UNKNOWN = "–"
# Bytes of a value. In 16-bit precisions, some layers use 32 bits, so the bytes are unknown.
_VALUE_BYTES = {"float32": 4, "tf32": 4, "float64": 8}


@dataclass(frozen=True)
class LayerTime:
    """The time of one layer in a step, for the batch of one rank.

    - `layer`: name of the layer, or "all 5" for the sum of five layers.
    - `kind`: type of the layer, for example "Convolution".
    - `flops`: floating-point operations per second. A multiply-add counts as two operations. None
      if the layer is unknown, took no time, or has no counted multiply-adds.
    - `share_of_peak`: `flops` divided by the rate of a matrix product on the same device; None if
      one of these rates is unknown.
    - `bytes_per_second`: the least bytes that a layer without counted multiply-adds reads and
      writes, per second. The forward pass reads the inputs and writes the output. The backward pass
      reads the gradient of the output and writes that of the inputs. None if the layer or the size
      of a value is unknown, if the layer took no time, or if it has `flops`.
    - `share_of_bandwidth`: `bytes_per_second` divided by the memory bandwidth of the device. Caches
      are faster than memory, so it may exceed 1. None if one of these rates is unknown.
    """

    layer: str
    kind: str
    forward_seconds: float
    backward_seconds: float
    flops: float | None
    share_of_peak: float | None
    bytes_per_second: float | None
    share_of_bandwidth: float | None

    @property
    def seconds(self) -> float:
        """Return the seconds of the forward and the backward pass together."""
        return self.forward_seconds + self.backward_seconds


@dataclass(frozen=True)
class Profile:
    """The profile of one cell. All seconds are per step, and medians over the profiled launches.

    - `profiler`: name of the framework's profiler.
    - `launches`: number of profiled launches.
    - `step_seconds`: duration of a step while the profiler runs.
    - `slowdown`: `step_seconds` divided by the median timed step.
    - `update_seconds`: time of operations that update the weights.
    - `other_seconds`: time of operations that belong neither to a layer nor to the update.
    - `workload_digest`: digest of the workload that defines the layers; None if it is unknown.
    """

    profiler: str
    launches: int
    step_seconds: float
    slowdown: float
    update_seconds: float
    other_seconds: float
    workload_digest: str | None
    layers: tuple[LayerTime, ...]

    @property
    def outside_all_operations_seconds(self) -> float:
        """Return the seconds of a step that the profiler counted in no operation; at least 0."""
        return max(0.0, self.step_seconds - self.operation_seconds)

    @property
    def operation_seconds(self) -> float:
        """Return the sum of the seconds of all operations.

        It may exceed `step_seconds`, because operations that run at the same time all count.
        """
        layer_seconds = sum(layer.seconds for layer in self.layers)
        return layer_seconds + self.update_seconds + self.other_seconds

    @property
    def multi_layer_kind_totals(self) -> tuple[LayerTime, ...]:
        """Return the total time of each kind that has several layers, longest time first.

        Rates and shares are means over the kind's layers for which they are known.
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
        flops=_time_weighted_mean_of_known_rates(
            [(layer.flops, layer.seconds) for layer in layers]
        ),
        share_of_peak=_time_weighted_mean_of_known_rates(
            [(layer.share_of_peak, layer.seconds) for layer in layers]
        ),
        bytes_per_second=_time_weighted_mean_of_known_rates(
            [(layer.bytes_per_second, layer.seconds) for layer in layers]
        ),
        share_of_bandwidth=_time_weighted_mean_of_known_rates(
            [(layer.share_of_bandwidth, layer.seconds) for layer in layers]
        ),
    )


def _time_weighted_mean_of_known_rates(
    rates_and_seconds: Sequence[tuple[float | None, float]],
) -> float | None:
    """Return the mean of the rates that are not None, weighted by their seconds.

    Returns None if all rates are None.
    """
    weighted_rates = [(rate, seconds) for rate, seconds in rates_and_seconds if rate is not None]
    if not weighted_rates:
        return None
    return math.fsum(rate * s for rate, s in weighted_rates) / math.fsum(
        s for _, s in weighted_rates
    )


def build_profile(records: Sequence[Record]) -> Profile | None:
    """Return the profile of a cell, or None if no ok launch has one."""
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
        name: statistics.median(
            _phase_seconds_or_zero(measurement, name) for _, measurement in launches
        )
        for name in dict.fromkeys(
            name for _, measurement in launches for name in measurement.phases
        )
        if name.startswith(PROFILE_PREFIX)
    }
    network = _find_trained_network(last)
    names = [layer.name for layer in network.layers] if network else _layer_names(phase_seconds)
    if not names:
        return None
    timed_step_seconds = statistics.median(
        statistics.median(measurement.step_seconds) for _, measurement in launches
    )
    return Profile(
        profiler=(last.observed and last.observed.profiler) or _UNKNOWN,
        launches=len(launches),
        step_seconds=phase_seconds[f"{PROFILE_PREFIX}step"],
        slowdown=phase_seconds[f"{PROFILE_PREFIX}step"] / timed_step_seconds,
        update_seconds=phase_seconds.get(f"{PROFILE_PREFIX}update", 0.0),
        other_seconds=phase_seconds.get(f"{PROFILE_PREFIX}other", 0.0),
        workload_digest=last.workload.digest if last.workload else None,
        layers=tuple(_build_layer_time(name, phase_seconds, network, last) for name in names),
    )


def _profiled_step_seconds(measurement: Measurement) -> float | None:
    """Return the seconds of a step under the profiler, or None if the launch has no profile."""
    seconds = measurement.phases.get(f"{PROFILE_PREFIX}step") if measurement.step_seconds else None
    return seconds if seconds and math.isfinite(seconds) and seconds > 0 else None


def _phase_seconds_or_zero(measurement: Measurement, name: str) -> float:
    """Return the seconds of phase `name`, or 0 if it is missing, negative or not finite."""
    seconds = measurement.phases.get(name, 0.0)
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _layer_names(phase_seconds: dict[str, float]) -> list[str]:
    """Return the names of layers in the keys of `phase_seconds`, in their order."""
    starts = tuple(f"{PROFILE_PREFIX}{phase}/" for phase in PHASES)
    names = [
        name.removeprefix(start)
        for name in phase_seconds
        for start in starts
        if name.startswith(start)
    ]
    return list(dict.fromkeys(names))


def _find_trained_network(record: Record) -> Network | None:
    """Return the network of the record's workload.

    Returns None if there is no such workload now, or if its digest is not the recorded one.
    """
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
    forward, backward = (
        phase_seconds.get(f"{PROFILE_PREFIX}{phase}/{name}", 0.0) for phase in PHASES
    )
    layer = (
        next((layer for layer in network.layers if layer.name == name), None) if network else None
    )
    flops = bytes_per_second = None
    if layer and network and record.request and forward + backward:
        images_per_second = record.request.batch_size_per_rank / (forward + backward)
        directions = 2 if layer.inputs == ("data",) else 3
        macs = layer.macs(network.input_shapes(layer)) * directions
        flops = 2 * macs * images_per_second or None
        if not macs:
            value_bytes = _VALUE_BYTES.get(record.request.precision, 0)
            values = _values_read_and_written(layer, network)
            bytes_per_second = value_bytes * values * images_per_second or None
    limit = record.limit
    peak = usual_matrix_product(limit) if limit else None
    return LayerTime(
        layer=name,
        kind=type(layer).__name__ if layer else _UNKNOWN,
        forward_seconds=forward,
        backward_seconds=backward,
        flops=flops,
        share_of_peak=flops / peak.value if flops and peak else None,
        bytes_per_second=bytes_per_second,
        share_of_bandwidth=bytes_per_second / limit.memory_bandwidth
        if bytes_per_second and limit and limit.memory_bandwidth > 0
        else None,
    )


def _values_read_and_written(layer: Layer, network: Network) -> int:
    """Return the least number of values that a layer reads and writes per image in training.

    Each pass touches each input and the output once. A layer that reads the images computes no
    gradient of its input, so only its forward pass counts.
    """
    shapes = [*network.input_shapes(layer), network.shapes[layer.name]]
    passes = 1 if layer.inputs == ("data",) else 2
    return passes * sum(map(math.prod, shapes))
