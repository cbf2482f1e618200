"""Leaderboards as values: tables, their rows, and the reason why a row is not ranked.

All rows of a table have the same workload, solver, data, device, precision, scaling, batch size and
kind of machine. A row without a valid certificate is shown but not ranked.
`xfbench/rendering/tables.py` renders the tables.
"""

from __future__ import annotations

import statistics as stdlib_statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from xfbench.analysis import grouping, reading
from xfbench.analysis.checkpoints import CheckpointCosts, checkpoint_costs
from xfbench.analysis.communication import Shares, step_shares
from xfbench.analysis.costs import Costs, costs_of_launches
from xfbench.analysis.grouping import describe_hidden_differences, group_by_heading_and_cell
from xfbench.analysis.peak_share import has_measured_peak, share_of_usual_peak
from xfbench.analysis.profiles import Profile, build_profile
from xfbench.analysis.scaling import Efficiency, compute_scaling_efficiency
from xfbench.analysis.steps import Steps, describe_steps
from xfbench.host.conditions import list_record_disturbances
from xfbench.model.certificate import (
    Certificate,
    coverage_error,
    find_batch_certificate_id,
    find_certificate_id,
)
from xfbench.model.origins import Origins
from xfbench.model.provenance import unmeasured_source
from xfbench.model.record import Record, is_asynchronous
from xfbench.model.request import Request, Scaling, describe_batch_share
from xfbench.model.strategy import ASYNCHRONOUS, Value
from xfbench.pairwise import have_comparable_sessions, rank_cells
from xfbench.statistics import (
    Interval,
    Launches,
    counted_speeds_by_block,
    has_valid_steps,
    interval_of_launches,
    is_level_changed,
    log_deviation_interval,
    mean_interval,
    outliers,
)

Certificates = Mapping[str, Certificate | str]
# Workload, data, device, precision, scaling, batch size, machine and solver of a table.
Heading = tuple[str, str, str, str, Literal["", "strong", "weak"], int, str, str]
# Busy CPUs as a share of the threads; with less, other numbers of threads may be faster.
_MIN_BUSY_SHARE = 0.5
TARGET_ACCURACY = 0.95
# A row is ranked if at most this share of its launches is not ok.
MAX_FAILED_SHARE = 0.2
NO_CERTIFICATE = "no equality certificate: not proven to be the same network"


@dataclass(frozen=True)
class Origin:
    """What the launches of a row were made with, beside their request.

    - `created`: time of the last launch.
    - `network`, `adapter`, `environment`: digests; None if unknown.
    """

    created: str
    network: str | None
    adapter: str | None
    environment: str | None


