"""`xfbench results`: find, pack, check and exchange records."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.base.terminal_text import make_legible, say, terminal_width
from xfbench.base.terminal_text import print_legibly as print
from xfbench.cli.options import (
    FrameworkFilterOption,
    JsonOption,
    RecordFilterOption,
    ResultsOption,
    WorkloadFilterOption,
    check_listed_names,
    check_parent_folder,
    fail_without_match,
    parse_record_filters,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xfbench.model.origins import Origins
    from xfbench.model.record import Record
    from xfbench.store.results_folder import Place, Store
    from xfbench.store.selection import Condition

_MAX_SHOWN = 1000  # messages about damaged records
_REFERENCE_FORMATS = ("reframe", "pytest-benchmark")
_SYSTEM = "workstation:default"
app = typer.Typer(no_args_is_help=True, help="Find, check and exchange records.")


@app.callback()
def results() -> None:
    """Find, check and exchange records."""


def _open_store(results: Path | None) -> Store:
    from xfbench.base import paths
    from xfbench.store import results_folder

    return results_folder.open_existing_store(paths.results(results))


_BibtexOption = Annotated[
    bool,
    typer.Option(
        "--bibtex",
        help="Print how to cite xfbench as BibTeX. With --published, also the sources of the "
        "published values; with a filter, only those.",
    ),
]


@app.command("list")
def list_(
    where: RecordFilterOption = None,
    framework: FrameworkFilterOption = None,
    workload: WorkloadFilterOption = None,
    limit: Annotated[int, typer.Option(help="Maximum number of records; 0: all.", min=0)] = 50,
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="List the published values that come with xfbench, instead of records.",
        ),
    ] = False,
    bibtex: _BibtexOption = False,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List records, newest first.

    \b
        xfbench results list
        xfbench results list --where framework=torch --where 'threads>=2'
        xfbench results list --where status!=ok --limit 0 --json
        xfbench results list --published --where figure.about.study=storage
        xfbench results list --published --where citation.key=Z17
        xfbench results list --bibtex
        xfbench results list --published --bibtex
    """
    from xfbench.base import bibtex as entries
    from xfbench.base import errors
    from xfbench.store import index

    conditions = parse_record_filters(where, framework, workload)
    if bibtex and as_json:
        raise errors.UsageError("--bibtex and --json are two forms of output: choose one")
    if bibtex and conditions and not published:
        raise errors.UsageError("--bibtex with a filter needs --published")
    if bibtex and not published:
        print(entries.cite_xfbench())
        return
    if published:
        _print_published_figures(conditions, bibtex, as_json)
        return
    store = _open_store(results)
    with index.open_index(store, say) as record_index:
        check_listed_names(record_index, conditions)
        records = [record for _, record in record_index.newest(conditions, limit)]
        match_count = record_index.count_preselected(conditions)
        if conditions and not records:
            fail_without_match(record_index, conditions)
    for line in record_index.damaged:
        say(line)
    is_cut = 0 < limit == len(records) < match_count
    cut_note = f"{limit} of {match_count} records: --limit 0 shows all" * is_cut
    _print_records(records, _read_origins(store), cut_note, as_json)


def _read_origins(store: Store) -> Origins:
    """Return where the records came from. Damaged notes are reported."""
    from xfbench.model import origins

    known_origins = origins.read(store.folder)
    for line in known_origins.problems:
        say(line)
    return known_origins


def _print_records(
    records: Sequence[Record], known_origins: Origins, cut_note: str, as_json: bool
) -> None:
    """Print the records. `cut_note` says that there are more; it is empty if there are not."""
    from xfbench.model.origins import WORDS
    from xfbench.rendering import record_listing

    if as_json:
        documents = [record.document() for record in records]
        words = {record.id: WORDS[known_origins.of_record(record)] for record in records}
        print(json.dumps({"records": documents, "origins": words}))
    else:
        print(record_listing.format_table(records, terminal_width(), known_origins))
    if cut_note:
        say(cut_note) if as_json else print(cut_note)


