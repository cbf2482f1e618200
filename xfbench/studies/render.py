"""The answer of a study as text: table rows, a Markdown document, and SVG plots."""

from __future__ import annotations

import re
import typing
from collections import Counter
from collections.abc import Sequence

from xfbench.base.wording import pluralize
from xfbench.rendering import formats
from xfbench.rendering.external_figures import format_figure
from xfbench.rendering.fitting import split_columns
from xfbench.rendering.report import svg
from xfbench.rendering.report.figures import Figure
from xfbench.studies.answer import Answer
from xfbench.studies.drawing import draw_figures, figure_subject
from xfbench.studies.finding import Finding, JudgedClaim, Verdict
from xfbench.studies.markdown_tables import (
    escape_line,
    render_table_or_list,
    render_value_table,
)
from xfbench.studies.wording import (
    format_bounds_without_unit,
    format_number_without_unit,
)

_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")
_MAX_ANSWER_SENTENCES = 2  # of the first finding, at the start of the document

# A standalone picture needs its own style, because no page around it has one.
_STYLE = (
    "<style>text{font:11px sans-serif}path{fill:none}.grid{stroke:#ddd}"
    ".mark{fill:#fff}.ideal{stroke-dasharray:2 3}.other,.limit{stroke:#333}"
    + "".join(
        f".s{number} path{{stroke:{colour}}}.s{number} .bar{{fill:{colour};fill-opacity:.4;"
        "stroke:none}"
        for number, colour in enumerate(svg.COLOURS)
    )
    + "".join(
        f".d{number} .line{{stroke-dasharray:{dashes}}}"
        for number, dashes in enumerate(("7 3", "2 2", "9 3 2 3", "7 3 2 3 2 3"), 1)
    )
    + "</style>"
)


def table_headers(finding: Finding) -> list[str]:
    """Return the headers of the table that shows a finding.

    The table is `finding.table`, or a table of `finding.values` if `finding.table` is empty.
    """
    if finding.table:
        return [*finding.table[0]]
    over = [finding.over] if finding.over else []
    return ["configuration", *over, finding.unit, "95 % interval", "launches", ""]


def table_rows(finding: Finding) -> list[list[str]]:
    """Return the rows of the table that shows a finding, without the headers.

    If `finding.table` is empty, return a row for each of `finding.values`. If a value has no
    interval, its row states the reason.
    """
    if finding.table:
        return [[*line] for line in finding.table[1:]]
    table = []
    for figure_value in finding.values:
        interval = figure_value.interval
        columns = ["–", "–", "–"]
        if interval:
            launches = f"{interval.launches} ({figure_value.label})"
            columns = [
                format_number_without_unit(interval.value, finding.unit),
                format_bounds_without_unit(interval, finding.unit),
                launches,
            ]
        over = [figure_value.at] if finding.over else []
        table.append([figure_value.name, *over, *columns, figure_value.reason or figure_value.note])
    return table


def published_rows(answer: Answer) -> list[list[str]]:
    """Return the rows of the table of published values, without the headers."""
    return [
        [
            ", relative to ".join(filter(None, (figure.quantity, figure.relative_to))),
            figure_subject(figure),
            format_figure(figure),
            f"{citation.key}, {citation.where}",
        ]
        for citation, figure in answer.published
    ]


PUBLISHED_HEADERS = ["published", "of", "figure", "source"]


def render_markdown(answer: Answer, pictures: Sequence[str] = ()) -> str:
    """Return the answer as a Markdown document, which starts with the answer.

    `pictures` has the file names of the plots, in the order of `render_svgs`. If `pictures` is
    empty, the document has no plots.
    """
    study = answer.study
    remaining_names = list(pictures)
    parts = [f"# {study.title}", *_answer_paragraphs(answer), f"**{study.question}**"]
    parts += [study.method] if study.method else []
    parts.append(escape_line(describe_launches(answer)))
    for finding in answer.findings:
        parts += [f"## {finding.title}", escape_line(finding.sentence)]
        parts += map(_format_judged_claim, finding.judged)
        for figure in draw_figures(finding, answer.published):
            if remaining_names:
                parts.append(f"![{figure.title}]({remaining_names.pop(0)})")
        parts += _markdown_tables(finding)
        parts += [f"- {escape_line(note)}" for note in finding.notes]
    if answer.published or answer.sentences:
        parts.append("## Published")
        parts += map(_format_judged_claim, answer.sentences)
        parts += [_published_block(answer)] if answer.published else []
    if answer.missing:
        parts += [
            "## Cells without a result",
            render_table_or_list(["what", "why"], answer.missing),
        ]
    if answer.limits:
        parts += [
            "## Limits",
            *(f"- {escape_line(limit)}" for limit in answer.limits),
        ]
    parts += ["## To repeat it", f"    {answer.command}"]
    return formats.join_markdown_blocks(parts) + "\n"