@dataclass(frozen=True)
class Row:
    """One row of a leaderboard: the launches of one cell on one kind of machine.

    Ranking:

    - `rank`: (best, worst) rank that the row may have, because some rows are not distinguishable.
      None if the row is not ranked.
    - `reason`: why the row is not ranked; None if it is ranked.
    - `certificate`: id of the certificate that covers the last ok launch.
    - `batch_certificate`: id of the certificate for the timed batch of that launch. None: the
      gradients were compared at small batches only.
    - `batch_unproven_reason`: why the gradients of the timed batch could not be compared; None if
      they were, or if nobody tried.
    - `relative_to_best`: throughput relative to the best ranked row of the table.

    Launches:

    - `records`: record ids of all launches, oldest first.
    - `request`: request of the last ok launch. If no launch is ok, that of the last launch.
    - `cell`: id of the cell; None if the launch of `request` has none.
    - `threads_observed`: number of threads that worked in the launch of `request`. None on GPUs,
      where it says nothing about the cell.
    - `cpus_busy`: CPUs that a rank kept busy in the timed steps; mean over the ok launches. None on
      GPUs, and if unknown.
    - `seeds`: number of different seeds.
    - `speeds`: images per second of each launch that counts, by the launch's block (see
      `statistics.Launches`).
    - `images_per_second`: median of `speeds`; None if no launch counts.
    - `peak_share`: operations per second as a share of a usual matrix product on the same cores,
      with its interval; None if the peak is unknown. `share_of_peak` is its value.
    - `peak_disturbed`: whether the share is unknown because other work disturbed the products.
    - `steps`: what the timed steps say beside their median; None if no launch counts.
    - `spread`: standard deviation of the logarithms of `speeds`; None for fewer than two launches.
    - `sessions`: number of sessions of these launches. The interval is over sessions if there are
      three or more (see `statistics.interval_of_launches`).
    - `outliers`: number of launches whose speed is far from the others. `speeds` includes them.
    - `failed`: number of launches that are not ok. `speeds` does not include them.
    - `noisy`: number of ok launches that other activity on the machine disturbed. `speeds` includes
      them.
    - `unstable`: number of launches whose level changed after the warm-up. `speeds` includes them.
    - `checkpoints`: number of checkpoints requested for each launch.
    - `accuracy`: test accuracy after the last epoch, as mean and interval over the seeds.
    - `test_accuracy`: the mean of `accuracy`.

    Input:

    - `data_format`, `medium`: storage of a prepared data set; None for other data.
    - `page_cache`: requested state of the page cache before each epoch (see `request.Cell`).
    - `input`: reader of a prepared data set: "ours" (xfbench's) or "native" (the framework's).
    - `pixels_off`: largest pixel difference between the framework's reader and xfbench's reader, in
      levels of 0 to 255; None if xfbench's reader was used.
    - `input_share`: share of the timed steps spent waiting for input.
    - `input_cpu_share`: share of the CPU time that input threads and processes used.

    Relation to other rows:

    - `relative_to_best`: `images_per_second` divided by that of the best ranked row.
    - `relative_interval`: the ratio of the launches to those of the best ranked row, with the
      interval that decides the ranks. None for the best ranked row and for unranked rows.
    - `differs`: what distinguishes the row from rows that look the same; else "".
    - `origin`: what else may distinguish it.
    - `origins`: number of launches of each origin (see `xfbench/model/origins.py`). Empty if all
      were measured here.
    - `group`: if the row is the best of a group, the values of the group's fields (see `best.py`).
    - `configurations`: number of rows in the group.
    - `configurations_ranked`: number of ranked rows in the group.
    """

    rank: tuple[int, int] | None
    framework: str
    framework_version: str | None
    kernel: str
    threads: int
    threads_observed: int | None
    cpus_busy: float | None
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
    steps: Steps | None
    spread: Interval | None
    share_of_peak: float | None
    peak_share: Interval | None
    peak_disturbed: bool
    efficiency: Efficiency | None
    relative_to_best: float | None
    relative_interval: Interval | None
    sessions: int
    outliers: int
    failed: int
    noisy: int
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
    batch_certificate: str | None
    batch_unproven_reason: str | None
    cell: str | None
    records: tuple[str, ...]
    source: str
    reason: str | None
    request: Request
    origin: Origin
    speeds: Launches
    origins: dict[str, int] = field(default_factory=dict)
    group: dict[str, Value | None] = field(default_factory=dict)
    configurations: int | None = None
    configurations_ranked: int | None = None

    @property
    def storage(self) -> tuple[str | None, ...]:
        """Return (data format, medium, state of the page cache, reader); None where unknown."""
        return self.data_format, self.medium, self.page_cache, self.input

    @property
    def label(self) -> str:
        """Return "claim", "indicative" or "smoke" (see `Interval.label`); "" without launches.

        Two sessions are indicative at best, because the interval does not cover their difference.
        So are launches that were mostly noisy, because on a quiet machine the figure may differ.
        """
        label = self.images_per_second.label if self.images_per_second else ""
        is_limited = self.sessions == 2 or self.is_mostly_noisy
        return "indicative" if label == "claim" and is_limited else label

    @property
    def is_mostly_noisy(self) -> bool:
        """Whether other activity on the machine disturbed more than half of the launches."""
        return 2 * self.noisy > len(self.speeds)

    @property
    def is_proven_at_small_batches(self) -> bool:
        """Whether the row is ranked though the gradients of its timed batch were not compared."""
        return bool(self.reason is None and self.certificate and not self.batch_certificate)

    def is_of_another_run(self, row: Row) -> bool:
        """Return whether two rows have launches, but of runs that cannot be compared."""
        return bool(self.speeds and row.speeds) and not have_comparable_sessions(
            self.speeds, row.speeds
        )

    def document(self) -> dict[str, Any]:
        """Return the row as `--json` prints it."""
        speed = self.images_per_second
        document = asdict(replace(self, speeds={}))
        del document["request"], document["origin"], document["speeds"]
        document["key"] = self.request.key
        if not self.origins:
            del document["origins"]
        if not self.group:
            for name in ("group", "configurations", "configurations_ranked"):
                del document[name]
        document["images_per_second"] = speed and {**asdict(speed), "label": self.label}
        if self.accuracy:
            document["accuracy"]["seeds"] = document["accuracy"].pop("launches")
        if self.reason is None:
            del document["reason"]
        return document