def _print_published_figures(
    conditions: Sequence[Condition], as_bibtex: bool, as_json: bool
) -> None:
    """Print the published values that meet all `conditions`, or their sources as BibTeX.

    Without conditions, BibTeX has the sources that have sentences only too, and xfbench itself.
    """
    from xfbench.base import bibtex, errors
    from xfbench.rendering import external_figures
    from xfbench.store import published

    conditions = [external_figures.as_condition_on_figure(condition) for condition in conditions]
    documents = [(record, record.document()) for record in published.records()]
    matches = [
        (record, document)
        for record, document in documents
        if all(condition.holds(document) for condition in conditions)
    ]
    if conditions and not matches:
        raise errors.NoMatchError(_describe_published_mismatch(conditions))
    if as_bibtex:
        keys = {record.citation.key for record, _ in matches if record.citation}
        chosen = [source for source in published.sources() if not conditions or source.key in keys]
        entries = [source.bibtex for source in chosen]
        print("\n\n".join(entries if conditions else [*entries, bibtex.cite_xfbench()]))
        return
    if as_json:
        print(json.dumps({"records": [document for _, document in matches]}))
    else:
        figures = [record for record, _ in matches]
        print(external_figures.render_figures_and_sources(figures, terminal_width()))


def _describe_published_mismatch(conditions: Sequence[Condition]) -> str:
    """Return a line that says why no published value meets all conditions."""
    from xfbench.store import published, selection

    documents = [record.document() for record in published.records()]
    mismatch = selection.describe_mismatch_of_documents(conditions, documents, "published values")
    return f"{mismatch} (the key of a source is citation.key, such as citation.key=Z17)"


@app.command()
def show(
    record: Annotated[str, typer.Argument(help="Id of a record, or its first characters.")],
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one record: the request, the observations and the run folder.

    Published values that come with xfbench are found too (xfbench results list --published).

    \b
        xfbench results show 7f3a
        xfbench results show sha256:7f3a --json
    """
    from xfbench.base import errors, paths
    from xfbench.rendering import record_listing
    from xfbench.store import index, published

    prefix = record.removeprefix("sha256:").lower()
    values = [value for value in published.records() if prefix and value.id[7:].startswith(prefix)]
    matches: list[tuple[Place | None, Record]] = [(None, value) for value in values]
    # Published values need no results folder.
    store = None if values and not paths.results(results).is_dir() else _open_store(results)
    if store and prefix:
        with index.open_index(store, say) as record_index:
            matches += record_index.select(id_prefix=prefix)
    if not matches:
        raise errors.UsageError(f"no record id starts with {record!r}")
    if len(matches) > 1:
        candidates = ", ".join(match.id[7:19] for _, match in matches[:5])
        raise errors.UsageError(
            f"{len(matches)} record ids start with {record!r}, such as {candidates}"
        )
    [(place, matching_record)] = matches
    if as_json:
        print(json.dumps(matching_record.document()))
    elif store and place:
        print(record_listing.format_record(matching_record, place, store, _read_origins(store)))
    else:
        print(record_listing.format_fields(matching_record))


@app.command()
def repeat(
    where: RecordFilterOption = None,
    framework: FrameworkFilterOption = None,
    workload: WorkloadFilterOption = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the commands that measure all cells of the records again, as few as possible.

    The output is a shell script. What else is needed stands in its comments.

    \b
        xfbench results repeat > repeat.sh
        xfbench results repeat --workload lenet --where threads=2
    """
    from xfbench.base import errors
    from xfbench.rendering.report import repeat_all
    from xfbench.store import index

    conditions = parse_record_filters(where, framework, workload)
    with index.open_index(_open_store(results), say) as record_index:
        check_listed_names(record_index, conditions)
        records = [record for _, record in record_index.select(conditions)]
        if conditions and not records:
            fail_without_match(record_index, conditions)
    for line in record_index.damaged:
        say(line)
    commands = repeat_all.commands_that_repeat(records)
    if as_json:
        print(json.dumps({"commands": commands.lines, "notes": commands.notes}))
        return
    if not commands.lines:
        raise errors.NoMatchError("no command repeats these records")
    print("\n".join([*(f"# {note}" for note in commands.notes), *commands.lines]))


@app.command()
def pack(
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Also move the records of existing packs, so that only one pack remains."
        ),
    ] = False,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move all records that have their own file into one new file, a pack.

    A pack has one line per record. The records do not change.

    \b
        xfbench results pack
        xfbench results pack --all
    """
    store = _open_store(results)
    damage_messages: list[str] = []
    count = store.pack(damage_messages.append, repack=everything)
    pack_names = [path.name for path in store.packs()]
    summary = f"{count} records packed; packs now: {len(pack_names)}"
    _print_outcome_exit_if_damaged(
        {"packed": count, "packs": pack_names}, summary, damage_messages, as_json
    )


@app.command()
def validate(
    path: Annotated[
        Path | None,
        typer.Argument(
            help="Results folder, submission, record, pack or archive to check (default: that of "
            "--results)."
        ),
    ] = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check results and list each defect with its file. Exit with status 1 if there are defects.

    \b
        xfbench results validate
        xfbench results validate theirs.tar --json
        xfbench results validate submission
    """
    from xfbench.base import paths
    from xfbench.exchange import audit, submission, submission_audit

    source = path or paths.results(results)
    checked, defects = audit.validate_results(source)
    if submission.is_submission(source) and (
        message := submission_audit.describe_what_is_not_compared(source)
    ):
        say(message)
    if as_json:
        documents = [defect.document() for defect in defects]
        print(json.dumps({"checked": checked, "defects": documents}))
    else:
        for defect in defects:
            file, detail = make_legible(defect.file, 4096), make_legible(defect.detail, 400)
            print(f"{file}: {defect.defect}: {detail}")
        print(f"{checked} records, certificates and searches checked, {len(defects)} defects")
    if defects:
        raise typer.Exit(1)


