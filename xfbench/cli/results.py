"""`xfbench results`: finds, joins, packs, checks and exchanges what a results folder holds."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from tarfile import is_tarfile
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.base.terminal_text import legible, say
from xfbench.cli.options import JsonOption, RecordFilterOption, ResultsOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xfbench.results.selection import Condition
    from xfbench.results.store import Store

app = typer.Typer(no_args_is_help=True, help="Find, join, check and exchange results.")


@app.callback()
def results() -> None:
    """Find, join, check and exchange results."""


def _open_store(results: Path | None) -> Store:
    from xfbench.base import paths
    from xfbench.results import store

    return store.existing(paths.results(results))


@app.command("list")
def list_(
    where: RecordFilterOption = None,
    limit: Annotated[int, typer.Option(help="How many at most; 0: all.", min=0)] = 50,
    published: Annotated[
        bool,
        typer.Option("--published", help="Instead, all figures of others that xfbench brings."),
    ] = False,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Records, the newest first.

    \b
    xfbench results list
    xfbench results list --where framework=torch --where 'threads>=2'
    xfbench results list --where status!=ok --limit 0 --json
    xfbench results list --published --where figure.about.study=storage
    """
    from xfbench.results import index, listing, selection

    conditions = selection.parse(where or ())
    if published:
        _print_published(conditions, as_json)
        return
    with index.opened(_open_store(results), say) as record_index:
        records = [record for _, record in record_index.newest(conditions, limit)]
        match_count = record_index.count(conditions)
    for line in record_index.damaged:
        say(line)
    if as_json:
        print(json.dumps({"records": [record.document() for record in records]}))
        return
    print(listing.table(records))
    if limit and len(records) == limit < match_count:
        print(f"{limit} of {match_count} records: --limit 0 shows all")


def _print_published(conditions: Sequence[Condition], as_json: bool) -> None:
    """What others published, from the package: it is in no results folder."""
    from xfbench import published
    from xfbench.layout import beside

    documents = [(record, record.document()) for record in published.records()]
    matches = [
        (record, document)
        for record, document in documents
        if all(condition.holds(document) for condition in conditions)
    ]
    if as_json:
        print(json.dumps({"records": [document for _, document in matches]}))
    else:
        print(beside.listed([record for record, _ in matches]))