@dataclass(frozen=True)
class Table:
    """One leaderboard: its rows, and a heading with values that are equal in all rows.

    The heading:

    - `scaling`: scaling law "strong", "weak" or "per-node"; None without a law.
    - `batch_size`: images per update, or per rank or node under weak or per-node scaling.
    - `machine`: the kind of machine.
    - `solver`: settings that differ from the published solver (see `xfbench/model/training.py`).

    The rows:

    - `rows`: the ranked rows, fastest first.
    - `unranked`: the rows that are not ranked, fastest first.
    - `by`: the fields that form the groups, if each row is the best of a group (see `best.py`);
      else empty. The heading has no values for these fields.
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
        """Return the heading as one line."""
        same = [self.workload, self.solver, self.data, self.precision, self.device]
        scaling = f"{self.scaling} scaling" if self.scaling else ""
        each = describe_batch_share(self.scaling)
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
    """Return the leaderboards of `records`, sorted by workload and then by the rest of the heading.

    - `certificates`: for each id, the certificate, or a text that says what is wrong with it. Only
      rows that a certificate covers are ranked.
    - `target_accuracy`: the test accuracy, from 0 to 1, that ends `Costs.accuracy_seconds`.
    """
    return build_tables_from_rows(build_rows(records, certificates, target_accuracy))


def build_rows(
    records: Iterable[Record], certificates: Certificates, target_accuracy: float
) -> list[tuple[Heading, Row]]:
    """Return the rows of `records` with the headings of their tables, not yet ranked.

    All records of a row must be in `records`. The parameters are those of `build_tables`.
    """
    return [
        (heading, _build_row(cell, of_cell, certificates, target_accuracy))
        for heading, cells in group_by_heading_and_cell(records).items()
        for cell, of_cell in cells.items()
    ]


def mean_cpus_busy(records: Iterable[Record]) -> float | None:
    """Return how many CPUs a rank kept busy, as the mean over the ok launches on CPUs.

    None if unknown, or if there is no such launch.
    """
    return _mean_of_known(
        record.observed.cpus
        if record.observed and record.status == "ok" and not _is_on_gpu(record)
        else None
        for record in records
    )


def _is_on_gpu(record: Record) -> bool:
    return record.request is not None and record.request.device != "cpu"


def describe_idle_threads(request: Request, cpus_busy: float | None) -> str:
    """Return a text such as "torch: 0.4 CPUs busy on 2 threads", or "" if threads were busy.

    Only launches of one rank on several threads of a CPU count: ranks wait for each other.
    """
    if cpus_busy is None or request.ranks > 1 or request.threads < 2:
        return ""
    if cpus_busy >= _MIN_BUSY_SHARE * request.threads:
        return ""
    return f"{request.framework}: {cpus_busy:.1f} CPUs busy on {request.threads} threads"


def build_tables_from_rows(rows: Iterable[tuple[Heading, Row]]) -> list[Table]:
    """Return the leaderboards of rows that `build_rows` returned, sorted by heading.

    Rows of failed launches without a machine are left out if their cell was launched on a machine.
    """
    keyed_rows = [
        (grouping.cell_and_machine(row.request, heading[6]), heading, row) for heading, row in rows
    ]
    replaced = grouping.replaced_keys(key for key, _, _ in keyed_rows)
    rows_by_heading: dict[Heading, list[Row]] = defaultdict(list)
    for key, heading, row in keyed_rows:
        if key not in replaced or row.images_per_second:
            rows_by_heading[heading].append(row)
    return [
        _build_table(heading, of_table) for heading, of_table in sorted(rows_by_heading.items())
    ]


def _build_table(head: Heading, cell_rows: list[Row]) -> Table:
    workload, data, device, precision, scaling, batch, machine, solver = head
    rows = add_relative_speed_and_sort(
        _with_efficiency(_label_lookalike_rows(_drop_unlaunched_duplicates(cell_rows)), scaling)
    )
    ranked = [row for row in rows if row.reason is None]
    ranking = rank_cells([row.speeds for row in ranked])
    return Table(
        workload,
        data,
        device,
        precision,
        scaling or None,
        batch,
        machine,
        tuple(
            replace(row, rank=rank, relative_interval=interval)
            for row, rank, interval in zip(ranked, ranking.ranks, ranking.relative, strict=True)
        ),
        tuple(row for row in rows if row.reason is not None),
        solver=solver,
    )


def add_origins(tables: Iterable[Table], known_origins: Origins) -> list[Table]:
    """Return the tables with the origins of the launches of each row."""

    def with_origins(row: Row) -> Row:
        counts = Counter[str](map(known_origins.of, row.records))
        # A row of another source says so in its reason.
        is_plain = row.source != "measured" or counts.keys() <= {"measured"}
        return row if is_plain else replace(row, origins=dict(counts))

    return [
        replace(
            table,
            rows=tuple(map(with_origins, table.rows)),
            unranked=tuple(map(with_origins, table.unranked)),
        )
        for table in tables
    ]


def add_relative_speed_and_sort(rows: list[Row]) -> list[Row]:
    """Return the rows with their speed relative to the best ranked row, fastest first.

    If no row is ranked, the speeds are relative to the fastest row.
    """
    return sorted(_with_relative_speed(rows), key=_descending_speed_then_settings_key)


def _build_row(
    cell: str, records: list[Record], certificates: Certificates, target_accuracy: float
) -> Row:
    speeds = counted_speeds_by_block(records)
    speed_values = [*speeds.values()]
    speed = interval_of_launches(speeds) if speeds else None
    last_record = next((r for r in reversed(records) if r.status == "ok"), records[-1])
    request = last_record.request
    assert request is not None
    accuracies = _seed_accuracies(records)
    measured_records = [record for record in records if unmeasured_source(record) is None]
    failed_records = [record for record in measured_records if record.status != "ok"]
    changed_records = [
        record for record in measured_records if record.status == "ok" and is_level_changed(record)
    ]
    peak_share = share_of_usual_peak(records)
    reason = None
    if has_too_many_failures(len(failed_records), len(measured_records)):
        reason = f"{failed_records[-1].status}: {failed_records[-1].reason}"
        if speed:
            reason = f"{len(failed_records)} of {len(records)} launches {reason}"
    elif not all(record.status != "ok" or has_valid_steps(record) for record in measured_records):
        reason = "a launch has no timed steps"
    else:
        failed_ids = {record.id for record in failed_records}
        remaining = (record for record in records if record.id not in failed_ids)
        reason = next(filter(None, (unranked_reason(r, certificates) for r in remaining)), None)
    batch_certificate = find_batch_certificate_id(last_record, certificates)
    return Row(
        rank=None,
        framework=request.framework,
        framework_version=last_record.observed.framework_version if last_record.observed else None,
        kernel=last_record.observed.kernel if last_record.observed else request.kernel,
        threads=request.threads,
        threads_observed=last_record.observed.threads
        if last_record.observed and not _is_on_gpu(last_record)
        else None,
        cpus_busy=mean_cpus_busy(records),
        ranks=request.ranks,
        strategy=request.strategy,
        strategy_options=dict(request.strategy_options),
        asynchronous=is_asynchronous(last_record),
        nodes=request.nodes,
        batch_size_per_rank=request.batch_size_per_rank,
        global_batch_size=request.global_batch_size,
        data_format=request.data_set.format if request.data_set else None,
        medium=reading.describe_media(request, records),
        page_cache=request.page_cache,
        input=reading.describe_reader(request, records),
        pixels_off=reading.largest_reader_pixel_difference(records),
        input_share=_mean_of_known(map(reading.input_waiting_share, records)),
        input_cpu_share=_mean_of_known(map(reading.input_cpu_share, records)),
        images_per_second=speed,
        steps=describe_steps(measured_records),
        spread=log_deviation_interval(speed_values),
        share_of_peak=peak_share.value if peak_share else None,
        peak_share=peak_share,
        peak_disturbed=peak_share is None and has_measured_peak(records),
        efficiency=None,
        relative_to_best=None,
        relative_interval=None,
        sessions=len({block.session for block in speeds}),
        outliers=sum(outliers(speed_values)),
        failed=len(failed_records),
        noisy=sum(
            record.status == "ok" and bool(list_record_disturbances(record))
            for record in measured_records
        ),
        unstable=len(changed_records),
        checkpoints=request.checkpoints,
        differs="",
        costs=costs_of_launches(records, target_accuracy),
        communication=step_shares(records),
        checkpointing=checkpoint_costs(records),
        profile=build_profile(records),
        test_accuracy=_mean_of_known(accuracies),
        accuracy=mean_interval(accuracies) if accuracies else None,
        seeds=len({record.request.seed for record in records if record.request}),
        certificate=find_certificate_id(last_record, certificates),
        batch_certificate=batch_certificate,
        batch_unproven_reason=None if batch_certificate else last_record.batch_unproven_reason,
        cell=cell if last_record.cell else None,
        records=tuple(record.id for record in records),
        source=last_record.source,
        reason=reason,
        request=request,
        origin=Origin(
            last_record.created,
            last_record.workload.digest if last_record.workload else None,
            last_record.software.adapter_digest if last_record.software else None,
            last_record.software.environment_digest if last_record.software else None,
        ),
        speeds=speeds,
    )


def has_too_many_failures(failed: int, total: int) -> bool:
    """Return whether too many of `total` launches are not ok for a figure of their cell."""
    return failed > MAX_FAILED_SHARE * total


def _seed_accuracies(records: Iterable[Record]) -> list[float]:
    """Return, for each seed, the mean test accuracy after the last epoch of its ok launches."""
    accuracies_by_seed = defaultdict(list)
    for record in records:
        if record.status == "ok" and record.learning and record.request:
            accuracies_by_seed[record.request.seed].append(record.learning[-1].test_accuracy)
    means = [_mean_of_known(of_seed) for of_seed in accuracies_by_seed.values()]
    return [mean for mean in means if mean is not None]


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return stdlib_statistics.fmean(numbers) if numbers else None


def wrong_batch_reason(record: Record, certificates: Certificates) -> str | None:
    """Return how the gradients of the record's timed batch differ. None if that is not known."""
    of_batch = certificates.get(find_batch_certificate_id(record, certificates) or "")
    if isinstance(of_batch, Certificate) and of_batch.verdict == "different":
        return coverage_error(of_batch, record)
    return None


