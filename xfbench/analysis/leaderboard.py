"""Leaderboards as values: the table and row of each record, and whether the row is ranked.

All rows of a table have the same workload, data, device, precision, scaling, batch and kind of
machine. A row without a valid certificate is shown but not ranked. `xfbench/rendering/tables.py`
renders the tables.
"""

from __future__ import annotations

import statistics as stdlib_statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from xfbench.analysis import reading
from xfbench.analysis.checkpoints import CheckpointCosts, checkpoint_costs
from xfbench.analysis.communication import Shares, step_shares
from xfbench.analysis.costs import Costs, time_memory_and_energy_costs
from xfbench.analysis.grouping import describe_hidden_differences, group_by_heading_and_cell
from xfbench.analysis.profiles import Profile, build_profile
from xfbench.analysis.scaling import Efficiency, compute_scaling_efficiency
from xfbench.host.roofline import compute_record_peak_share
from xfbench.model.certificate import Certificate, coverage_error
from xfbench.model.provenance import unmeasured_source
from xfbench.model.record import Record, is_asynchronous
from xfbench.model.request import Request
from xfbench.model.strategy import ASYNCHRONOUS, Value
from xfbench.statistics import (
    Interval,
    Launches,
    cell_ranks,
    counted_speeds_by_block,
    geometric_interval,
    is_steady,
    log_deviation_interval,
    mean_interval,
    outliers,
)

Certificates = Mapping[str, Certificate | str]
TARGET_ACCURACY = 0.95
NO_CERTIFICATE = "no equality certificate: not proven to be the same network"


@dataclass(frozen=True)
class Row:
    """One cell on one kind of machine. `reason` says why the row is not ranked, or is None.

    `rank` is the first and the last possible rank: rows that are not distinguishable share ranks.
    `threads_observed` is from the last launch. `outliers` counts launches far from the others; they
    stay in the figures. `unstable` counts launches that never became steady; they are left out.

    `data_format` and `medium` belong to a prepared data set. `page_cache` is its state before each
    epoch (see `Request`). `input` names the reader. `pixels_off` is the largest difference from
    xfbench's reader, in levels of 255. `input_share` is the share of a step spent waiting for
    input. `input_cpu_share` is the share of CPU time that prepares input.

    `checkpoints` is the number requested per launch. `differs` tells the row from rows that
    otherwise look the same. `spread` is the relative spread of launches. `accuracy` is the mean
    over `seeds` after the last epoch, with its interval over seeds. `records` has the ids of all
    launches. `request` is the request of one launch. `speeds` has the throughput of each launch
    that counts, by block. If the row is the best of a group, `group` has the group's values and
    `configurations` its number of rows (see `best.py`).
    """

    rank: tuple[int, int] | None
    framework: str
    framework_version: str | None
    kernel: str
    threads: int
    threads_observed: int | None
    ranks: int
    strategy: str
    strategy_options: dict[str, Value]
    asynchronous: bool
    nodes: int
    batch_size_per_rank: int
    global_batch_size: int
    data_format: str | None
    medium: str | None
    page_cache: str | None
    input: str | None
    pixels_off: int | None
    input_share: float | None
    input_cpu_share: float | None
    images_per_second: Interval | None
    spread: Interval | None
    share_of_peak: float | None
    efficiency: Efficiency | None
    relative_to_best: float | None
    outliers: int
    unstable: int
    checkpoints: int
    differs: str
    costs: Costs
    communication: Shares | None
    checkpointing: CheckpointCosts | None
    profile: Profile | None
    test_accuracy: float | None
    accuracy: Interval | None
    seeds: int
    certificate: str | None
    cell: str | None
    records: tuple[str, ...]
    source: str
    reason: str | None
    request: Request
    speeds: Launches
    group: dict[str, Value | None] = field(default_factory=dict)
    configurations: int | None = None
    configurations_ranked: int | None = None

    @property
    def storage(self) -> tuple[str | None, ...]:
        """Return how the data set is stored and read."""
        return self.data_format, self.medium, self.page_cache, self.input

    def document(self) -> dict[str, Any]:
        """Return the row as `--json` prints it."""
        speed = self.images_per_second
        document = asdict(replace(self, speeds={}))
        del document["request"], document["speeds"]
        if not self.group:
            for name in ("group", "configurations", "configurations_ranked"):
                del document[name]
        document["images_per_second"] = speed and {**asdict(speed), "label": speed.evidence_label}
        if self.accuracy:
            document["accuracy"]["seeds"] = document["accuracy"].pop("launches")
        if self.reason is None:
            del document["reason"]
        return document


