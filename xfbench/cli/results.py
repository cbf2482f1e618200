"""`xfbench results`: finds, joins, packs, checks and exchanges what a results folder holds."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from tarfile import is_tarfile
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.base.terminal_text import make_legible, say
from xfbench.cli.options import Json, Results, Where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xfbench.results.selection import Condition
    from xfbench.results.store import Store

app = typer.Typer(no_args_is_help=True, help="Find, join, check and exchange results.")


@app.callback()
def results() -> None:
    """Find, join, check and exchange results."""


def _there(results: Path | None) -> Store:
    from xfbench.base import paths
    from xfbench.results import store

    return store.open_store(paths.results(results))


@app.command("list")
def list_(
    where: Where = None,
    limit: Annotated[int, typer.Option(help="How many at most; 0: all.", min=0)] = 50,
    published: Annotated[
        bool,
        typer.Option("--published", help="Instead, all figures of others that xfbench brings."),
    ] = False,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Records, the newest first.

    \b
    xfbench results list
    xfbench results list --where framework=torch --where 'threads>=2'
    xfbench results list --where status!=ok --limit 0 --json
    xfbench results list --published --where figure.about.study=storage
    """
    from xfbench.results import index, listing, selection

    conditions = selection.parse_conditions(where or ())
    if published:
        _published(conditions, as_json)
        return
    with index.open_index(_there(results), say) as known:
        records = [record for _, record in known.newest(conditions, limit)]
        of = known.count(conditions)
    for line in known.damaged:
        say(line)
    if as_json:
        print(json.dumps({"records": [record.document() for record in records]}))
        return
    print(listing.format_table(records))
    if limit and len(records) == limit < of:
        print(f"{limit} of {of} records: --limit 0 shows all")


def _published(conditions: Sequence[Condition], as_json: bool) -> None:
    """What others published, from the package: it is in no results folder."""
    from xfbench import published
    from xfbench.layout import beside

    documents = [(record, record.document()) for record in published.records()]
    chosen = [(r, d) for r, d in documents if all(one.holds(d) for one in conditions)]
    if as_json:
        print(json.dumps({"records": [document for _, document in chosen]}))
    else:
        print(beside.render_list([record for record, _ in chosen]))


@app.command()
def show(
    record: Annotated[str, typer.Argument(help="A record's id, or how it begins.")],
    results: Results = None,
    as_json: Json = False,
) -> None:
    """One record, whole: what was asked for, what was seen, and where its run lies.

    \b
    xfbench results show 7f3a
    xfbench results show sha256:7f3a --json
    """
    from xfbench.base import errors
    from xfbench.results import index, listing

    store = _there(results)
    prefix = record.removeprefix("sha256:").lower()
    with index.open_index(store, say) as known:
        found = list(known.select(prefix=prefix)) if prefix else []
    if len(found) != 1:
        told = ", ".join(one.id[7:19] for _, one in found[:5]) or "none"
        raise errors.UsageError(f"{record}: the start of one record's id is needed, not of {told}")
    [(place, one)] = found
    if as_json:
        print(json.dumps(one.document()))
    else:
        print(listing.format_record(one, place, store))


