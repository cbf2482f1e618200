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

from xfbench.records import facts
from xfbench.records.record import Measurement, Record
from xfbench.workloads import WorkloadError, workloads
from xfbench.workloads.layers import Network

PHASES = ("forward", "backward")
_PREFIX = "profile/"
# Such layers do no arithmetic that is counted (see `Network.forward_macs`).
_NOT_KNOWN = "–"


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
        seen = sum(one.seconds for one in self.layers) + self.update_seconds + self.other_seconds
        return max(0.0, self.step_seconds - seen)

    @property
    def kinds(self) -> tuple[LayerTime, ...]:
        """All layers of a kind that has several as one, named by how many they are; longest first.

        `flops` and `share_of_peak` are of those layers' seconds in which operations are counted.
        """
        found: dict[str, list[LayerTime]] = {}
        for one in self.layers:
            if one.kind != _NOT_KNOWN:
                found.setdefault(one.kind, []).append(one)
        together = (_together(kind, own) for kind, own in found.items() if len(own) > 1)
        return tuple(sorted(together, key=lambda one: -one.seconds))


def _together(kind: str, layers: Sequence[LayerTime]) -> LayerTime:
    return LayerTime(
        layer=f"all {len(layers)}",
        kind=kind,
        forward_seconds=math.fsum(one.forward_seconds for one in layers),
        backward_seconds=math.fsum(one.backward_seconds for one in layers),
        flops=_over_all([(one.flops, one.seconds) for one in layers]),
        share_of_peak=_over_all([(one.share_of_peak, one.seconds) for one in layers]),
    )


def _over_all(rates: Sequence[tuple[float | None, float]]) -> float | None:
    """Of rates that are known, each with its seconds."""
    known = [(rate, seconds) for rate, seconds in rates if rate is not None]
    if not known:
        return None
    return math.fsum(rate * s for rate, s in known) / math.fsum(s for _, s in known)


def profile(records: Sequence[Record]) -> Profile | None:
    """The profile of a cell's launches; None where none has one."""
    told = [
        (record, record.measurement)
        for record in records
        if record.status == "ok" and record.measurement and _of_step(record.measurement)
    ]
    if not told:
        return None
    last, _ = told[-1]
    found = {
        name: statistics.median(_seconds(one, name) for _, one in told)
        for name in dict.fromkeys(name for _, one in told for name in one.phases)
        if name.startswith(_PREFIX)
    }
    network = _network(last)
    names = [layer.name for layer in network.layers] if network else _named(found)
    if not names:
        return None
    usual = statistics.median(statistics.median(one.step_seconds) for _, one in told)
    return Profile(
        profiler=(last.observed and last.observed.profiler) or _NOT_KNOWN,
        launches=len(told),
        step_seconds=found[f"{_PREFIX}step"],
        slowdown=found[f"{_PREFIX}step"] / usual,
        update_seconds=found.get(f"{_PREFIX}update", 0.0),
        other_seconds=found.get(f"{_PREFIX}other", 0.0),
        layers=tuple(_layer(name, found, network, last) for name in names),
    )


def _of_step(measured: Measurement) -> float | None:
    """The seconds of a profiled step; None where there is no profile."""
    told = measured.phases.get(f"{_PREFIX}step") if measured.step_seconds else None
    return told if told and math.isfinite(told) and told > 0 else None


def _seconds(measured: Measurement, name: str) -> float:
    """Those of a part of a step; what cannot be a time is none."""
    told = measured.phases.get(name, 0.0)
    return told if math.isfinite(told) and told > 0 else 0.0


def _named(found: dict[str, float]) -> list[str]:
    """The layers in the order that the launch told them in."""
    starts = tuple(f"{_PREFIX}{phase}/" for phase in PHASES)
    told = [
        name.removeprefix(start) for name in found for start in starts if name.startswith(start)
    ]
    return list(dict.fromkeys(told))


def _network(record: Record) -> Network | None:
    """The network that was trained, where we have it still: by its digest, not its name."""
    told = record.workload
    try:
        known = workloads().get(told.name) if told else None
    except WorkloadError:
        return None
    return (
        known.network
        if known and told and facts.workload_facts(known).digest == told.digest
        else None
    )


def _layer(
    name: str, found: dict[str, float], network: Network | None, record: Record
) -> LayerTime:
    forward, backward = (found.get(f"{_PREFIX}{phase}/{name}", 0.0) for phase in PHASES)
    layer = next((one for one in network.layers if one.name == name), None) if network else None
    flops = None
    if layer and network and record.request and forward + backward:
        directions = 2 if layer.inputs == ("data",) else 3
        macs = layer.macs(network.input_shapes(layer)) * directions
        flops = 2 * macs * record.request.batch_size_per_rank / (forward + backward) or None
    return LayerTime(
        layer=name,
        kind=type(layer).__name__ if layer else _NOT_KNOWN,
        forward_seconds=forward,
        backward_seconds=backward,
        flops=flops,
        share_of_peak=flops / record.limit.matrix_product if flops and record.limit else None,
    )
