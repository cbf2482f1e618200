"""`xfbench study`: repeat published studies here and compare with their published values."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.terminal_text import say, terminal_width
from xfbench.cli.completion import complete_studies
from xfbench.cli.options import (
    FigureFormatOption,
    FiguresOption,
    FrameworkFilterOption,
    GroupedCommand,
    JsonOption,
    RecordFilterOption,
    ResultsOption,
    WorkloadFilterOption,
    check_listed_names_in_folder,
    check_output_file,
    framework_option,
    parse_list,
    parse_options,
    parse_positive_int,
    parse_record_filters,
    prepare_figures,
    with_settings,
    workload_option,
)
from xfbench.model import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from xfbench.equality.certify import Unproven
    from xfbench.model.record import Record
    from xfbench.model.request import Cell
    from xfbench.planning.experiment import Experiment
    from xfbench.planning.study_form import Size
    from xfbench.store.results_folder import Store
    from xfbench.store.selection import Condition
    from xfbench.studies.answer import Answer
    from xfbench.studies.batch_search import CellSearch
    from xfbench.studies.running import Choices, StudyPlan

app = typer.Typer(no_args_is_help=True, help="List, show, run and report published studies.")

NameArgument = Annotated[
    str,
    typer.Argument(
        help="Name of a study, or path of your own TOML file.", autocompletion=complete_studies
    ),
]
SizeOption = Annotated[
    str | None,
    typer.Option(
        "--size",
        help="Size of the study. smoke: takes minutes; laptop: takes an hour; paper: as published "
        "(default of run: the smallest size; of report: the size with the most records).",
    ),
]
WithOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="RESULTS",
        help="Also use the records of this results folder or exported archive (repeatable).",
    ),
]

_AgainstOption = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="TEXT",
        help="Machine that is the baseline, in studies that compare machines: a part of its name, "
        "such as P100 (default: as in the study file: the fastest).",
        show_default=False,
    ),
]


@app.callback()
def study() -> None:
    """List, show, run and report published studies."""


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List all studies: the built-in ones and your own.

    \b
        xfbench study list
    """
    from xfbench.planning import experiment
    from xfbench.rendering import formats

    studies = [experiment.load(name) for name in experiment.list_names()]
    if as_json:
        print(json.dumps({"studies": [_describe_study(listed_study) for listed_study in studies]}))
        return
    rows = [
        [
            listed_study.name,
            ", ".join(listed_study.sizes),
            ", ".join(listed_study.sources),
            listed_study.question,
        ]
        for listed_study in studies
    ]
    headers = ["study", "sizes", "sources", "question"]
    print(formats.render_listing(headers, rows, terminal_width()))


