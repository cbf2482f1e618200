"""Content of the report as values: leaderboards, rows, certificates and machines.

Templates turn these values into HTML. `sentences.py` writes the summary of a leaderboard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, groupby

from xfbench.analysis.leaderboard import Certificates, Row, Table, add_origins
from xfbench.analysis.leaderboard import build_tables as leaderboards
from xfbench.base.version import __version__
from xfbench.host import conditions
from xfbench.model.certificate import Certificate, find_certificate_ids
from xfbench.model.machines import machine_class
from xfbench.model.origins import NOTHING_IMPORTED, Origins
from xfbench.model.provenance import drop_untrusted_or_impossible_fields, unmeasured_source
from xfbench.model.record import Machine, Record
from xfbench.rendering import tables
from xfbench.rendering.report import efficiency, external_data, figures, learned, profiles, repeat
from xfbench.rendering.report.external_data import ExternalFigures
from xfbench.rendering.report.figures import Figure
from xfbench.rendering.report.sentences import Summary, build_summary, use_no_break_spaces
from xfbench.statistics import is_level_changed, launch_throughput

# If the report has more than MANY_ROWS rows, only the FASTEST rows of each board show every launch,
# and only the first FASTEST profiles are drawn. The launches of the other rows are summarized.
MANY_ROWS, FASTEST = 200, 3
AT_ONCE = 100  # rows of a table that are shown at first
SHORT = 16  # characters of a shortened id, as in the name of a run folder
_MOST_WORDS, _MOST_RECORDS = 4, 8
_QUIET, _NOT_KNOWN = "quiet", "not known"
_FIGURES = ("images/s", "efficiency", "rank")


@dataclass(frozen=True)
class SortableField:
    """The field of a row in one column.

    When the reader sorts the column, the page compares `number`, or `text` if `number` is None.
    """

    column: str
    text: str
    number: float | None


@dataclass(frozen=True)
class Launch:
    """One launch and its record.

    - `record`: the start of the record's id.
    - `number`: the number of the launch in its cell.
    - `created`: date and time of the record (UTC).
    - `conditions`: what disturbed the launch; "quiet" if nothing did, or "not known".
    - `reason`: why the launch does not count, or "" if it counts.
    """

    record: str
    number: int
    seed: int
    created: str
    images_per_second: str
    conditions: str
    reason: str


@dataclass(frozen=True)
class Entry:
    """A row of a board with its details.

    - `fields`: the texts of the row, one for each column of the board.
    - `command`: the parts of the command that repeats the row; empty if there is no such command.
    - `missing_options`: sentences about options that `command` needs and records do not have.
    - `launches`: all launches of the row; empty if `summed` replaces them.
    - `summed`: a summary of the launches in a report with many rows, as pairs of name and text.
    - `facts`: further facts, as pairs of name and text.
    - `proof`: the anchor of the row's certificate; None: no certificate.
    - `steps`: the plot of the step times, or None.
    - `profiler`: the last record's profiler, or "none: REASON" if it has no profile. None: no
      profile was requested.
    """

    anchor: str
    name: str
    row: Row
    fields: tuple[SortableField, ...]
    command: tuple[str, ...]
    missing_options: tuple[str, ...]
    launches: tuple[Launch, ...]
    summed: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    proof: str | None
    steps: Figure | None
    profiler: str | None


@dataclass(frozen=True)
class Board:
    """A leaderboard: its conditions, rows and plots.

    `most` is the throughput in images/s at the end of the scale of the interval bars.
    """

    anchor: str
    table: Table
    conditions: str
    columns: tuple[str, ...]
    ranked: tuple[Entry, ...]
    unranked: tuple[Entry, ...]
    figures: tuple[Figure, ...]
    most: float
    summary: Summary


@dataclass(frozen=True)
class CertificateText:
    """A certificate as texts. `anchor` is its HTML id in the page.

    If the certificate is invalid or missing, `verdict` says what is wrong.
    """

    anchor: str
    id: str
    subject: str
    verdict: str
    checks: str
    versions: str


@dataclass(frozen=True)
class Network:
    """The boards of one network.

    Boards with more ranked frameworks come first, then boards with more ranked rows.
    """

    name: str
    facts: str
    boards: tuple[Board, ...]


@dataclass(frozen=True)
class OverviewLine:
    """A network in the overview, with the best ranked entry of each framework, or None."""

    network: str
    board: Board
    entries: tuple[Entry | None, ...]

    @staticmethod
    def text(entry: Entry) -> str:
        """Return the throughput of an entry with its interval."""
        return tables.format_with_interval(entry.row.images_per_second)


@dataclass(frozen=True)
class Overview:
    """The first board of each network, by framework. `lines` has the entries in this order."""

    frameworks: tuple[str, ...]
    lines: tuple[OverviewLine, ...]


@dataclass(frozen=True)
class Report:
    """The content of the whole page.

    - `others`: external figures, which are not ranked.
    - `proofs`: the certificates that the records name.
    - `machines`: for each machine class, facts as pairs of name and text.
    - `rows`, `records`: the number of rows and of measured records.
    - `span`: the first and the last day of the measured records, in ISO form; "" without records.
    """

    networks: tuple[Network, ...]
    others: ExternalFigures
    proofs: tuple[CertificateText, ...]
    machines: tuple[tuple[tuple[str, str], ...], ...]
    frameworks: tuple[str, ...]
    overview: Overview
    rows: int
    records: int
    span: tuple[str, str]
    version: str = __version__

    @property
    def boards(self) -> list[Board]:
        """The boards of all networks."""
        return [board for network in self.networks for board in network.boards]


def build_report(
    records: Sequence[Record],
    certificates: Certificates,
    literature: Sequence[Record] = (),
    known_origins: Origins = NOTHING_IMPORTED,
) -> Report:
    """Build the content of the report on these records. `known_origins` says where they came from.

    Published and imported figures are listed separately, not as rows. They come from `records` and
    `literature`. The report shows the figures about networks of `records`, and the figures about no
    single network.
    """
    records_by_id = {
        record.id: drop_untrusted_or_impossible_fields(record)
        for record in records
        if record.request
    }
    measured = [record for record in records_by_id.values() if record.source == "measured"]
    elsewhere = [*literature, *(record for record in records if record.source != "measured")]
    board_tables = add_origins(leaderboards(records_by_id.values(), certificates), known_origins)
    machines = _machine_of_each_class(measured)
    rows = sum(len(table.rows) + len(table.unranked) for table in board_tables)
    anchors = {
        identity: f"certificate-{n}"
        for n, identity in enumerate(_certificate_ids(records_by_id.values(), certificates), 1)
    }
    numbers = count(1)
    boards = [
        _build_board(
            f"board-{n}",
            table,
            records_by_id,
            anchors,
            numbers,
            has_many_rows=rows > MANY_ROWS,
            is_only_machine=len(machines) < 2,
            external_records=elsewhere,
        )
        for n, table in enumerate(board_tables, 1)
    ]
    days = sorted(record.created[:10] for record in measured) or [""]
    networks = [
        *(table.workload for table in board_tables),
        *external_data.networks_of_external_figures(records),
    ]
    report_networks = tuple(
        _build_network(name, list(group), records_by_id)
        for name, group in groupby(boards, key=lambda board: board.table.workload)
    )
    return Report(
        networks=report_networks,
        others=external_data.group_external_figures(elsewhere, networks),
        proofs=tuple(
            _describe_certificate(identity, place, certificates)
            for identity, place in anchors.items()
        ),
        machines=tuple(_machine_facts(machine) for machine in machines),
        frameworks=tuple(
            sorted({entry.row.framework for b in boards for entry in (*b.ranked, *b.unranked)})
        ),
        overview=_build_overview(report_networks),
        rows=rows,
        records=len(measured),
        span=(days[0], days[-1]),
    )


def _build_overview(networks: Sequence[Network]) -> Overview:
    best = {
        network.name: {entry.row.framework: entry for entry in reversed(network.boards[0].ranked)}
        for network in networks
    }
    frameworks = tuple(sorted({name for entries in best.values() for name in entries}))
    return Overview(
        frameworks,
        tuple(
            OverviewLine(
                network.name,
                network.boards[0],
                tuple(best[network.name].get(name) for name in frameworks),
            )
            for network in networks
            if best[network.name]
        ),
    )


def _certificate_ids(records: Iterable[Record], certificates: Certificates) -> list[str]:
    ids = (find_certificate_ids(record, certificates) for record in records)
    return list(dict.fromkeys(chain.from_iterable(ids)))


def _build_network(name: str, boards: list[Board], records_by_id: Mapping[str, Record]) -> Network:
    frameworks = {board.anchor: {entry.row.framework for entry in board.ranked} for board in boards}
    boards.sort(key=lambda b: (-len(frameworks[b.anchor]), -len(b.ranked), -len(b.unranked)))
    ids = [
        record_id for b in boards for e in (*b.ranked, *b.unranked) for record_id in e.row.records
    ]
    workload = next(
        (
            records_by_id[record_id].workload
            for record_id in ids
            if records_by_id[record_id].workload
        ),
        None,
    )
    facts = ""
    if workload:
        size = "×".join(map(str, workload.input_shape))
        work = 2 * workload.train_macs_per_image
        facts = (
            f"{workload.parameters:,} parameters, input {size}, {workload.classes} classes, "
            f"{work / 1e9:.3g} GFLOP per image in training"
        )
    return Network(name, facts, tuple(boards))


def _build_board(
    anchor: str,
    table: Table,
    records_by_id: Mapping[str, Record],
    certificate_anchors: Mapping[str, str],
    row_numbers: Iterable[int],
    *,
    has_many_rows: bool,
    is_only_machine: bool,
    external_records: Sequence[Record],
) -> Board:
    columns = tables.group_and_nonempty_columns(table)
    same = table.title.removeprefix(f"{table.workload} · ")
    rows = (*table.rows, *table.unranked)
    detailed_rows = {id(row) for row in (rows[:FASTEST] if has_many_rows else rows)}
    entries = [
        _build_entry(
            row,
            columns,
            [records_by_id[record_id] for record_id in row.records],
            certificate_anchors,
            number,
            id(row) in detailed_rows,
        )
        for row, number in zip(rows, row_numbers, strict=False)
    ]
    ranked = tuple(entry for entry in entries if entry.row.reason is None)
    best = ranked[0] if ranked else entries[0]
    speeds = [row.images_per_second for row in rows if row.images_per_second]
    top = max((interval.value for interval in speeds), default=1.0)
    upper_bounds = [interval.high for interval in speeds if interval.high]
    drawn = figures.build_speed_and_learning_figures(
        table, records_by_id
    ) + efficiency.build_efficiency_figures(table, external_records)
    return Board(
        anchor=anchor,
        table=table,
        conditions=same.removesuffix(f" · {table.machine}") if is_only_machine else same,
        columns=tuple(name for name, _ in columns),
        ranked=ranked,
        unranked=tuple(entry for entry in entries if entry.row.reason is not None),
        figures=(
            *drawn,
            *profiles.build_layer_time_figures(
                table, FASTEST if has_many_rows else figures.MOST_BARS
            ),
            *learned.build_learning_speed_up_figures(table, records_by_id),
        ),
        most=min(max([top, *upper_bounds]), 2 * top),
        summary=build_summary(table, best.command),
    )


def _build_entry(
    row: Row,
    columns: Sequence[tables.Column],
    records: Sequence[Record],
    certificate_anchors: Mapping[str, str],
    row_number: int,
    is_detailed: bool,
) -> Entry:
    measured = [record for record in records if record.status == "ok"]
    return Entry(
        anchor=f"row-{row_number}",
        name=figures.row_name(row),
        row=row,
        fields=tuple(_build_sortable_field(name, of(row), row) for name, of in columns),
        command=repeat.repeat_command_display_parts(records),
        missing_options=tuple(repeat.describe_missing_options(records)),
        launches=tuple(map(_describe_launch, records)) if is_detailed else (),
        summed=() if is_detailed else _summarize_ids_noise_and_exclusions(records),
        facts=tuple(_row_facts(row, records[-1])),
        proof=certificate_anchors.get(row.certificate) if row.certificate else None,
        steps=figures.build_step_time_figure(measured) if is_detailed else None,
        profiler=next(
            (r.observed.profiler for r in reversed(records) if r.observed and r.observed.profiler),
            None,
        ),
    )


def _build_sortable_field(column: str, text: str, row: Row) -> SortableField:
    return SortableField(
        column, use_no_break_spaces(text) if column in _FIGURES else text, _sort_number(column, row)
    )


def _sort_number(column: str, row: Row) -> float | None:
    """Return the number by which the page sorts the row in this column.

    Return None if the page sorts the row by its text.
    """
    speed = row.images_per_second
    numbers: dict[str, float | None] = {
        "rank": row.rank[0] + row.rank[1] / 1e6 if row.rank else None,
        "ranks": row.ranks,
        "checkpoints": row.checkpoints,
        "images/s": speed.value if speed else None,
        "of best": row.relative_to_best,
        "efficiency": row.efficiency.value if row.efficiency else None,
        "of peak": row.share_of_peak,
        "launches": speed.launches if speed else 0,
        "test acc.": row.test_accuracy,
    }
    return numbers.get(column)


def _describe_launch(record: Record) -> Launch:
    request = record.request
    assert request is not None
    noise = conditions.list_record_disturbances(record)
    more = [f"and {len(noise) - _MOST_WORDS} more"] if len(noise) > _MOST_WORDS else []
    reason = f"{record.status}: {record.reason or 'no reason recorded'}"
    if elsewhere := unmeasured_source(record):
        reason = elsewhere
    elif record.status == "ok":
        reason = "level changed" if is_level_changed(record) else ""
    return Launch(
        record=_shorten_id(record.id),
        number=request.launch,
        seed=request.seed,
        created=record.created[:19].replace("T", " "),
        images_per_second=_launch_throughput_text(record),
        conditions="; ".join([*noise[:_MOST_WORDS], *more])
        or (_QUIET if record.conditions else _NOT_KNOWN),
        reason=reason,
    )


def _summarize_ids_noise_and_exclusions(records: Sequence[Record]) -> tuple[tuple[str, str], ...]:
    """Return a summary of the launches as two pairs of name and text.

    - "records": the first record ids.
    - "conditions": the number of noisy launches and the number of excluded launches. Each number
      comes with one example.
    """
    launches = [_describe_launch(record) for record in records]
    named = " ".join(launch.record for launch in launches[:_MOST_RECORDS])
    omitted = len(launches) - _MOST_RECORDS
    noisy = [launch for launch in launches if launch.conditions not in (_QUIET, _NOT_KNOWN)]
    spoiled = [launch for launch in launches if launch.reason]
    text = f"{len(noisy)} of {len(launches)} launches were noisy"
    text += f", for example: {noisy[-1].conditions}" if noisy else ""
    text += f"; {len(spoiled)} do not count, for example: {spoiled[-1].reason}" if spoiled else ""
    return ("records", f"{named} and {omitted} more" if omitted > 0 else named), (
        "conditions",
        text,
    )


def _launch_throughput_text(record: Record) -> str:
    speed = launch_throughput(record) if record.measurement else 0.0
    return tables.format_number(speed, 4) if speed else "–"


def _row_facts(row: Row, last_record: Record) -> Iterable[tuple[str, str]]:
    """Yield facts about a row as pairs of name and text.

    `last_record` is the record of the row's last launch. It gives the observed threads and kernel,
    and the version of xfbench.
    """
    observed, software = last_record.observed, last_record.software
    if observed:
        cpus = f", {row.cpus_busy:.1f} CPUs busy" if row.cpus_busy is not None else ""
        yield "threads", f"{row.threads} requested{cpus}"
        evidence = f": {observed.kernel_evidence[0]}" if observed.kernel_evidence else ""
        yield "kernel observed", f"{observed.kernel}{evidence}"
    if row.batch_unproven_reason:
        yield "timed batch", f"batch not compared: {row.batch_unproven_reason}"
    row_costs = row.costs
    parts = {
        "start-up": row_costs.startup_seconds,
        "build": row_costs.build_seconds,
        f"first step{tables.first_step_origin_text(row_costs)}": row_costs.first_step_seconds,
        "all epochs": row_costs.solution_seconds,
    }
    costs = [f"{name} {value:.3g} s" for name, value in parts.items() if value is not None]
    if row_costs.accuracy_runs:
        costs.append(
            f"to {row_costs.target:.0%} accuracy {tables.time_to_accuracy_text(row_costs)}"
        )
    memories = {"memory": row_costs.peak_rss_bytes, "GPU memory": row_costs.peak_device_bytes}
    costs += [f"{name} {size / 1e9:.2g} GB" for name, size in memories.items() if size]
    if row_costs.joules_per_image is not None:
        costs.append(f"{row_costs.joules_per_image:.3g} J/image")
    if costs:
        yield "costs", " · ".join(costs)
    if of_step := row.communication:
        yield (
            "share of a step",
            f"computing {of_step.compute:.0%}, waiting {max(0.0, of_step.waiting):.0%}, "
            + (
                f"exchange {max(0.0, of_step.exposed):.0%}"
                if of_step.can_tell_exchange
                else "exchange unknown, because something disturbed the ranks"
            ),
        )
    if software:
        commit = f", commit {software.git_commit[:10]}" if software.git_commit else ""
        changed = ", with local changes" if software.git_dirty else ""
        yield "measured by", f"xfbench {software.xfbench_version}{commit}{changed}"
    if row.cell:
        yield "cell", _shorten_id(row.cell)
    if row.source != "measured":
        yield "source", row.source


def _shorten_id(identity: str) -> str:
    return identity.removeprefix("sha256:")[:SHORT]


def _describe_certificate(
    certificate_id: str, anchor: str, certificates: Certificates
) -> CertificateText:
    certificate = certificates.get(certificate_id)
    if not isinstance(certificate, Certificate):
        return CertificateText(
            anchor,
            _shorten_id(certificate_id),
            "–",
            certificate or "not in the results folder",
            "",
            "",
        )
    about = certificate.subject
    rank_parts = [f"{about.ranks} ranks", about.strategy] if about.ranks > 1 else []
    parts = [about.framework, about.workload, about.kernel, about.device, about.precision]
    if batch := certificate.timed_batch:
        parts.append(f"batch {batch.batch_size}, {batch.threads} threads")
    worst = max(
        (check.excess for check in certificate.checks if check.excess is not None), default=None
    )
    margin = "" if worst is None else f", largest error {worst:.2g} of its tolerance"
    return CertificateText(
        anchor=anchor,
        id=_shorten_id(certificate_id),
        subject=" · ".join([*parts, *rank_parts, about.microarchitecture]),
        verdict=certificate.verdict
        if not certificate.finding
        else f"{certificate.verdict}: {certificate.finding}",
        checks=f"{sum(check.quantities for check in certificate.checks):,} quantities{margin}",
        versions=f"{about.framework} {certificate.framework_version}, "
        f"xfbench {certificate.xfbench_version}",
    )


def _machine_of_each_class(records: Iterable[Record]) -> list[Machine]:
    """Return one machine for each machine class (`machine_class`) among the records' machines."""
    return list({machine_class(r.machine): r.machine for r in records if r.machine}.values())


def _machine_facts(machine: Machine) -> tuple[tuple[str, str], ...]:
    return (
        ("machine", machine_class(machine)),
        ("logical CPUs", str(machine.logical_cpus)),
        ("memory", f"{machine.memory_bytes / 2**30:.3g} GiB"),
        ("kernel", machine.kernel_release),
        ("governor", machine.governor or "not known"),
        ("CPU limit (cgroup)", f"{machine.cgroup_cpus:g} CPUs" if machine.cgroup_cpus else "none"),
    )
