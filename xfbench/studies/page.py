"""A study's answer as one HTML page, and as a section of the report: the same pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from xfbench import experiment
from xfbench.analysis.leaderboard import Certificates
from xfbench.base import errors
from xfbench.records.record import Record
from xfbench.report import page
from xfbench.report.figures import Figure
from xfbench.report.studies import MAX_ROWS, Claim, Part, Study, Table
from xfbench.studies import answer as answers
from xfbench.studies import cells, telling
from xfbench.studies.answer import Answer
from xfbench.studies.drawing import drawn
from xfbench.studies.finding import Finding
from xfbench.studies.wording import plural

_MOST_MACHINES = 3  # that are named


def html(answer: Answer) -> str:
    """The page."""
    return page.render_template("study.html", study=shown(answer))


def sections(
    records: Sequence[Record], certificates: Certificates, complain: Callable[[str], None]
) -> list[Study]:
    """The sections of all studies, one's own too, of which the records say something.

    Each is of the size of which they have most. A file that says nothing sensible is complained
    about, and left out.
    """
    found = []
    for name in experiment.names():
        try:
            study = experiment.load(name)
            size = cells.fullest(study, records)
            told = size and answers.answer(study, size, records, certificates)
        except errors.UsageError as error:
            complain(f"study {name}: {error}")
            continue
        if told and any(finding.says_something for finding in told.findings):
            found.append(shown(told, MAX_ROWS))
    return found


def shown(answer: Answer, most: int | None = None) -> Study:
    """What there is to see of it, `most` rows of each table; all of them where it is None."""
    study = answer.study
    when = " to ".join(dict.fromkeys(answer.span))
    launches = f"{plural(answer.launches, 'launch')} · size {answer.size}"
    printed = "As printed in the source; never ranked"
    others = len(answer.machines) - _MOST_MACHINES
    machines = [*answer.machines[:_MOST_MACHINES], *([f"and {others} more"] if others > 0 else [])]
    return Study(
        name=study.name,
        anchor=f"study-{study.name}",
        title=study.title,
        question=study.question,
        method=study.method,
        facts=(*machines, launches, when),
        parts=tuple(_part(one, answer, most) for one in answer.findings),
        sentences=answer.sentences,
        published=_table(printed, telling.BESIDE, telling.beside(answer), most),
        missing=_table("Cells without a result", ["what", "why"], answer.missing, most),
        limits=tuple(answer.limits[:most]),
        command=answer.command,
    )


def _part(finding: Finding, answer: Answer, most: int | None) -> Part:
    headers, rows = telling.headers(finding), telling.rows(finding)
    return Part(
        title=finding.title,
        sentence=finding.sentence,
        claims=tuple(
            Claim(
                one.source,
                one.text,
                None if one.verdict == "cannot be told" else one.verdict,
                one.why,
            )
            for one in finding.judged
        ),
        figures=tuple(_short(one, most) for one in drawn(finding, answer.published)),
        table=_table(f"Measured: {finding.title}", headers, rows, most),
        notes=finding.notes[:most],
    )


def _short(figure: Figure, most: int | None) -> Figure:
    """With so many rows of data at most, and of each line so many points, evenly from all of it."""
    longest = max((len(line.points) for line in figure.lines), default=0)
    if most is None or max(longest, len(figure.data)) <= most:
        return figure
    lines = []
    for line in figure.lines:
        step = max(1.0, (len(line.points) - 1) / (most - 1))
        chosen = range(min(len(line.points), most))
        lines.append(replace(line, points=tuple(line.points[round(n * step)] for n in chosen)))
    places = {point.x for line in lines for point in line.points} | {m.x for m in figure.marks}
    note = f"Drawn are {most} of {longest} points of a line." if longest > most else figure.note
    at = tuple(sorted(places)) if figure.at else ()
    return replace(figure, data=figure.data[:most], lines=tuple(lines), at=at, note=note)


def _table(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], most: int | None
) -> Table | None:
    if not rows:
        return None
    first = tuple(map(tuple, rows[:most]))
    return Table(title, tuple(headers), first, len(rows) - len(first))
