"""Series of launches that differ only in ranks and nodes. `predict` extrapolates them."""

from __future__ import annotations

import statistics as stdlib_statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xfbench import statistics
from xfbench.base.errors import UsageError
from xfbench.base.wording import pluralize
from xfbench.environments import allocators
from xfbench.model import adapter, communication_cost
from xfbench.model.communication_cost import Algorithm, Bucket
from xfbench.model.machines import machine_class_of_record
from xfbench.model.record import Record, is_asynchronous
from xfbench.model.request import (
    Request,
    Scaling,
    count_ranks_sharing_a_batch,
    describe_batch_share,
)
from xfbench.model.strategy import Strategy, Value
from xfbench.workloads import workloads
from xfbench.workloads.layers import Network

# Bytes per gradient value; 4 for all other precisions, because their parameters are float32.
_GRADIENT_BYTES = {"float64": 8}


@dataclass(frozen=True)
class Launch:
    """Median seconds of one launch.

    - `step_seconds`: duration of a timed step.
    - `computing_seconds`: duration of a step that a rank does alone, without the exchange. If the
      launch measured no communication, this is `step_seconds`.
    - `exposed_seconds`: exposed part of the exchange in a step. If the launch measured no
      communication, this is 0.
    """

    step_seconds: float
    computing_seconds: float
    exposed_seconds: float