@app.command()
def show(
    record: Annotated[str, typer.Argument(help="A record's id, or how it begins.")],
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """One record, whole: what was asked for, what was seen, and where its run lies.

    \b
    xfbench results show 7f3a
    xfbench results show sha256:7f3a --json
    """
    from xfbench.base import errors
    from xfbench.results import index, listing

    store = _open_store(results)
    prefix = record.removeprefix("sha256:").lower()
    with index.opened(store, say) as record_index:
        matches = list(record_index.select(prefix=prefix)) if prefix else []
    if len(matches) != 1:
        candidates = ", ".join(match.id[7:19] for _, match in matches[:5]) or "none"
        raise errors.UsageError(
            f"{record}: the start of one record's id is needed, not of {candidates}"
        )
    [(location, matching_record)] = matches
    if as_json:
        print(json.dumps(matching_record.document()))
    else:
        print(listing.whole(matching_record, location, store))


@app.command()
def merge(
    sources: Annotated[list[Path], typer.Argument(help="Results folders.")],
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take in the records of other folders, with certificates, runs and searches.

    \b
    xfbench results merge ../laptop/results ../node7/results
    """
    from xfbench.base import paths
    from xfbench.results import merging
    from xfbench.results.store import Store, existing

    store = Store(paths.results(results))
    damage_messages: list[str] = []
    new_count, known_count = merging.merge(
        [existing(source) for source in sources], store, damage_messages.append
    )
    summary = f"{new_count} records merged into {store.folder}; {known_count} were there"
    _print_outcome({"merged": new_count, "known": known_count}, summary, damage_messages, as_json)


@app.command()
def pack(
    everything: Annotated[
        bool, typer.Option("--all", help="Into one pack with those that are packed already.")
    ] = False,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put the records that are single files into one file, a line each; nothing else changes.

    \b
    xfbench results pack
    xfbench results pack --all
    """
    store = _open_store(results)
    damage_messages: list[str] = []
    count = store.pack(damage_messages.append, everything=everything)
    pack_names = [path.name for path in store.packs()]
    summary = f"{count} records packed; packs now: {len(pack_names)}"
    _print_outcome({"packed": count, "packs": pack_names}, summary, damage_messages, as_json)


@app.command()
def validate(
    path: Annotated[
        Path,
        typer.Argument(help="A results folder, a submission, a record, a pack or an archive."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Say what is wrong with results: each defect with its file; exit status 1 if there is any.

    \b
    xfbench results validate results
    xfbench results validate theirs.tar --json
    xfbench results validate submission
    """
    from xfbench.cli.options import parse_run_command
    from xfbench.results import audit

    checked, defects = audit.validate(path, parse_run_command)
    if as_json:
        documents = [defect.document() for defect in defects]
        print(json.dumps({"checked": checked, "defects": documents}))
    else:
        for defect in defects:
            print(f"{legible(defect.file, 4096)}: {defect.defect}: {legible(defect.detail, 400)}")
        print(f"{checked} records, certificates and searches checked, {len(defects)} defects")
    if defects:
        raise typer.Exit(1)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="FILE.tar, .tar.gz, .csv or .parquet.")],
    where: RecordFilterOption = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write records to one file: an archive with all that belongs to them, or a table of fields.

    \b
    xfbench results export ours.tar.gz
    xfbench results export torch.csv --where framework=torch
    xfbench results export all.parquet
    """
    from xfbench.results import exporting, index, selection

    write = exporting.writer(file)
    conditions = selection.parse(where or ())
    store = _open_store(results)
    with index.opened(store, say) as record_index:
        count = write(file, record_index.select(conditions), store)
    for line in record_index.damaged:
        say(line)
    print(json.dumps({"exported": count}) if as_json else f"{count} records written to {file}")


@app.command()
def submit(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    where: RecordFilterOption = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a folder for a leaderboard that many share: records, machines, how to repeat them.

    \b
    xfbench results submit submission --where workload=lenet
    xfbench results validate submission
    """
    from xfbench.results import index, selection, submission

    conditions = selection.parse(where or ())
    store = _open_store(results)
    messages: list[str] = []
    with index.opened(store, say) as record_index:
        count = submission.write(folder, record_index.select(conditions), store, messages.append)
        messages += record_index.damaged
    _print_outcome({"submitted": count}, f"{count} records written to {folder}", messages, as_json)


@app.command("import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            help="An exported archive, a submission, a folder that `run --carry` has written, or "
            "files of pytest-benchmark, ReFrame or MLPerf."
        ),
    ],
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take in results from elsewhere: with certificates from xfbench, as figures from other tools.

    \b
    xfbench results import theirs.tar.gz
    xfbench results import .benchmarks
    xfbench results import ~/.reframe/reports/run-report-0.json
    xfbench results import submission
    xfbench run --framework torch --workload lenet --launches 5 --carry ./there
    (run ./there/run.sh on the other machine, bring the folder back)
    xfbench results import ./there
    """
    from xfbench.base import paths
    from xfbench.cli import conclusion
    from xfbench.results.store import Store
    from xfbench.running import carry

    store = Store(paths.results(results))
    if not carry.is_one(source):
        damage_messages: list[str] = []
        new_count, known_count = _import_source(source, store, damage_messages)
        summary = f"{new_count} records imported into {store.folder}; {known_count} were there"
        _print_outcome(
            {"imported": new_count, "known": known_count}, summary, damage_messages, as_json
        )
        return
    records = list(carry.read(source, store, say))
    if as_json:
        print(json.dumps({"records": [record.document() for record in records]}))
    else:
        conclusion.print_conclusion(records, store)
    if any(record.status not in ("ok", "unsupported") for record in records):
        raise typer.Exit(1)


def _import_source(source: Path, store: Store, damage_messages: list[str]) -> tuple[int, int]:
    """By what it is: how many records are new, and were there."""
    from xfbench.base.errors import UsageError
    from xfbench.results import archive, merging, submission, submission_audit, taking
    from xfbench.results.store import existing

    if submission.is_one(source):
        for file, _, detail in submission_audit.against_manifest(source):
            raise UsageError(f"{file}: {detail}: nothing of the submission is taken")
        return merging.merge([existing(source)], store, damage_messages.append)
    if not source.exists():
        raise UsageError(f"{source}: there is no such file or folder")
    is_archive = source.name.endswith(archive.SUFFIXES)
    with suppress(OSError):
        is_archive = is_archive or is_tarfile(source)
    if is_archive and source.is_file():
        return archive.take(source, store, damage_messages.append)
    if any((source / name).is_dir() for name in ("records", "packs")):
        raise UsageError(f"{source} is a results folder: xfbench results merge {source}")
    return taking.take(source, store, damage_messages.append, say)


def _print_outcome(
    document: dict[str, object], summary: str, damage_messages: list[str], as_json: bool
) -> None:
    """Print what was done, and first what was left because it is damaged: then the exit is 1."""
    for line in damage_messages:
        say(line)
    print(json.dumps({**document, "damaged": damage_messages}) if as_json else summary)
    if damage_messages:
        raise typer.Exit(1)