@dataclass(frozen=True)
class Table:
    """One comparison: the conditions that all rows share, the ranked rows and the unranked rows.

    `batch_size` is per update, or per rank under weak scaling. `solver` lists what differs from the
    published solver (see `xfbench/model/training.py`). If rows are the best of groups `by` some
    fields (see `best.py`), those fields are empty here.
    """

    workload: str
    data: str
    device: str
    precision: str
    scaling: str | None
    batch_size: int
    machine: str
    rows: tuple[Row, ...]
    unranked: tuple[Row, ...]
    by: tuple[str, ...] = ()
    solver: str = ""

    @property
    def title(self) -> str:
        same = [self.workload, self.solver, self.data, self.precision, self.device]
        scaling = f"{self.scaling} scaling" if self.scaling else ""
        each = " per rank" if self.scaling == "weak" else ""
        batch = f"batch {self.batch_size}{each}" if self.batch_size else ""
        best = f"best by {', '.join(self.by)}" if self.by else ""
        return " · ".join(filter(None, [*same, scaling, batch, self.machine, best]))

    def document(self) -> dict[str, Any]:
        """Return the table as `--json` prints it."""
        head = {k: v or None for k, v in vars(self).items() if k not in ("rows", "unranked", "by")}
        return {
            **head,
            **({"by": list(self.by)} if self.by else {}),
            "rows": [row.document() for row in self.rows],
            "unranked": [row.document() for row in self.unranked],
        }


def build_tables(
    records: Iterable[Record], certificates: Certificates, target_accuracy: float = TARGET_ACCURACY
) -> list[Table]:
    """Return the leaderboards of these records, in order of workload name and heading.

    A row is ranked if one of `certificates` covers it. A text in place of a certificate says what
    is wrong with it. Time to accuracy ends at a test accuracy of `target`.
    """
    return build_tables_from_partitions([records], certificates, target_accuracy)


def build_tables_from_partitions(
    record_partitions: Iterable[Iterable[Record]],
    certificates: Certificates,
    target_accuracy: float = TARGET_ACCURACY,
) -> list[Table]:
    """Return `tables` of records in parts; each part is released before the next is requested.

    All records of a row must be in one part: parts are split by `grouping.PARTITION_FIELDS`.
    """
    rows_by_heading: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for part in record_partitions:
        for head, cells in group_by_heading_and_cell(part).items():
            rows_by_heading[head] += [
                _build_row(cell, records, certificates, target_accuracy)
                for cell, records in cells.items()
            ]
    return [_build_table(head, rows) for head, rows in sorted(rows_by_heading.items())]


def _build_table(head: tuple[Any, ...], cell_rows: list[Row]) -> Table:
    workload, data, device, precision, scaling, batch, machine, solver = head
    rows = add_relative_speed_and_sort(
        _with_efficiency(_label_lookalike_rows(_drop_unmeasured_duplicates(cell_rows)), scaling)
    )
    ranked = [row for row in rows if row.reason is None]
    places = cell_ranks([row.speeds for row in ranked])
    return Table(
        workload,
        data,
        device,
        precision,
        scaling or None,
        batch,
        machine,
        tuple(replace(row, rank=place) for row, place in zip(ranked, places, strict=True)),
        tuple(row for row in rows if row.reason is not None),
        solver=solver,
    )


