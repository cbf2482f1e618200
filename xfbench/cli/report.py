"""`xfbench report`: write a results folder as one HTML page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xfbench.base.terminal_text import print_legibly as print
from xfbench.base.terminal_text import say
from xfbench.cli.options import (
    FigureFormatOption,
    FrameworkFilterOption,
    RecordFilterOption,
    ResultsOption,
    WorkloadFilterOption,
    check_listed_names,
    check_output_file,
    fail_without_match,
    parse_record_filters,
    prepare_figures,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xfbench.model.certificate import Certificate
    from xfbench.model.origins import Origins
    from xfbench.model.record import Record
    from xfbench.rendering.report.content import Board
    from xfbench.rendering.report.figures import Figure

_DEFAULT_OUTPUT = Path("report.html")
_OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help=f"HTML file to write (default: {_DEFAULT_OUTPUT}; with --figures, none).",
    ),
]
_FiguresOption = Annotated[
    Path | None,
    typer.Option(
        "--figures",
        metavar="DIR",
        help="Write the figures to this folder, for a paper. Without --output, no HTML file is "
        "written. Needs matplotlib: python -m pip install matplotlib.",
    ),
]


def report(
    output: _OutputOption = None,
    where: RecordFilterOption = None,
    framework: FrameworkFilterOption = None,
    workload: WorkloadFilterOption = None,
    figures: _FiguresOption = None,
    figure_format: FigureFormatOption = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    results: ResultsOption = None,
) -> None:
    """Write a self-contained HTML file with a summary, leaderboards, plots and studies.

    \b
        xfbench report
        xfbench report --results results --output lenet.html --where workload=lenet
        xfbench report --figures figures --figure-format pdf
    """
    from xfbench.base import errors, paths
    from xfbench.base.wording import pluralize
    from xfbench.model import certificate, origins
    from xfbench.rendering import plots
    from xfbench.rendering.report import content
    from xfbench.store import index
    from xfbench.store import published as literature
    from xfbench.store.results_folder import open_existing_store

    if output is None and not figures:
        output = _DEFAULT_OUTPUT
    if output is not None:
        check_output_file(output, (".html", ".htm"))
    elif open_it:
        raise errors.UsageError("--open with --figures needs --output FILE")
    figure_formats = prepare_figures(figures, figure_format)
    folder = paths.results(results)
    conditions = parse_record_filters(where, framework, workload)
    with index.open_index(open_existing_store(folder), say) as record_index:
        check_listed_names(record_index, conditions)
        records = [record for _, record in record_index.select(conditions)]
        if not records:
            fail_without_match(record_index, conditions)
    for line in record_index.damaged:
        say(line)
    certificates = certificate.read_certificates(folder)
    if output is not None:
        _write_page(output, records, certificates, origins.read(folder))
    if figures:
        boards = content.build_report(records, certificates, literature.records()).boards
        files = plots.write_figures(_name_figures(boards), figures, figure_formats)
        print(f"{figures}: {pluralize(len(files), 'file')}{', and captions' if files else ''}")
    if open_it and output is not None:
        webbrowser.open(output.absolute().as_uri())


def _write_page(
    output: Path,
    records: Sequence[Record],
    certificates: Mapping[str, Certificate | str],
    known_origins: Origins,
) -> None:
    from xfbench.base import atomic_files, errors
    from xfbench.base.wording import pluralize
    from xfbench.rendering import external_figures
    from xfbench.rendering.report import page
    from xfbench.store import published as literature
    from xfbench.studies import page as studies

    study_sections = studies.build_sections(records, certificates, say)
    text = page.render_report(
        records, certificates, literature.records(), study_sections, known_origins
    )
    try:
        atomic_files.write(output.absolute(), text.encode())
    except OSError as error:
        raise errors.UsageError(f"--output {output}: {error.strerror}") from error
    launches = sum(record.source == "measured" for record in records)
    figures = len(external_figures.distinct_external_figures(records))
    parts = [f"{launches} launches", *([pluralize(figures, "external figure")] * bool(figures))]
    print(f"{output}: {', '.join(parts)}, {len(text) / 1e6:.1f} MB")


def _name_figures(boards: Iterable[Board]) -> list[tuple[str, str, Figure]]:
    """Return the name, the heading and the figure of each figure of the boards.

    The first one of each board has the throughput of its rows.
    """
    from xfbench.rendering.report.figures import build_throughput_figure

    return [
        (
            f"{figure.title} {board.table.workload} {board.conditions}",
            f"{figure.title}: {board.table.title}",
            figure,
        )
        for board in boards
        for figure in (build_throughput_figure(board.table), *board.figures)
        if figure
    ]
