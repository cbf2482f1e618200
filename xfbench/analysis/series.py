"""Launches that differ in their ranks alone, and how those exchange: what `predict` goes by."""

from __future__ import annotations

import statistics as stdlib_statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from xfbench import adapter, exchange
from xfbench.analysis import statistics
from xfbench.base.errors import UsageError
from xfbench.exchange import Algorithm, Bucket
from xfbench.records.machines import machine_class
from xfbench.records.record import Record, is_asynchronous
from xfbench.request import Request
from xfbench.strategy import Strategy, Value
from xfbench.workloads import workloads
from xfbench.workloads.layers import Network

_WIDTH = {"float64": 8}  # bytes of a gradient; of other precisions, whose parameters are float32, 4


@dataclass(frozen=True)
class Launch:
    """One launch: seconds of its median step, of that computing, and of exchange that showed."""

    step: float
    computing: float
    exposed: float


@dataclass(frozen=True)
class Series:
    """Launches that differ in their ranks alone, under one law, and how they exchange.

    `batch_size` is that of an update under strong scaling, of each rank under weak. `groups` has
    launches by (ranks, nodes). `spread` are steps on one rank relative to their launch's median,
    and `payload` the bytes of all gradients.
    """

    title: str
    law: Literal["strong", "weak"]
    batch_size: int
    ranks_per_node: int
    algorithm: Algorithm
    servers: int
    buckets: tuple[Bucket, ...]
    payload: int
    groups: Mapping[tuple[int, int], Sequence[Launch]]
    spread: Sequence[float]

    def images(self, ranks: int) -> int:
        """Of each rank. Raises UsageError where an update's cannot be shared evenly."""
        if self.law == "weak":
            return self.batch_size
        if self.batch_size % ranks:
            raise UsageError(f"{self.batch_size} images cannot be shared evenly by {ranks} ranks")
        return self.batch_size // ranks

    @property
    def most(self) -> int:
        """The largest number of ranks that was measured."""
        return max(ranks for ranks, _ in self.groups)

    def measured(self, ranks: int) -> float | None:
        """Images per second there; None where it was not measured."""
        found = [one for (n, _), group in self.groups.items() if n == ranks for one in group]
        if not found:
            return None
        step = statistics.geometric_interval([one.step for one in found]).value
        return ranks * self.images(ranks) / step


def of(records: Iterable[Record]) -> list[Series]:
    """What the records hold that can be extrapolated: those of one rank belong to every strategy.

    Only launches that are ok and steady, under a law, and of strategies whose ranks wait for one
    another, since of others a step is no common one; of several ranks those that say what a step
    takes without the exchange.
    """
    found: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Record]]]
    found = defaultdict(lambda: defaultdict(list))
    for record in records:
        request = record.request
        if request is None or not request.scaling or not statistics.launches([record]):
            continue
        if is_asynchronous(record) or (request.ranks > 1 and not _computing(record)):
            continue
        how = (request.together, request.ranks // request.nodes) if request.ranks > 1 else ()
        found[_alike(record, request)][how].append(record)
    return [
        _series(group.get((), []), own if how else [])
        for group in found.values()
        for how, own in group.items()
        if how or len(group) == 1
    ]


def _alike(record: Record, request: Request) -> tuple[Any, ...]:
    return (
        *(request.framework, request.workload, request.device, request.precision, request.kernel),
        *(request.threads, request.data, request.data_set, request.affinity, request.scaling),
        request.allocator,
        request.kept_batch_size,
        request.solver,
        machine_class(record.machine),
    )


def _series(alone: Sequence[Record], several: Sequence[Record]) -> Series:
    newest = [*alone, *several][-1]
    last = newest.request
    assert last is not None and last.scaling is not None
    groups: dict[tuple[int, int], list[Launch]] = defaultdict(list)
    for record in (*alone, *several):
        assert record.request is not None
        groups[record.request.ranks, record.request.nodes].append(_launch(record))
    batch_size = last.kept_batch_size
    by = "images per rank" if last.scaling == "weak" else "images per update"
    strategy = adapter.load(last.framework).strategy(last.strategy)
    options = strategy.resolved(dict(last.strategy_options), last.device)
    network, width = workloads()[last.workload].network, _WIDTH.get(last.precision, 4)
    ranks_per_node = last.ranks // last.nodes
    return Series(
        title=f"{last.workload} · {last.framework} · {last.together} · {last.kernel} · "
        f"{last.threads} threads · {last.scaling} scaling, {batch_size} {by} · "
        f"{ranks_per_node} per node · {machine_class(newest.machine)}",
        law=last.scaling,
        batch_size=batch_size,
        ranks_per_node=ranks_per_node,
        algorithm=strategy.algorithm,
        servers=int(options.get("servers", 1)),
        buckets=_buckets(network, strategy, options, width),
        payload=network.learned_count * width,
        groups=groups,
        spread=[
            step / stdlib_statistics.median(record.measurement.step_seconds)
            for record in alone
            if record.measurement
            for step in record.measurement.step_seconds
        ],
    )


def _buckets(
    network: Network, strategy: Strategy, options: Mapping[str, Value], width: int
) -> tuple[Bucket, ...]:
    size = options.get("bucket_size")
    sizes = (size, size) if isinstance(size, int) else strategy.buckets
    if strategy.buckets is None or sizes is None or options.get("overlap") == "off":
        return exchange.SINGLE_BUCKET
    return exchange.gradient_buckets(network, *sizes, width)


def _launch(record: Record) -> Launch:
    assert record.measurement is not None
    step = stdlib_statistics.median(record.measurement.step_seconds)
    told, computing = record.communication, _computing(record)
    if told is None or not computing:
        return Launch(step, step, 0.0)
    shown = stdlib_statistics.median(told.exposed_seconds)
    return Launch(step, stdlib_statistics.median(computing), shown)


def _computing(record: Record) -> Sequence[float]:
    return record.communication.compute_seconds if record.communication else ()