@app.command()
def export(
    file: Annotated[
        Path, typer.Argument(help="File to write: FILE.tar, .tar.gz, .csv or .parquet.")
    ],
    where: RecordFilterOption = None,
    framework: FrameworkFilterOption = None,
    workload: WorkloadFilterOption = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write records to one file: an archive that can be imported, or a table.

    An archive (.tar, .tar.gz) also has the certificates and tuning searches of its records. A table
    (.csv, .parquet) has one row per record and one column per field.

    \b
        xfbench results export ours.tar.gz
        xfbench results export torch.csv --where framework=torch
        xfbench results export all.parquet
    """
    from xfbench.exchange import exporting
    from xfbench.store import index

    write = exporting.choose_file_writer(file)
    check_parent_folder(file)
    conditions = parse_record_filters(where, framework, workload)
    store = _open_store(results)
    with index.open_index(store, say) as record_index:
        check_listed_names(record_index, conditions)
        stored = record_index.select(conditions)
        first = list(itertools.islice(stored, 1))
        if conditions and not first:
            fail_without_match(record_index, conditions)
        count = write(file, itertools.chain(first, stored), store, say)
    for line in record_index.damaged:
        say(line)
    print(json.dumps({"exported": count}) if as_json else f"{count} records written to {file}")


@app.command()
def references(
    format: Annotated[
        str,
        typer.Option(
            help="Format: reframe (images per second of each cell) or pytest-benchmark (a saved "
            "run, in seconds per step)."
        ),
    ] = "reframe",
    system: Annotated[
        str | None,
        typer.Option(
            metavar="SYSTEM:PARTITION",
            help=f"System and partition of ReFrame (default: {_SYSTEM}).",
            show_default=False,
        ),
    ] = None,
    where: RecordFilterOption = None,
    framework: FrameworkFilterOption = None,
    workload: WorkloadFilterOption = None,
    results: ResultsOption = None,
) -> None:
    """Print the speed of each ranked cell as JSON, for ReFrame or pytest-benchmark to compare with.

    \b
        xfbench results references --system cluster:cpu > references.json
        xfbench results references --format pytest-benchmark > before.json
        pytest-benchmark compare before.json
        pytest --pyargs xfbench --benchmark-only --benchmark-compare=before.json
    """
    from xfbench.analysis import ranked
    from xfbench.base import errors
    from xfbench.benchmarks import storage
    from xfbench.exchange import references as reframe_references
    from xfbench.model import certificate
    from xfbench.store import index

    if format not in _REFERENCE_FORMATS:
        raise errors.unknown_name_error("format", format, _REFERENCE_FORMATS)
    is_for_reframe = format == "reframe"
    if system and not is_for_reframe:
        raise errors.UsageError("--system needs --format reframe")
    store = _open_store(results)
    conditions = parse_record_filters(where, framework, workload)
    with index.open_index(store, say) as record_index:
        check_listed_names(record_index, conditions)
        tables = ranked.leaderboard_tables(
            record_index, [conditions], certificate.read_certificates(store.folder)
        )
        if conditions and not tables and not record_index.newest(conditions, 1):
            fail_without_match(record_index, conditions)
        if is_for_reframe:
            document = reframe_references.build_references(tables, system or _SYSTEM)
        else:
            records = (record for _, record in record_index.select(conditions))
            document = storage.build_file(tables, records, say)
    print(json.dumps(document, indent=1))
    if not any(table.rows for table in tables):
        say("no cell is ranked: see `xfbench leaderboard` for the reasons")


@app.command()
def submit(
    folder: Annotated[Path, typer.Argument(help="New folder to write.")],
    where: RecordFilterOption = None,
    framework: FrameworkFilterOption = None,
    workload: WorkloadFilterOption = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a folder to submit to a shared leaderboard.

    The folder has the records, a description of each machine, and the command for each cell.

    \b
        xfbench results submit submission --where workload=lenet
        xfbench results validate submission
    """
    from xfbench.exchange import submission
    from xfbench.store import index

    check_parent_folder(folder)
    conditions = parse_record_filters(where, framework, workload)
    store = _open_store(results)
    messages: list[str] = []
    with index.open_index(store, say) as record_index:
        check_listed_names(record_index, conditions)
        if conditions and not record_index.newest(conditions, 1):
            fail_without_match(record_index, conditions)
        count = submission.write_submission(
            folder, record_index.select(conditions), store, messages.append
        )
        messages += record_index.damaged
    _print_outcome_exit_if_damaged(
        {"submitted": count}, f"{count} records written to {folder}", messages, as_json
    )


_BundleOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Folder of `run --bundle` after it was run on another machine, or its archive.",
    ),
]


