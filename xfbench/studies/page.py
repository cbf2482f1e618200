"""The answer of a study as an HTML page, and as a section of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from xfbench.analysis.leaderboard import Certificates
from xfbench.base import errors
from xfbench.base.wording import pluralize
from xfbench.model.record import Record
from xfbench.planning import experiment
from xfbench.rendering.report import page
from xfbench.rendering.report.figures import Figure
from xfbench.rendering.report.studies import MAX_ROWS, Claim, Part, Study, Table
from xfbench.studies import answer as answers
from xfbench.studies import cells, render
from xfbench.studies.answer import Answer
from xfbench.studies.drawing import draw_figures
from xfbench.studies.finding import Finding, JudgedClaim

_MAX_MACHINES = 3  # machines named in a section


def render_html(answer: Answer) -> str:
    """Return the answer as an HTML page."""
    return page.render_template("study.html", study=build_section(answer))


def build_sections(
    records: Sequence[Record], certificates: Certificates, complain: Callable[[str], None]
) -> list[Study]:
    """Return a report section for each study to which `records` contribute a result.

    Both built-in studies and the user's studies are included. A section shows a study at the size
    that has the most ok records. If a study cannot be loaded or answered, `complain` gets the error
    message, and the study is left out.
    """
    sections = []
    for name in experiment.list_names():
        try:
            study = experiment.load(name)
            size = cells.most_measured_size(study, records)
            study_answer = size and answers.answer_study(study, size, records, certificates)
        except errors.UsageError as error:
            complain(f"study {name}: {error}")
            continue
        if study_answer and any(finding.has_content for finding in study_answer.findings):
            sections.append(build_section(study_answer, MAX_ROWS))
    return sections


def build_section(answer: Answer, max_rows: int | None = None) -> Study:
    """Return the section of a study.

    `max_rows` is the maximum number of rows in each table. It is also the maximum number of notes
    per finding, and of limits. None: no maximum.
    """
    study = answer.study
    dates = " to ".join(dict.fromkeys(answer.span))
    launches = f"{pluralize(answer.launches, 'launch')} · size {answer.size}"
    caption = "As printed in the source; never ranked"
    unnamed_count = len(answer.machines) - _MAX_MACHINES
    machines = [
        *answer.machines[:_MAX_MACHINES],
        *([f"and {unnamed_count} more"] if unnamed_count > 0 else []),
    ]
    return Study(
        name=study.name,
        anchor=f"study-{study.name}",
        title=study.title,
        question=study.question,
        method=study.method,
        facts=(*machines, launches, dates),
        parts=tuple(_build_part(finding, answer, max_rows) for finding in answer.findings),
        sentences=tuple(map(_build_claim, answer.sentences)),
        published=_build_table(
            caption, render.PUBLISHED_HEADERS, render.published_rows(answer), max_rows
        ),
        missing=_build_table("Cells without a result", ["what", "why"], answer.missing, max_rows),
        limits=tuple(answer.limits[:max_rows]),
        command=answer.command,
    )


def _build_part(finding: Finding, answer: Answer, max_rows: int | None) -> Part:
    headers, rows = render.table_headers(finding), render.table_rows(finding)
    return Part(
        title=finding.title,
        sentence=finding.sentence,
        claims=tuple(map(_build_claim, finding.judged)),
        figures=tuple(
            _thin_lines_and_cut_data_rows(figure, max_rows)
            for figure in draw_figures(finding, answer.published)
        ),
        table=_build_table(f"Measured: {finding.title}", headers, rows, max_rows),
        notes=finding.notes[:max_rows],
    )


def _build_claim(judged: JudgedClaim) -> Claim:
    return Claim(
        judged.source,
        judged.text.removesuffix("."),
        None if judged.verdict == "cannot be told" else judged.verdict,
        judged.why,
    )


def _thin_lines_and_cut_data_rows(figure: Figure, max_rows: int | None) -> Figure:
    """Return the plot with at most `max_rows` points per line and `max_rows` rows in its table.

    The points that remain are spread evenly along each line. If `max_rows` is None, return the
    unchanged plot.
    """
    longest = max((len(line.points) for line in figure.lines), default=0)
    if max_rows is None or max(longest, len(figure.data)) <= max_rows:
        return figure
    lines = []
    for line in figure.lines:
        step = max(1.0, (len(line.points) - 1) / (max_rows - 1))
        indexes = range(min(len(line.points), max_rows))
        lines.append(replace(line, points=tuple(line.points[round(n * step)] for n in indexes)))
    places = {point.x for line in lines for point in line.points} | {m.x for m in figure.marks}
    note = (
        f"The figure shows {max_rows} of {longest} points per line."
        if longest > max_rows
        else figure.note
    )
    ticks = tuple(sorted(places)) if figure.at else ()
    return replace(figure, data=figure.data[:max_rows], lines=tuple(lines), at=ticks, note=note)


def _build_table(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], max_rows: int | None
) -> Table | None:
    if not rows:
        return None
    visible_rows = tuple(map(tuple, rows[:max_rows]))
    return Table(title, tuple(headers), visible_rows, len(rows) - len(visible_rows))