def unranked_reason(record: Record, certificates: Certificates) -> str | None:
    """Return why the record must not be ranked, or None if it may be ranked.

    To be ranked, a record must be measured by xfbench with a synchronous strategy, and be covered
    by the certificate that it names. If it names none, any of `certificates` may cover it, such as
    that of a later launch of the same cell. A certificate for its timed batch must not speak
    against it.
    """
    if reason := unmeasured_source(record):
        return reason
    if is_asynchronous(record):
        return ASYNCHRONOUS
    certificate_id = find_certificate_id(record, certificates)
    if certificate_id is None:
        return NO_CERTIFICATE
    batch_certificate_id = find_batch_certificate_id(record, certificates)
    for each in filter(None, (certificate_id, batch_certificate_id)):
        certificate = certificates.get(each)
        if certificate is None:
            return "its certificate is not in the results folder: verify again"
        error = certificate if isinstance(certificate, str) else coverage_error(certificate, record)
        if error:
            return error
    return None


def _drop_unlaunched_duplicates(rows: list[Row]) -> list[Row]:
    """Leave out rows without a speed and a cell, if another row measured the same configuration.

    For example, a framework was unavailable in the first launch, and installed for a later one.
    """
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
        replace(row, differs=difference)
        for group in groups.values()
        for row, difference in zip(group, _describe_differences(group), strict=True)
    ]