def add_relative_speed_and_sort(rows: list[Row]) -> list[Row]:
    """Return rows fastest first, each relative to the best ranked row."""
    return sorted(_with_relative_speed(rows), key=_fastest_first_sort_key)


def _build_row(
    cell: str, records: list[Record], certificates: Certificates, target_accuracy: float
) -> Row:
    speeds = counted_speeds_by_block(records)
    speed_values = [*speeds.values()]
    speed = geometric_interval(speed_values) if speed_values else None
    last_record = next((r for r in reversed(records) if r.status == "ok"), records[-1])
    request = last_record.request
    assert request is not None
    accuracies = _seed_accuracies(records)
    measured_records = [record for record in records if unmeasured_source(record) is None]
    failed_records = [record for record in measured_records if record.status != "ok"]
    unstable_records = [
        record for record in measured_records if record.status == "ok" and not is_steady(record)
    ]
    peak_shares = [
        compute_record_peak_share(r) for r in records if r.status == "ok" and is_steady(r)
    ]
    reason = None
    if failed_records:
        reason = f"{failed_records[-1].status}: {failed_records[-1].reason}"
        if speed:
            reason = f"{len(failed_records)} of {len(records)} launches {reason}"
    elif 2 * len(unstable_records) >= len(records):
        reason = f"{len(unstable_records)} of {len(records)} launches never became steady"
    else:
        reason = next(filter(None, (unranked_reason(r, certificates) for r in records)), None)
    return Row(
        rank=None,
        framework=request.framework,
        framework_version=last_record.observed.framework_version if last_record.observed else None,
        kernel=last_record.observed.kernel if last_record.observed else request.kernel,
        threads=request.threads,
        threads_observed=last_record.observed.threads if last_record.observed else None,
        ranks=request.ranks,
        strategy=request.strategy,
        strategy_options=dict(request.strategy_options),
        asynchronous=is_asynchronous(last_record),
        nodes=request.nodes,
        batch_size_per_rank=request.batch_size_per_rank,
        global_batch_size=request.global_batch_size,
        data_format=request.data_set.format if request.data_set else None,
        medium=request.data_set.medium if request.data_set else None,
        page_cache=request.page_cache,
        input=request.input,
        pixels_off=reading.largest_reader_pixel_difference(records),
        input_share=_mean_of_known(map(reading.input_waiting_share, records)),
        input_cpu_share=_mean_of_known(map(reading.input_cpu_share, records)),
        images_per_second=speed,
        spread=log_deviation_interval(speed_values),
        share_of_peak=_mean_of_known(peak_shares),
        efficiency=None,
        relative_to_best=None,
        outliers=sum(outliers(speed_values)),
        unstable=len(unstable_records),
        checkpoints=request.checkpoints,
        differs="",
        costs=time_memory_and_energy_costs(records, target_accuracy),
        communication=step_shares(records),
        checkpointing=checkpoint_costs(records),
        profile=build_profile(records),
        test_accuracy=_mean_of_known(accuracies),
        accuracy=mean_interval(accuracies) if accuracies else None,
        seeds=len({record.request.seed for record in records if record.request}),
        certificate=last_record.certificate,
        cell=cell if last_record.cell else None,
        records=tuple(record.id for record in records),
        source=last_record.source,
        reason=reason,
        request=request,
        speeds=speeds,
    )


def _seed_accuracies(records: Iterable[Record]) -> list[float]:
    """Return the test accuracy after the last epoch for each seed, as the mean of its launches."""
    accuracies_by_seed = defaultdict(list)
    for record in records:
        if record.status == "ok" and record.learning and record.request:
            accuracies_by_seed[record.request.seed].append(record.learning[-1].test_accuracy)
    means = [_mean_of_known(of_seed) for of_seed in accuracies_by_seed.values()]
    return [mean for mean in means if mean is not None]


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return stdlib_statistics.fmean(numbers) if numbers else None