@app.command()
def merge(
    sources: Annotated[list[Path], typer.Argument(help="Results folders.")],
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Take in the records of other folders, with certificates, runs and searches.

    \b
    xfbench results merge ../laptop/results ../node7/results
    """
    from xfbench.base import paths
    from xfbench.results import merging
    from xfbench.results.store import Store, open_store

    store = Store(paths.results(results))
    damaged: list[str] = []
    new, known = merging.merge([open_store(one) for one in sources], store, damaged.append)
    words = f"{new} records merged into {store.folder}; {known} were there"
    _conclude({"merged": new, "known": known}, words, damaged, as_json)


@app.command()
def pack(
    everything: Annotated[
        bool, typer.Option("--all", help="Into one pack with those that are packed already.")
    ] = False,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Put the records that are single files into one file, a line each; nothing else changes.

    \b
    xfbench results pack
    xfbench results pack --all
    """
    store = _there(results)
    damaged: list[str] = []
    count = store.pack(damaged.append, repack=everything)
    names = [path.name for path in store.packs()]
    words = f"{count} records packed; packs now: {len(names)}"
    _conclude({"packed": count, "packs": names}, words, damaged, as_json)


@app.command()
def validate(
    path: Annotated[
        Path,
        typer.Argument(help="A results folder, a submission, a record, a pack or an archive."),
    ],
    as_json: Json = False,
) -> None:
    """Say what is wrong with results: each defect with its file; exit status 1 if there is any.

    \b
    xfbench results validate results
    xfbench results validate theirs.tar --json
    xfbench results validate submission
    """
    from xfbench.cli.options import of_run
    from xfbench.results import audit

    checked, defects = audit.validate(path, of_run)
    if as_json:
        found = [defect.document() for defect in defects]
        print(json.dumps({"checked": checked, "defects": found}))
    else:
        for one in defects:
            print(f"{make_legible(one.file, 4096)}: {one.defect}: {make_legible(one.detail, 400)}")
        print(f"{checked} records, certificates and searches checked, {len(defects)} defects")
    if defects:
        raise typer.Exit(1)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="FILE.tar, .tar.gz, .csv or .parquet.")],
    where: Where = None,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Write records to one file: an archive with all that belongs to them, or a table of fields.

    \b
    xfbench results export ours.tar.gz
    xfbench results export torch.csv --where framework=torch
    xfbench results export all.parquet
    """
    from xfbench.results import exporting, index, selection

    write = exporting.choose_writer(file)
    conditions = selection.parse_conditions(where or ())
    store = _there(results)
    with index.open_index(store, say) as known:
        count = write(file, known.select(conditions), store)
    for line in known.damaged:
        say(line)
    print(json.dumps({"exported": count}) if as_json else f"{count} records written to {file}")


@app.command()
def submit(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    where: Where = None,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Write a folder for a leaderboard that many share: records, machines, how to repeat them.

    \b
    xfbench results submit submission --where workload=lenet
    xfbench results validate submission
    """
    from xfbench.results import index, selection, submission

    conditions = selection.parse_conditions(where or ())
    store = _there(results)
    left: list[str] = []
    with index.open_index(store, say) as known:
        count = submission.write_submission(folder, known.select(conditions), store, left.append)
        left += known.damaged
    _conclude({"submitted": count}, f"{count} records written to {folder}", left, as_json)


@app.command("import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            help="An exported archive, a submission, a folder that `run --carry` has written, or "
            "files of pytest-benchmark, ReFrame or MLPerf."
        ),
    ],
    results: Results = None,
    as_json: Json = False,
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
        damaged: list[str] = []
        new, known = _take(source, store, damaged)
        words = f"{new} records imported into {store.folder}; {known} were there"
        _conclude({"imported": new, "known": known}, words, damaged, as_json)
        return
    records = list(carry.read(source, store, say))
    if as_json:
        print(json.dumps({"records": [record.document() for record in records]}))
    else:
        conclusion.conclude(records, store)
    if any(record.status not in ("ok", "unsupported") for record in records):
        raise typer.Exit(1)


def _take(source: Path, store: Store, damaged: list[str]) -> tuple[int, int]:
    """By what it is: how many records are new, and were there."""
    from xfbench.base.errors import UsageError
    from xfbench.results import archive, merging, submission, submission_audit, taking
    from xfbench.results.store import open_store

    if submission.is_submission(source):
        for file, _, detail in submission_audit.audit_manifest(source):
            raise UsageError(f"{file}: {detail}: nothing of the submission is taken")
        return merging.merge([open_store(source)], store, damaged.append)
    if not source.exists():
        raise UsageError(f"{source}: there is no such file or folder")
    packed = source.name.endswith(archive.SUFFIXES)
    with suppress(OSError):
        packed = packed or is_tarfile(source)
    if packed and source.is_file():
        return archive.import_archive(source, store, damaged.append)
    if any((source / name).is_dir() for name in ("records", "packs")):
        raise UsageError(f"{source} is a results folder: xfbench results merge {source}")
    return taking.import_figures(source, store, damaged.append, say)


def _conclude(document: dict[str, object], words: str, damaged: list[str], as_json: bool) -> None:
    """Print what was done, and first what was left because it is damaged: then the exit is 1."""
    for line in damaged:
        say(line)
    print(json.dumps({**document, "damaged": damaged}) if as_json else words)
    if damaged:
        raise typer.Exit(1)