def _describe_differences(lookalikes: Sequence[Row]) -> list[str]:
    """Return for each row what distinguishes it from the others; "" for a single row."""
    if len(lookalikes) == 1:
        return [""]
    settings = describe_hidden_differences([row.request for row in lookalikes])
    texts = [
        difference or _describe_origin(row, lookalikes)
        for row, difference in zip(lookalikes, settings, strict=True)
    ]
    return [
        text if texts.count(text) == 1 else f"{text} ({number})"
        for number, text in enumerate(texts, 1)
    ]


def _describe_origin(row: Row, lookalikes: Sequence[Row]) -> str:
    """Return what distinguishes the row from rows with the same settings.

    For example, "adapter of 2026-11-22 18:00", if the rows have different adapters.
    """
    changed = [
        name
        for name in ("network", "adapter", "environment")
        if len({getattr(each.origin, name) for each in lookalikes}) > 1
    ]
    return f"{' and '.join(changed) or 'launches'} of {row.origin.created[:16].replace('T', ' ')}"


def _configuration_key(row: Row) -> tuple[Any, ...]:
    options = tuple(row.strategy_options.items())
    strategy_key = row.ranks, row.strategy, options
    local_key = row.kernel, row.threads, row.request.allocator
    return row.framework, *local_key, *strategy_key, *row.storage, row.checkpoints