@app.command("import")
def import_(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Results folders, exported archives, packs, submissions, and files or folders of "
            "pytest-benchmark, ReFrame or MLPerf.",
            show_default=False,
        ),
    ] = None,
    bundle: _BundleOption = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import records that xfbench made elsewhere, or measured values from other tools.

    Records are imported with their certificates and tuning searches. Importing something again
    changes nothing.

    \b
        xfbench results import ../laptop/results ../node7/results
        xfbench results import theirs.tar.gz
        xfbench results import submission
        xfbench results import .benchmarks
        xfbench results import ~/.reframe/reports/run-report-0.json
        xfbench run --framework torch --workload lenet --launches 5 --bundle ./there
        (run ./there/run.sh on the other machine, then copy the folder back)
        xfbench results import --bundle ./there
    """
    from xfbench import bundle as bundles
    from xfbench.base import errors, paths
    from xfbench.exchange import importing
    from xfbench.store.results_folder import Store

    store = Store(paths.results(results))
    if bundle and not sources:
        _import_bundle(bundle, store, as_json)
        return
    if bundle or not sources:
        raise errors.UsageError("give either sources to import, or --bundle PATH")
    if folder := next(filter(bundles.is_carried_run, sources), None):
        bundles.check_is_nothing_else(folder)
        advice = f"use `xfbench results import --bundle {folder}`"
        raise errors.UsageError(f"{folder} is a bundle: {advice}")
    damage_messages: list[str] = []
    counts = [
        importing.import_source(source, store, damage_messages.append, say)
        for source in importing.check_sources(sources, store)
    ]
    new_count, known_count = (sum(numbers) for numbers in zip(*counts, strict=True))
    _print_outcome_exit_if_damaged(
        {"imported": new_count, "known": known_count},
        f"{new_count} records imported into {store.folder}; {known_count} already present",
        damage_messages,
        as_json,
    )


def _import_bundle(source: Path, store: Store, as_json: bool) -> None:
    """Import a bundle that was run, and print the leaderboard of its records.

    Exit with status 1 if any record has a status other than ok or unsupported.
    """
    from xfbench import bundle
    from xfbench.cli import conclusion

    with bundle.open_bundle(source, say) as folder:
        records = bundle.import_carried_run(folder, store, say, source)
    if as_json:
        print(json.dumps({"records": [record.document() for record in records]}))
    else:
        conclusion.print_leaderboard_and_results_path(records, store)
    if any(record.status not in ("ok", "unsupported") for record in records):
        raise typer.Exit(1)


def _print_outcome_exit_if_damaged(
    document: dict[str, object], summary: str, damage_messages: list[str], as_json: bool
) -> None:
    """Print `damage_messages` and the outcome. Exit with status 1 if there are such messages.

    The outcome is `summary`, or `document` if `as_json` is true.
    """
    for line in damage_messages[:_MAX_SHOWN]:
        say(line)
    if len(damage_messages) > _MAX_SHOWN:
        say(f"and {len(damage_messages) - _MAX_SHOWN} more")
    print(json.dumps({**document, "damaged": damage_messages}) if as_json else summary)
    if damage_messages:
        raise typer.Exit(1)