@dataclass(frozen=True)
class Series:
    """Launches that differ only in ranks and nodes, and a description of their exchange.

    - `title`: the settings that most often differ between series.
    - `further_settings`: texts of the other settings that are equal in all launches, by name.
    - `law`: the scaling law of all these launches.
    - `batch_size`: images per update under strong scaling, else per rank or node.
    - `algorithm`: algorithm of the exchange.
    - `servers`: number of parameter servers.
    - `buckets`: the buckets into which a rank's gradients are divided for the exchange.
    - `payload_bytes`: size of all gradients of a rank.
    - `groups`: launches by (ranks, nodes).
    - `relative_steps`: each step on one rank, divided by the median step of its launch.
    """

    title: str
    further_settings: Mapping[str, str]
    law: Scaling
    batch_size: int
    ranks_per_node: int
    algorithm: Algorithm
    servers: int
    buckets: tuple[Bucket, ...]
    payload_bytes: int
    groups: Mapping[tuple[int, int], Sequence[Launch]]
    relative_steps: Sequence[float]

    def images_per_rank(self, ranks: int) -> int:
        """Return the batch size per rank on `ranks` ranks.

        Raises UsageError if the ranks cannot share the images of an update evenly.
        """
        nodes = max(1, ranks // self.ranks_per_node)
        sharing = count_ranks_sharing_a_batch(self.law, ranks, nodes)
        if self.batch_size % sharing:
            raise UsageError(f"{self.batch_size} images cannot be shared evenly by {sharing} ranks")
        return self.batch_size // sharing

    @property
    def max_ranks(self) -> int:
        """Return the largest measured number of ranks."""
        return max(ranks for ranks, _ in self.groups)

    def measured_speed(self, ranks: int) -> float | None:
        """Return the measured images per second on `ranks` ranks, or None without a launch."""
        launches = [
            launch for (n, _), group in self.groups.items() if n == ranks for launch in group
        ]
        if not launches:
            return None
        step_seconds = statistics.median_interval(
            [launch.step_seconds for launch in launches]
        ).value
        return ranks * self.images_per_rank(ranks) / step_seconds


def list_distinct_titles(series: Sequence[Series]) -> list[str]:
    """Return the titles. Equal ones also have the further settings in which their series differ."""
    titles = []
    for each in series:
        namesakes = [namesake for namesake in series if namesake.title == each.title]
        differing = [
            f"{name} {text}"
            for name, text in each.further_settings.items()
            if any(namesake.further_settings[name] != text for namesake in namesakes)
        ]
        titles.append(" · ".join([each.title, *differing]))
    return titles


def build_scaling_series(records: Iterable[Record]) -> list[Series]:
    """Group records into series of launches that `predict` can extrapolate.

    These launches are left out:

    - Launches that do not count in statistics, or that have no scaling law.
    - Launches of asynchronous strategies, because their ranks share no step.
    - Launches of several ranks that did not measure computing without the exchange.

    A launch on one rank belongs to the series of every strategy.
    """
    records_by_series: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Record]]]
    records_by_series = defaultdict(lambda: defaultdict(list))
    for record in records:
        request = record.request
        if (
            request is None
            or not request.scaling
            or not statistics.counted_speeds_by_block([record])
        ):
            continue
        if is_asynchronous(record) or (request.ranks > 1 and not _solo_step_seconds(record)):
            continue
        exchange_key = (
            (request.strategy_text, request.ranks // request.nodes) if request.ranks > 1 else ()
        )
        records_by_series[_series_key(record, request)][exchange_key].append(record)
    return [
        _assemble_series(group.get((), []), multi_rank if exchange_key else [])
        for group in records_by_series.values()
        for exchange_key, multi_rank in group.items()
        if exchange_key or len(group) == 1
    ]


def _series_key(record: Record, request: Request) -> tuple[Any, ...]:
    return (
        *(request.framework, request.workload, request.device, request.precision, request.kernel),
        *(request.threads, request.data, request.data_set, request.affinity, request.scaling),
        request.allocator,
        request.fixed_batch_size,
        request.changed_solver_text,
        machine_class_of_record(record),
    )


def _assemble_series(single_rank: Sequence[Record], multi_rank: Sequence[Record]) -> Series:
    newest_record = [*single_rank, *multi_rank][-1]
    request = newest_record.request
    assert request is not None and request.scaling is not None
    groups: dict[tuple[int, int], list[Launch]] = defaultdict(list)
    for record in (*single_rank, *multi_rank):
        assert record.request is not None
        groups[record.request.ranks, record.request.nodes].append(_build_launch(record))
    batch_size = request.fixed_batch_size
    batch_unit = f"images{describe_batch_share(request.scaling) or ' per update'}"
    strategy = adapter.load(request.framework).find_or_build_strategy(request.strategy)
    options = strategy.options_with_defaults(dict(request.strategy_options), request.device)
    network, gradient_bytes = (
        workloads()[request.workload].network,
        _GRADIENT_BYTES.get(request.precision, 4),
    )
    ranks_per_node = request.ranks // request.nodes
    return Series(
        title=f"{request.workload} · {request.framework} · {request.strategy_text} · "
        f"{request.kernel} · {pluralize(request.threads, 'thread')} · {request.scaling} scaling, "
        f"{batch_size} {batch_unit} · "
        f"{ranks_per_node} per node · {machine_class_of_record(newest_record)}",
        further_settings={
            "data": request.data,
            "data_set": request.data_set.digest if request.data_set else "none",
            "affinity": request.affinity,
            "allocator": request.allocator or allocators.SYSTEM,
            "device": request.device,
            "precision": request.precision,
            "solver": request.changed_solver_text or "unchanged",
        },
        law=request.scaling,
        batch_size=batch_size,
        ranks_per_node=ranks_per_node,
        algorithm=strategy.algorithm,
        servers=int(options.get("servers", 1)),
        buckets=_gradient_buckets(network, strategy, options, gradient_bytes),
        payload_bytes=network.learned_count * gradient_bytes,
        groups=groups,
        relative_steps=[
            step / stdlib_statistics.median(record.measurement.step_seconds)
            for record in single_rank
            if record.measurement
            for step in record.measurement.step_seconds
        ],
    )


def _gradient_buckets(
    network: Network, strategy: Strategy, options: Mapping[str, Value], gradient_bytes: int
) -> tuple[Bucket, ...]:
    size = options.get("bucket_size")
    sizes = (size, size) if isinstance(size, int) else strategy.buckets
    if strategy.buckets is None or sizes is None or options.get("overlap") == "off":
        return communication_cost.SINGLE_BUCKET
    return communication_cost.gradient_buckets(network, *sizes, gradient_bytes)


def _build_launch(record: Record) -> Launch:
    assert record.measurement is not None
    step_seconds = stdlib_statistics.median(record.measurement.step_seconds)
    communication, computing = record.communication, _solo_step_seconds(record)
    if communication is None or not computing:
        return Launch(step_seconds, step_seconds, 0.0)
    exposed_seconds = stdlib_statistics.median(communication.exposed_seconds)
    return Launch(step_seconds, stdlib_statistics.median(computing), exposed_seconds)


def _solo_step_seconds(record: Record) -> Sequence[float]:
    return record.communication.compute_seconds if record.communication else ()