@app.command()
def show(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show a study: its question and method, the cells of each size, and the published values.

    \b
        xfbench study show thread-sweep
    """
    from xfbench.planning import experiment
    from xfbench.studies import answer

    chosen_study = experiment.load(name)
    experiment.check_names(chosen_study)
    answer.check_analyses(chosen_study)
    if as_json:
        print(
            json.dumps(
                {
                    **_describe_study(chosen_study),
                    "experiment": chosen_study.model_dump(mode="json"),
                }
            )
        )
        return
    for line in _describe_study_lines(chosen_study):
        _print_wrapped(line)


def _describe_study_lines(chosen_study: Experiment) -> Iterator[str]:
    """Yield the question and the method, the cells of each size, and the published values."""
    from xfbench.rendering import external_figures
    from xfbench.studies import answer, drawing

    yield from (chosen_study.title, chosen_study.question)
    yield from filter(None, [chosen_study.method, *chosen_study.limits])
    for size in chosen_study.sizes:
        for matrix in chosen_study.matrices_of_size(size):
            settings = matrix.model_dump(exclude_defaults=True, exclude={"size"}, mode="json")
            texts = [f"{key} {_format_setting_value(value)}" for key, value in settings.items()]
            yield f"{size}: {'; '.join(texts)}"
    for analysis in chosen_study.analysis:
        for claim in analysis.claim:
            yield f"{claim.source}: {claim.text}"
    for citation, figure in answer.published_figures(chosen_study):
        printed = f"{external_figures.format_figure(figure)} ({drawing.figure_subject(figure)})"
        yield f"{citation.key}: {figure.quantity}: {printed}"


_FrameworkOption = Annotated[
    str | None,
    framework_option("Frameworks to run (default: all that the study names)."),
]
_WorkloadOption = Annotated[
    str | None,
    workload_option("Networks to run (default: all that the study names)."),
]
_LaunchesOption = Annotated[
    str | None,
    typer.Option(help="Launches per cell (default: as in the study file).", show_default=False),
]
_MediumOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=DIR",
        help="Name and folder of an additional storage medium for the study's data (repeatable).",
    ),
]


@app.command(cls=GroupedCommand)
@with_settings(
    (
        replace(settings.BY_NAME["launcher"], default_words="the study file's, else the site's"),
        *("site", "partition", "account", "job_time"),
        replace(
            settings.BY_NAME["memory_limit"],
            help="Limit for the private memory of a rank in batch-size searches",
            default_words="the study file's limit, else the available memory",
        ),
        *("python", "strict", "time_limit", "resume"),
        replace(
            settings.BY_NAME["verify"],
            help="Do not verify first; unverified frameworks, kernels and ranks are not compared",
        ),
        *("results", "dry_run", "json"),
    )
)
def run(
    name: NameArgument,
    size: SizeOption = None,
    framework: _FrameworkOption = None,
    workload: _WorkloadOption = None,
    launches: _LaunchesOption = None,
    medium: _MediumOption = None,
    other_sources: WithOption = None,
    **options: Any,
) -> None:
    """Run a study and print its answer.

    If this machine cannot run a cell, the cell is left out and the reason is printed. With
    --dry-run, nothing is launched: the cells and their estimated time are printed. Data sets that
    the study needs are created even with --dry-run.

    \b
        xfbench study run thread-sweep
        xfbench study run kernels --size laptop --dry-run
        xfbench study run kernels --size laptop --resume
        xfbench study run mine.toml --framework torch --workload lenet
    """
    from xfbench.base import paths
    from xfbench.execution import job_queue
    from xfbench.planning import experiment, sense
    from xfbench.store.results_folder import Store
    from xfbench.studies import answer, batch_search, running

    values = parse_options(options)
    as_json, resume = values.get("json", False), values.get("resume", False)
    chosen_study = experiment.load(name)
    experiment.check_names(chosen_study)
    answer.check_analyses(chosen_study)
    choices = _build_choices(values, framework, workload, launches, medium)
    chosen_size = _parse_study_size(size) or chosen_study.sizes[0]
    prepared = running.plan_study_and_write_data(chosen_study, chosen_size, choices)
    if cells := prepared.cells:
        slurm_values = {name: values.get(name) for name in ("partition", "account", "job_time")}
        sense.refuse_options_without_effect(slurm_values, cells)
    store = Store(paths.results(values.get("results")))
    earlier_records = (
        list(store.records()) if resume and prepared.searches and store.folder.is_dir() else []
    )
    lines = batch_search.add_earlier_or_available_memory_limit(prepared.searches, earlier_records)
    slurm_obstacle = job_queue.find_slurm_obstacle(prepared.cells)
    if values.get("dry_run"):
        _print_plan_and_time_estimate(prepared, lines, store, slurm_obstacle, as_json)
        return
    records = _launch(prepared, lines, store, earlier_records)
    sources = [store.folder, *(other_sources or ())]
    study_answer = _build_answer(chosen_study, name, chosen_size, store.folder, sources)
    _print_answer(study_answer, as_json)
    running.require_submission(chosen_study, slurm_obstacle, records)
    if any(not running.is_ok_or_expected_failure(chosen_study, record) for record in records):
        raise typer.Exit(1)


@app.command()
def report(
    name: NameArgument,
    size: SizeOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write: FILE.html, .md, .tex (tables for a paper) or .csv (all values; "
            "default: Markdown on the terminal).",
        ),
    ] = None,
    figures: FiguresOption = None,
    figure_format: FigureFormatOption = None,
    other_sources: WithOption = None,
    against: _AgainstOption = None,
    where: RecordFilterOption = None,
    framework: FrameworkFilterOption = None,
    workload: WorkloadFilterOption = None,
    results: ResultsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report a study: its answer, plots, limits, and tables of published and measured values.

    \b
        xfbench study report thread-sweep
        xfbench study report kernels --output kernels.html
        xfbench study report kernels --output kernels.tex
        xfbench study report architectures --with theirs.tar.gz --output architectures.md
        xfbench study report architectures --with theirs.tar.gz --against P100
        xfbench study report kernels --figures figures --figure-format pdf
    """
    from xfbench.base import paths
    from xfbench.planning import experiment

    chosen_study = experiment.load(name)
    if output is not None:
        check_output_file(output, (".html", ".md", ".tex", ".csv"))
    figure_formats = prepare_figures(figures, figure_format)
    results_folder = paths.results(results)
    sources = [results_folder] if results_folder.is_dir() or not other_sources else []
    sources += other_sources or ()
    conditions = parse_record_filters(where, framework, workload)
    if [source.is_dir() for source in sources] == [True]:
        check_listed_names_in_folder(sources[0], conditions)
    study_answer = _build_answer(
        chosen_study,
        name,
        _parse_study_size(size),
        results_folder,
        sources,
        conditions,
        against or "",
    )
    if output is None:
        _print_answer(study_answer, as_json)
    else:
        _write_answer(study_answer, output, as_json)
    if figures:
        _write_figures(study_answer, figures, figure_formats)


def _write_figures(study_answer: Answer, folder: Path, figure_formats: Sequence[str]) -> None:
    from xfbench.base.wording import pluralize
    from xfbench.rendering import plots
    from xfbench.studies import render

    study = study_answer.study
    drawn = [
        (
            f"{study.name} {figure.title}",
            f"{study.title}: {figure.title}",
            replace(figure, note=render.describe_figure(study_answer, figure)),
        )
        for figure in render.list_figures(study_answer)
    ]
    files = plots.write_figures(drawn, folder, figure_formats)
    say(f"{folder}: {pluralize(len(files), 'file')}{', and captions' if files else ''}")


def _write_answer(study_answer: Answer, output: Path, as_json: bool) -> None:
    """Write the answer as a page or as tables. The plots of Markdown are in files beside it."""
    from xfbench.base import atomic_files, errors
    from xfbench.studies import page, paper_tables, render

    # The file may be read on another machine, where the folder does not exist.
    study_answer = replace(study_answer, results=None)
    drawings = render.render_svgs(study_answer) if output.suffix == ".md" else []
    drawing_names = [f"{output.stem}-{number}.svg" for number in range(1, len(drawings) + 1)]
    renderers: dict[str, Callable[[Answer], str]] = {
        ".html": page.render_html,
        ".md": partial(render.render_markdown, pictures=drawing_names),
        ".tex": paper_tables.render_latex,
        ".csv": paper_tables.render_csv,
    }
    text = renderers[output.suffix](study_answer)
    try:
        for drawing_name, drawing in zip(drawing_names, drawings, strict=True):
            atomic_files.write(output.absolute().with_name(drawing_name), drawing.encode())
        atomic_files.write(output.absolute(), text.encode())
    except OSError as error:
        raise errors.UsageError(f"--output {output}: {error.strerror}") from error
    title = study_answer.study.title
    print(json.dumps({"output": str(output)}) if as_json else f"{output}: {title}")


def _launch(
    prepared: StudyPlan,
    batch_searches: Sequence[CellSearch],
    store: Store,
    earlier_records: Sequence[Record],
) -> list[Record]:
    """Launch what remains, and return the new records except those that were out of memory."""
    from xfbench import progress
    from xfbench.execution.launch import LaunchContext
    from xfbench.host import memory
    from xfbench.session import Session
    from xfbench.studies import batch_search, running

    _say_what_is_left_out(prepared)
    running.record_skipped_cells(prepared, store)
    if text := _count_unproven(prepared, batch_searches, store).describe():
        say(text)
    session = Session(LaunchContext(store), progress.choose_listener())
    records = session.run(prepared.plan) if prepared.plan.requests else []
    search_records = batch_search.run_batch_searches_and_measure(
        batch_searches, prepared.plan, session.run, earlier_records, say
    )
    return records + [record for record in search_records if not memory.is_out_of_memory(record)]


def _say_what_is_left_out(prepared: StudyPlan) -> None:
    from xfbench.studies import media

    for data in prepared.missing_data:
        say(f"left out: {media.missing_data_message(data)}")
    for cell, reason in prepared.skipped_cells:
        say(f"left out: {cell.label()}: {reason}")


def _build_choices(
    values: Mapping[str, Any],
    framework: str | None,
    workload: str | None,
    launches: str | None,
    medium: list[str] | None,
) -> Choices:
    from xfbench.base import errors
    from xfbench.model.plan import DEFAULT_TIME_LIMIT, Submission
    from xfbench.studies import running

    counts = parse_list(launches, parse_positive_int, "--launches")
    if counts and len(counts) > 1:
        raise errors.UsageError(f"--launches {launches}: expected one number")
    return running.Choices(
        frameworks=parse_list(framework, str, "--framework") or (),
        workloads=parse_list(workload, str, "--workload") or (),
        launches=counts[0] if counts else None,
        launcher=values.get("launcher"),
        site=values.get("site"),
        pythons=values.get("python", {}),
        media=_parse_media(medium),
        verify=values.get("verify", True),
        strict=values.get("strict", False),
        time_limit=values.get("time_limit", DEFAULT_TIME_LIMIT),
        memory_limit=values.get("memory_limit"),
        resume=values.get("resume", False),
        submission=Submission.from_settings(values),
    )


def _print_answer(study_answer: Answer, as_json: bool) -> None:
    from xfbench.studies import render

    print(
        json.dumps(study_answer.document()) if as_json else render.render_markdown(study_answer),
        end="",
    )
    if as_json:
        print()


def _print_plan_and_time_estimate(
    prepared: StudyPlan,
    batch_searches: Sequence[CellSearch],
    store: Store,
    slurm_obstacle: str | None,
    as_json: bool,
) -> None:
    """Print the planned cells, the launches with their estimated time, and the skipped cells.

    - `prepared`: the plan, with the skipped cells and missing data.
    - `batch_searches`: searches for a batch size. Each is printed with the cell that it starts
      from, because its other cells are not known in advance.
    - `store`: earlier records, for the estimate.
    - `slurm_obstacle`: why Slurm jobs of the study cannot be submitted, else None.
    """
    from xfbench.model import capabilities
    from xfbench.planning import durations
    from xfbench.session import find_done
    from xfbench.studies import media

    remaining_requests = prepared.plan.without_recorded(find_done(prepared.plan, store)).requests
    estimate = durations.estimate_duration(
        remaining_requests, store.records() if store.folder.is_dir() else ()
    )
    launches: dict[Cell, int] = {}
    for request in remaining_requests:
        launches[request.cell()] = launches.get(request.cell(), 0) + 1
    launch_rows = [
        (cell, count, capabilities.refusal_reason(cell.request(1)))
        for cell, count in launches.items()
    ]
    skipped_rows = [(cell, 0, reason) for cell, reason in prepared.skipped_cells]
    unproven = _count_unproven(prepared, batch_searches, store)
    if as_json:
        document = _describe_cells_and_searches((*launch_rows, *skipped_rows), batch_searches)
        document |= {"launches": len(remaining_requests), "estimate": vars(estimate)}
        document |= {"absent": prepared.missing_data, "slurm_obstacle": slurm_obstacle}
        print(json.dumps({**document, "unproven": vars(unproven)}))
        return
    if slurm_obstacle:
        _print_wrapped(slurm_obstacle)
    if launch_rows or not batch_searches:
        counts = f"{len(launch_rows)} cells, at most {len(remaining_requests)} launches"
        _print_wrapped(f"{counts}; time: {estimate.describe()}")
    if text := unproven.describe():
        _print_wrapped(text)
    _print_searches(batch_searches)
    for name in prepared.missing_data:
        _print_wrapped(f"left out: {media.missing_data_message(name)}")
    rows = (*launch_rows, *skipped_rows)
    labels = _label_cells([cell for cell, _, _ in rows])
    for label, (_, count, reason) in zip(labels, rows, strict=True):
        launch_count = f"{count} launch{'es' if count > 1 else ''}" if count else "left out"
        _print_wrapped(f"{label} · {launch_count}{f': {reason}' if reason else ''}")


def _describe_cells_and_searches(
    rows: Sequence[tuple[Cell, int, str | None]], batch_searches: Sequence[CellSearch]
) -> dict[str, Any]:
    """Return the cells, each with launches and reason, and the searches for a JSON document."""
    from xfbench.model import capabilities

    cells = [
        {"cell": cell.model_dump(mode="json"), "launches": count, "reason": reason}
        for cell, count, reason in rows
    ]
    searches = [
        {
            "cell": line.cell.model_dump(mode="json"),
            "batch_size": line.rules.model_dump(mode="json"),
            "launches_at_most": line.max_launches(),
            "reason": capabilities.refusal_reason(line.cell.request(1)),
        }
        for line in batch_searches
    ]
    return {"cells": cells, "found_out": searches}


def _count_unproven(
    prepared: StudyPlan, batch_searches: Sequence[CellSearch], store: Store
) -> Unproven:
    """Count what is verified before the remaining launches."""
    from xfbench import session

    plan = prepared.plan
    requests = [
        *session.list_requests_to_verify(plan, session.find_done(plan, store), store),
        *(line.cell.request(1) for line in batch_searches),
    ]
    return session.count_unproven(requests if plan.verify else (), plan.pythons)


def _label_cells(cells: Sequence[Cell]) -> list[str]:
    """Return a label for each cell. Cells with equal labels say in what else they differ."""
    from xfbench.analysis.grouping import HIDDEN_FIELDS, describe_hidden_differences
    from xfbench.progress import describe_differences

    labels = [f"{cell.label()} · batch {cell.global_batch_size}" for cell in cells]
    lookalikes: dict[str, list[int]] = {}
    for number, label in enumerate(labels):
        lookalikes.setdefault(label, []).append(number)
    for label, numbers in lookalikes.items():
        requests = [cells[number].request(1) for number in numbers]
        differences = zip(
            describe_hidden_differences(requests),
            describe_differences(requests, HIDDEN_FIELDS),
            strict=True,
        )
        for number, texts in zip(numbers, differences, strict=True):
            labels[number] = " · ".join(filter(None, (label, *texts)))
    return labels


def _print_wrapped(line: str) -> None:
    from xfbench.rendering import formats

    print(formats.wrap_line(line, terminal_width()))


def _print_searches(batch_searches: Sequence[CellSearch]) -> None:
    from xfbench.model import capabilities

    if batch_searches:
        _print_wrapped(
            "batch sizes of these cells are searched, so their launches are unknown in advance:"
        )
    for line in batch_searches:
        max_launches, reason = (
            line.max_launches(),
            capabilities.refusal_reason(line.cell.request(1)),
        )
        limit = line.cell.memory_limit
        parts = [line.cell.label(), f"batch {line.rules.describe()}"]
        parts += [f"memory {limit / 1e6:.0f} MB per rank"] if limit else []
        parts += [f"at most {max_launches} launches"] if max_launches else []
        _print_wrapped(" · ".join(parts) + (f": {reason}" if reason else ""))


def _build_answer(
    chosen_study: Experiment,
    study_argument: str,
    size: Size | None,
    results_folder: Path,
    sources: Sequence[Path],
    conditions: Sequence[Condition] = (),
    against: str = "",
) -> Answer:
    """Return the study's answer from the records in `sources` (results folders and archives).

    Only records that meet all `conditions` are used.

    - `study_argument`: the name or path that the user typed.
    - `size`: size of the study. None: the size for which the most records are ok.
    - `results_folder`: the folder that commands in the answer and in errors name.
    - `against`: a part of the name of the machine that is the baseline; "": as in the study's file.

    Raises UsageError if `against` is not about one machine, or if the size is None and no record of
    the study is ok. Raises NoMatchError if no record meets the conditions.
    """
    from xfbench.base import errors, paths
    from xfbench.studies import answer, cells, gathering
    from xfbench.studies.unmatched import explain_unmatched_records

    named_folder = None if results_folder == paths.results(None) else results_folder
    gathered = gathering.load_records_and_certificates(sources, say, conditions)
    chosen_size = size or cells.most_measured_size(chosen_study, gathered.records)
    unmatched_sentences = tuple(
        sentence
        for source, records in gathered.by_source.items()
        if source != results_folder
        and (sentence := explain_unmatched_records(chosen_study, chosen_size, source.name, records))
    )
    for sentence in unmatched_sentences:
        say(sentence)
    if chosen_size is None:
        words = ["xfbench", "study", "run", study_argument]
        words += ["--results", str(named_folder)] if named_folder else []
        raise errors.UsageError(
            f"{sources[0]} has no records of {chosen_study.name}: measure with "
            f"`{shlex.join(words)}`"
        )
    study_answer = answer.answer_study(
        chosen_study, chosen_size, gathered.records, gathered.certificates, against
    )
    return replace(
        study_answer,
        study_argument=study_argument,
        results=named_folder,
        conditions=tuple(map(str, conditions)),
        unmatched=unmatched_sentences,
    )


def _parse_study_size(text: str | None) -> Size | None:
    from typing import get_args

    from xfbench.base import errors
    from xfbench.planning.study_form import SIZES, Size

    if text is not None and text not in SIZES:
        raise errors.unknown_name_error("size", text, SIZES)
    return next((size for size in get_args(Size) if size == text), None)


def _parse_media(pairs: Sequence[str] | None) -> dict[str, Path]:
    from xfbench.base.errors import UsageError
    from xfbench.base.paths import expand_user

    folder_by_name = {}
    for pair in pairs or ():
        name, equals, folder = pair.partition("=")
        if not name or not equals or not folder:
            raise UsageError(f"--medium {pair}: expected NAME=DIR, such as nvme=/scratch")
        folder_by_name[name] = expand_user(folder)
    return folder_by_name


def _describe_study(described_study: Experiment) -> dict[str, object]:
    return {
        "name": described_study.name,
        "title": described_study.title,
        "question": described_study.question,
        "citation": list(described_study.sources),
        "sizes": described_study.sizes,
    }


def _format_setting_value(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key} {setting}" for key, setting in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