def _answer_paragraphs(answer: Answer) -> list[str]:
    """Return the answer in short: the result of the first finding, and verdicts on publications.

    The list is empty if the study has neither.
    """
    paragraphs = []
    for finding in answer.findings[:1]:
        start = " ".join(_SENTENCE_END.split(finding.sentence)[:_MAX_ANSWER_SENTENCES])
        # A sentence that starts with a figure does not say what is measured.
        subject = f"{finding.title}: " if start[:1].isdigit() else ""
        paragraphs.append(escape_line(subject + start))
    judged = answer.sentences or [claim for f in answer.findings for claim in f.judged]
    if judged:
        counts = Counter(claim.verdict for claim in judged)
        verdicts = [
            f"**{verdict}** ({counts[verdict]})"
            for verdict in typing.get_args(Verdict)
            if counts[verdict]
        ]
        total = pluralize(len(judged), "published finding")
        paragraphs.append(f"Verdict here on {total}: {', '.join(verdicts)}.")
    return paragraphs


def _published_block(answer: Answer) -> str:
    """Return the published values as a table, or as a list if the table would be too wide."""
    rows = published_rows(answer)
    table = formats.markdown_table(PUBLISHED_HEADERS, rows)
    if formats.fits_markdown(table):
        return table
    return formats.join_markdown_blocks(
        f"- {escape_line(quantity)}{f' ({escape_line(subject)})' if subject else ''}: "
        f"{escape_line(figure)}. Source: {escape_line(source)}."
        for quantity, subject, figure, source in rows
    )


def _markdown_tables(finding: Finding) -> list[str]:
    """Return the blocks of Markdown that show a finding's table; none if it has no rows.

    A table with a row for each framework is split into several if it is too wide.
    """
    headers, rows = table_headers(finding), table_rows(finding)
    if not rows:
        return []
    if not finding.table:
        return render_value_table(headers, rows, over=bool(finding.over))
    if finding.over != "framework":
        return [render_table_or_list(headers, rows)]
    columns = list(zip(headers, *rows, strict=True))
    layout = formats.FORMATS["markdown"]
    return [
        formats.markdown_table(
            [headers[n] for n in group], [[row[n] for n in group] for row in rows]
        )
        for group in split_columns(columns, formats.MARKDOWN_WIDTH, layout.column_gap)
    ]


def _format_judged_claim(judged: JudgedClaim) -> str:
    """Return a claim with its verdict, as a list item."""
    verdict = f"Here it **{judged.verdict}**"
    if judged.verdict == "cannot be told":
        verdict = "Whether it holds here **cannot be told**"
    text = judged.text.removesuffix(".")
    return f"- {judged.source}: {text}. {verdict}: {escape_line(judged.why)}."


def list_figures(answer: Answer) -> list[Figure]:
    """Return the plots of all findings, in the order of the Markdown document."""
    return [
        figure for finding in answer.findings for figure in draw_figures(finding, answer.published)
    ]


def describe_launches(answer: Answer) -> str:
    """Return how many launches the answer has, of which days, machines and size."""
    machines = "; ".join(answer.machines) or "no machine yet"
    dates = " to ".join(dict.fromkeys(answer.span)).strip() or "no date"
    count = pluralize(answer.launches, "launch")
    return f"{count}, {dates}, on {machines}; size {answer.size}."


def describe_figure(answer: Answer, figure: Figure) -> str:
    """Return what a caption says about a figure: launches, intervals and published values."""
    sentences = [describe_launches(answer)]
    lows = [bar.low for bar in figure.bars]
    lows += [point.low for line in figure.lines for point in line.points]
    if any(low is not None for low in lows):
        sentences.append("Whiskers and bands are 95 % intervals.")
    names = [*(bar.name for bar in figure.bars), *(mark.name for mark in figure.marks)]
    cited = {citation.key: citation.title for citation, _ in answer.published}
    sentences += [
        f"Values named published ({key}) are those of “{title}”."
        for key, title in cited.items()
        if any(name.startswith(f"published ({key}") for name in names)
    ]
    return " ".join([*sentences, *answer.disturbance])


def render_svgs(answer: Answer) -> list[str]:
    """Return the plots as standalone SVG documents, in the order of the Markdown document."""
    svgs: list[str] = []
    for figure in list_figures(answer):
        # A str, because Markup would escape the inserted text.
        text = str(svg.draw_figure(figure, f"f{len(svgs)}"))
        text = text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        svgs.append(text.replace("<title", f"{_STYLE}<title", 1))
    return svgs
