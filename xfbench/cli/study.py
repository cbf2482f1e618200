"""`xfbench study`: questions that were asked in print, run here, with what was found beside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.base.terminal_text import say
from xfbench.cli.options import (
    DryRun,
    Json,
    Pythons,
    Results,
    Resume,
    TimeLimit,
    positive,
    pythons,
    words,
)
from xfbench.cli.options import size as memory_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xfbench.experiment import Experiment
    from xfbench.plan import Plan
    from xfbench.records.record import Record
    from xfbench.request import Cell, Request
    from xfbench.results.store import Store
    from xfbench.studies.answer import Answer
    from xfbench.studies.form import Size
    from xfbench.studies.rising import CellSearch
    from xfbench.studies.running import StudyPlan

app = typer.Typer(no_args_is_help=True, help="Questions asked in print: list, show, run, report.")

Name = Annotated[str, typer.Argument(help="A study's name, or the path of your own TOML file.")]
SizeOption = Annotated[
    str | None,
    typer.Option("--size", help="smoke: minutes; laptop: an hour; paper: as it was published."),
]
With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="RESULTS",
        help="Somebody else's records too: a results folder or an exported archive (repeatable).",
    ),
]


@app.callback()
def study() -> None:
    """Questions that were asked in print: list, show, run, report."""


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Every study: the built-in ones and your own.

    \b
    xfbench study list
    """
    from tabulate import tabulate

    from xfbench import experiment

    found = [experiment.load(name) for name in experiment.names()]
    if as_json:
        print(json.dumps({"studies": [_told(one) for one in found]}))
        return
    lines = [
        [one.name, ", ".join(one.sizes), ", ".join(one.sources), one.question] for one in found
    ]
    print(tabulate(lines, ["study", "sizes", "asked in", "question"], disable_numparse=True))


@app.command()
def show(name: Name, as_json: Json = False) -> None:
    """A study: its question, method, cells by size, and what was published.

    \b
    xfbench study show thread-sweep
    """
    from xfbench import experiment
    from xfbench.layout import beside
    from xfbench.studies import answer, drawing

    one = experiment.load(name)
    if as_json:
        print(json.dumps({**_told(one), "experiment": one.model_dump(mode="json")}))
        return
    print(one.title, one.question, sep="\n")
    print(*filter(None, [one.method, *one.limits]), sep="\n")
    for size in one.sizes:
        for matrix in one.matrices_of_size(size):
            chosen = matrix.model_dump(exclude_defaults=True, exclude={"size"}, mode="json")
            print(
                f"{size}: " + "; ".join(f"{key} {_plain(value)}" for key, value in chosen.items())
            )
    for analysis in one.analysis:
        for claim in analysis.claim:
            print(f"{claim.source}: {claim.text}")
    for citation, figure in answer.published_figures(one):
        printed = f"{beside.value(figure)} ({drawing.figure_subject(figure)})"
        print(f"{citation.key}: {figure.quantity}: {printed}")