def unranked_reason(record: Record, certificates: Certificates) -> str | None:
    """Return why the record may not be ranked, or None if a certificate covers it."""
    if reason := unmeasured_source(record):
        return reason
    if is_asynchronous(record):
        return ASYNCHRONOUS
    if record.certificate is None:
        return NO_CERTIFICATE
    certificate = certificates.get(record.certificate)
    if certificate is None:
        return "its certificate is not in the results folder: verify again"
    return certificate if isinstance(certificate, str) else coverage_error(certificate, record)


def _drop_unmeasured_duplicates(rows: list[Row]) -> list[Row]:
    """Leave out rows of unavailable configurations that were measured later."""
    measured = {_configuration_key(row) for row in rows if row.images_per_second}
    return [
        row
        for row in rows
        if row.images_per_second or row.cell or _configuration_key(row) not in measured
    ]


def _label_lookalike_rows(rows: list[Row]) -> list[Row]:
    groups = defaultdict(list)
    for row in rows:
        groups[*_configuration_key(row), row.framework_version, row.request.memory_limit].append(
            row
        )
    return [
        replace(row, differs=difference or f"cell {(row.cell or 'none')[7:15]}")
        if len(group) > 1
        else row
        for group in groups.values()
        for row, difference in zip(
            group, describe_hidden_differences([row.request for row in group]), strict=True
        )
    ]


def _configuration_key(row: Row) -> tuple[Any, ...]:
    options = tuple(row.strategy_options.items())
    strategy_key = row.ranks, row.strategy, options
    local_key = row.kernel, row.threads, row.request.allocator
    return row.framework, *local_key, *strategy_key, *row.storage, row.checkpoints


def _with_efficiency(rows: list[Row], law: Literal["", "strong", "weak"]) -> list[Row]:
    """Add the efficiency under `law` against the row with the fewest ranks.

    The baseline has the same framework, kernel and threads. With several ranks it also has the same
    strategy and options.
    """
    if not law:
        return rows
    measured_rows = [row for row in rows if row.images_per_second and row.cell]

    def row_efficiency(row: Row) -> Efficiency | None:
        if row not in measured_rows:
            return None
        comparable_rows = [
            candidate
            for candidate in measured_rows
            if _key_without_ranks_and_strategy(candidate) == _key_without_ranks_and_strategy(row)
        ]
        comparable_rows = [
            candidate
            for candidate in comparable_rows
            if candidate.ranks == 1 or _strategy_key(candidate) == _strategy_key(row)
        ]
        baseline = min(comparable_rows, key=lambda candidate: candidate.ranks)
        return compute_scaling_efficiency(
            law, row.ranks, row.speeds, baseline.ranks, baseline.speeds
        )

    return [replace(row, efficiency=row_efficiency(row)) for row in rows]


def _key_without_ranks_and_strategy(row: Row) -> tuple[Any, ...]:
    local_key = row.kernel, row.threads, row.request.allocator
    return row.framework, row.framework_version, *local_key, *row.storage


def _strategy_key(row: Row) -> tuple[Any, ...]:
    return row.strategy, row.strategy_options


def _with_relative_speed(rows: list[Row]) -> list[Row]:
    """Add the speed relative to the best ranked row, or to the best row if none is ranked."""
    measured_rows = [row for row in rows if row.images_per_second]
    ranked = [row for row in measured_rows if row.reason is None] or measured_rows
    best = max((row.images_per_second.value for row in ranked if row.images_per_second), default=0)
    return [
        replace(row, relative_to_best=row.images_per_second.value / best)
        if row.images_per_second
        else row
        for row in rows
    ]


def _fastest_first_sort_key(row: Row) -> tuple[Any, ...]:
    speed = row.images_per_second
    return (
        -(speed.value if speed else 0.0),
        row.framework,
        row.kernel,
        row.ranks,
        row.threads,
        row.checkpoints,
        row.cell or "",
    )