def _is_baseline_of_another(row: Row, rows: Iterable[Row]) -> bool:
    """Return whether a row of `rows` differs from `row` only in its larger number of ranks."""
    return any(
        candidate.ranks > row.ranks
        and _key_without_ranks_and_strategy(candidate) == _key_without_ranks_and_strategy(row)
        and (row.ranks == 1 or _strategy_and_options(candidate) == _strategy_and_options(row))
        for candidate in rows
    )


def _with_efficiency(rows: list[Row], law: Literal[""] | Scaling) -> list[Row]:
    """Return the rows with their scaling efficiency under `law`; unchanged if `law` is "".

    The baseline of a row is the measured row with the fewest ranks for which these are true:

    - It has the same framework, version, kernel, threads, allocator and storage of the data set,
      and the same network, adapter and environment.
    - It has one rank, or the same strategy with the same options.

    A row that is its own baseline has an efficiency only if it is the baseline of another row.
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
            if candidate.ranks == 1
            or _strategy_and_options(candidate) == _strategy_and_options(row)
        ]
        baseline = min(comparable_rows, key=lambda candidate: candidate.ranks)
        if row.ranks == baseline.ranks and not _is_baseline_of_another(row, measured_rows):
            return None
        return compute_scaling_efficiency(
            law, row.ranks, row.speeds, baseline.ranks, baseline.speeds
        )

    return [replace(row, efficiency=row_efficiency(row)) for row in rows]


def _key_without_ranks_and_strategy(row: Row) -> tuple[Any, ...]:
    local_key = row.kernel, row.threads, row.request.allocator
    code = row.origin.network, row.origin.adapter, row.origin.environment
    return row.framework, row.framework_version, *local_key, *row.storage, code


def _strategy_and_options(row: Row) -> tuple[Any, ...]:
    return row.strategy, row.strategy_options


def _with_relative_speed(rows: list[Row]) -> list[Row]:
    """Return the rows with their speed relative to the best ranked row.

    If no row is ranked, the speeds are relative to the fastest row.
    """
    measured_rows = [row for row in rows if row.images_per_second]
    ranked = [row for row in measured_rows if row.reason is None] or measured_rows
    best = max((row.images_per_second.value for row in ranked if row.images_per_second), default=0)
    return [
        replace(row, relative_to_best=row.images_per_second.value / best)
        if row.images_per_second
        else row
        for row in rows
    ]


def _descending_speed_then_settings_key(row: Row) -> tuple[Any, ...]:
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