@app.command()
def run(
    name: Name,
    size: SizeOption = None,
    framework: Annotated[
        str | None,
        typer.Option(help="Only these of its frameworks.", show_default=False),
    ] = None,
    launches: Annotated[
        str | None,
        typer.Option(help="So many of each cell (default: the file's).", show_default=False),
    ] = None,
    launcher: Annotated[
        str | None, typer.Option(help="local, mpi, slurm (default: the file's, or the site's).")
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="The machine's ways: see docs/clusters.md.")
    ] = None,
    medium: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=DIR", help="Another medium to keep the study's data on (repeatable)."
        ),
    ] = None,
    python: Pythons = None,
    others: With = None,
    results: Results = None,
    time_limit: TimeLimit = 1800,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Where batches rise: private memory of a rank, as in 8GB (default: the file's, "
            "or what is available).",
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[int, typer.Option(min=1, help="How long a submitted job may take.")] = 60,
    queue: Annotated[str, typer.Option(help="Slurm's partition.", show_default=False)] = "",
    account: Annotated[
        str, typer.Option(help="Whom a job is charged to.", show_default=False)
    ] = "",
    resume: Resume = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Prove nothing first: less can be compared.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a noisy machine.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Run a study, and say what came of it. A dry run says what would run, and how long.

    A study's own data are made in the cache, for a dry run too. What this machine cannot do is
    told, cell by cell, and the rest is run.

    \b
    xfbench study run thread-sweep
    xfbench study run kernels --size laptop --dry-run
    xfbench study run kernels --size laptop --resume
    xfbench study run mine.toml --framework torch
    """
    from xfbench import experiment
    from xfbench.base import errors, paths
    from xfbench.host import memory
    from xfbench.results import lookup
    from xfbench.results.store import Store
    from xfbench.running import progress, queued
    from xfbench.studies import answer, media, rising, running

    one = experiment.load(name)
    answer.check_analyses(one)
    counts = words(launches, positive, "--launches")
    if counts and len(counts) > 1:
        raise errors.UsageError(f"--launches {launches}: one number is needed")
    choices = running.Choices(
        frameworks=words(framework, str, "--framework") or (),
        launches=counts[0] if counts else None,
        launcher=launcher,
        site=site,
        pythons=pythons(python),
        media=_media(medium),
        verify=not no_verify,
        strict=strict,
        time_limit=time_limit,
        memory_limit=memory_size(memory_limit, "--memory-limit"),
    )
    chosen = _size(size) or one.sizes[0]
    prepared = running.prepare(one, chosen, choices)
    store = Store(paths.results(results))
    done = lookup.done(prepared.plan.requests, store) if resume else []
    known = list(store.records()) if resume and prepared.searches and store.folder.is_dir() else []
    lines = rising.add_memory_limits(prepared.searches, known)
    if dry_run:
        _foresee(prepared, lines, prepared.plan.without(done).requests, store, as_json)
        return
    for data in prepared.missing_data:
        say(f"left out: {media.missing_data_message(data)}")
    for cell, reason in prepared.skipped_cells:
        say(f"left out: {cell.label()}: {reason}")

    def measure(part: Plan, done: Sequence[Record]) -> list[Record]:
        here, there = queued.apart(part)
        records = progress.measure(here, store, done) if here.requests or not there.requests else []
        if there.requests:
            jobs = queued.prepare(there, store, minutes, queue, account)
            records += queued.measure(jobs, store, done, wait=True)
        return records

    records = measure(prepared.plan, done) if prepared.plan.requests else []
    found = rising.run_searches(lines, prepared.plan, measure, known, say)
    records += [record for record in found if not memory.is_out(record)]
    _print(_answer(one, chosen, [store.folder, *(others or ())]), as_json)
    if any(not running.is_expected(one, record) for record in records):
        raise typer.Exit(1)


@app.command()
def report(
    name: Name,
    size: SizeOption = None,
    output: Annotated[
        Path | None, typer.Option(help="FILE.html or .md (default: Markdown on the terminal).")
    ] = None,
    others: With = None,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """What a study came to: the answer, figures, tables, published beside measured, limits.

    \b
    xfbench study report thread-sweep
    xfbench study report kernels --output kernels.html
    xfbench study report architectures --with theirs.tar.gz --output architectures.md
    """
    from xfbench import experiment
    from xfbench.base import atomic_files, errors, paths
    from xfbench.studies import page, telling

    one = experiment.load(name)
    if output is not None and output.suffix not in (".html", ".md"):
        raise errors.UsageError(f"--output {output}: FILE.html or FILE.md is needed")
    own = paths.results(results)
    sources = [own] if own.is_dir() or not others else []
    found = _answer(one, _size(size), [*sources, *(others or ())])
    if output is None:
        _print(found, as_json)
        return
    drawings = telling.render_svgs(found) if output.suffix == ".md" else []
    names = [f"{output.stem}-{number}.svg" for number in range(1, len(drawings) + 1)]
    text = (
        page.render_html(found)
        if output.suffix == ".html"
        else telling.render_markdown(found, names)
    )
    try:
        for place, drawing in zip(names, drawings, strict=True):
            atomic_files.write(output.absolute().with_name(place), drawing.encode())
        atomic_files.write(output.absolute(), text.encode())
    except OSError as error:
        raise errors.UsageError(f"--output {output}: {error.strerror}") from error
    print(json.dumps({"output": str(output)}) if as_json else f"{output}: {one.title}")


def _print(found: Answer, as_json: bool) -> None:
    from xfbench.studies import telling

    print(json.dumps(found.document()) if as_json else telling.render_markdown(found), end="")
    if as_json:
        print()


def _foresee(
    prepared: StudyPlan,
    rising: Sequence[CellSearch],
    requests: Sequence[Request],
    store: Store,
    as_json: bool,
) -> None:
    """The cells, the launches at most, how long they take, and what cannot be done here.

    Of batches that are found out, from where on: their cells are not known.
    """
    from xfbench import capabilities
    from xfbench.studies import media, running

    expected = running.estimate_duration(requests, store.records() if store.folder.is_dir() else ())
    launches: dict[Cell, int] = {}
    for request in requests:
        launches[request.cell()] = launches.get(request.cell(), 0) + 1
    lines = [
        (cell, count, capabilities.refusal(cell.request(1))) for cell, count in launches.items()
    ]
    out = [(cell, 0, reason) for cell, reason in prepared.skipped_cells]
    if as_json:
        cells = [
            {"cell": cell.model_dump(mode="json"), "launches": count, "reason": reason}
            for cell, count, reason in (*lines, *out)
        ]
        found_out = [
            {
                "cell": line.cell.model_dump(mode="json"),
                "batch_size": line.rules.model_dump(mode="json"),
                "launches_at_most": line.max_launches(),
                "reason": capabilities.refusal(line.cell.request(1)),
            }
            for line in rising
        ]
        told = {"cells": cells, "launches": len(requests), "estimate": vars(expected)}
        print(json.dumps({**told, "found_out": found_out, "absent": prepared.missing_data}))
        return
    if lines or not rising:
        print(f"{len(lines)} cells, {len(requests)} launches at most; time: {expected.describe()}")
    if rising:
        print("of these the batches, and so the launches, are not known beforehand:")
    for line in rising:
        most, reason = line.max_launches(), capabilities.refusal(line.cell.request(1))
        limit = line.cell.memory_limit
        parts = [line.cell.label(), f"batch {line.rules.describe()}"]
        parts += [f"memory {limit / 1e6:.0f} MB a rank"] if limit else []
        parts += [f"at most {most} launches"] if most else []
        print(" · ".join(parts) + (f": {reason}" if reason else ""))
    for name in prepared.missing_data:
        print(f"left out: {media.missing_data_message(name)}")
    for cell, count, reason in (*lines, *out):
        what = f"{cell.label()} · batch {cell.global_batch_size}"
        times = f"{count} launch{'es' if count > 1 else ''}" if count else "left out"
        print(f"{what} · {times}{f': {reason}' if reason else ''}")


def _answer(one: Experiment, size: Size | None, sources: Sequence[Path]) -> Answer:
    """What the records of these folders and archives say. Raises UsageError where none do."""
    from xfbench.base import errors
    from xfbench.studies import answer, cells, gathering

    records, certificates = gathering.load_results(sources, say)
    chosen = size or cells.most_measured_size(one, records)
    if chosen is None:
        raise errors.UsageError(
            f"{sources[0]} has nothing of {one.name}: make it with `xfbench study run {one.name}`"
        )
    return answer.answer_study(one, chosen, records, certificates)


def _size(text: str | None) -> Size | None:
    from typing import get_args

    from xfbench.base import errors
    from xfbench.studies.form import SIZES, Size

    if text is not None and text not in SIZES:
        raise errors.unknown("size", text, SIZES)
    return next((one for one in get_args(Size) if one == text), None)


def _media(pairs: Sequence[str] | None) -> dict[str, Path]:
    from xfbench.base.errors import UsageError

    found = {}
    for pair in pairs or ():
        name, equals, folder = pair.partition("=")
        if not name or not equals or not folder:
            raise UsageError(f"--medium {pair}: the form is NAME=DIR, as in nvme=/scratch")
        found[name] = Path(folder).expanduser()
    return found


def _told(one: Experiment) -> dict[str, object]:
    return {
        "name": one.name,
        "title": one.title,
        "question": one.question,
        "citation": list(one.sources),
        "sizes": one.sizes,
    }


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key} {one}" for key, one in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
