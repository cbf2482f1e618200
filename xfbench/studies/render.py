"""The answer of a study as text: table rows, a Markdown document, and SVG plots."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from xfbench.base.terminal_text import MAX_LENGTH, make_legible
from xfbench.rendering import formats
from xfbench.rendering.external_figures import format_figure
from xfbench.rendering.fitting import split_columns
from xfbench.rendering.report import svg
from xfbench.rendering.report.figures import Figure
from xfbench.studies.answer import Answer
from xfbench.studies.drawing import draw_figures, figure_subject
from xfbench.studies.finding import Finding, JudgedClaim
from xfbench.studies.wording import format_bounds_without_unit, format_number_without_unit

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
            launches = f"{interval.launches} ({interval.label})"
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
    """Return the answer as a Markdown document.

    `pictures` has the file names of the plots, in the order of `render_svgs`. If `pictures` is
    empty, the document has no plots.
    """
    study = answer.study
    machines = "; ".join(answer.machines) or "no machine yet"
    dates = " to ".join(dict.fromkeys(answer.span)).strip() or "no date"
    remaining_names = list(pictures)
    parts = [f"# {study.title}", f"**{study.question}**"]
    parts += [study.method] if study.method else []
    parts.append(
        f"{answer.launches} launches, {dates}, on {_shorten_to_legible_line(machines)}; "
        f"size {answer.size}."
    )
    for finding in answer.findings:
        parts += [f"## {finding.title}", _shorten_to_legible_line(finding.sentence)]
        parts += map(_format_judged_claim, finding.judged)
        for figure in draw_figures(finding, answer.published):
            if remaining_names:
                parts.append(f"![{figure.title}]({remaining_names.pop(0)})")
        parts += _markdown_tables(finding)
        parts += [f"- {_shorten_to_legible_line(note)}" for note in finding.notes]
    if answer.published or answer.sentences:
        parts.append("## Published")
        parts += map(_format_judged_claim, answer.sentences)
        parts += (
            [markdown_table(PUBLISHED_HEADERS, published_rows(answer))] if answer.published else []
        )
    if answer.missing:
        parts += [
            "## Cells without a result",
            markdown_table(["what", "why"], list(map(list, answer.missing))),
        ]
    if answer.limits:
        parts += [
            "## Limits",
            *(f"- {_shorten_to_legible_line(limit)}" for limit in answer.limits),
        ]
    parts += ["## To repeat it", f"    {answer.command}"]
    return formats.join_markdown_blocks(parts) + "\n"


def _markdown_tables(finding: Finding) -> list[str]:
    """Return the table that shows a finding; no table if it has no rows.

    A table with a row for each framework is split into several if it is too wide.
    """
    headers, rows = table_headers(finding), table_rows(finding)
    if not rows:
        return []
    if not finding.table or finding.over != "framework":
        return [markdown_table(headers, rows)]
    columns = list(zip(headers, *rows, strict=True))
    layout = formats.FORMATS["markdown"]
    return [
        markdown_table([headers[n] for n in group], [[row[n] for n in group] for row in rows])
        for group in split_columns(columns, formats.MARKDOWN_WIDTH, layout.column_gap)
    ]


def _format_judged_claim(judged: JudgedClaim) -> str:
    """Return a claim with its verdict, as a list item."""
    verdict = f"Here it **{judged.verdict}**"
    if judged.verdict == "cannot be told":
        verdict = "Whether it holds here **cannot be told**"
    text = judged.text.removesuffix(".")
    return f"- {judged.source}: {text}. {verdict}: {_shorten_to_legible_line(judged.why)}."


def markdown_table(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose rows are `lines`. The character "|" is escaped."""
    clean = [[make_legible(field).replace("|", "\\|") for field in line] for line in lines]
    return tabulate(clean, list(headers), "github", disable_numparse=True)


def list_figures(answer: Answer) -> list[Figure]:
    """Return the plots of all findings, in the order of the Markdown document."""
    return [
        figure for finding in answer.findings for figure in draw_figures(finding, answer.published)
    ]


def render_svgs(answer: Answer) -> list[str]:
    """Return the plots as standalone SVG documents, in the order of the Markdown document."""
    svgs: list[str] = []
    for figure in list_figures(answer):
        # A str, because Markup would escape the inserted text.
        text = str(svg.draw_figure(figure, f"f{len(svgs)}"))
        text = text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        svgs.append(text.replace("<title", f"{_STYLE}<title", 1))
    return svgs


def _shorten_to_legible_line(text: str) -> str:
    """Return `text` as one legible line of Markdown, of at most about MAX_LENGTH characters."""
    return formats.FORMATS["markdown"].escape_field(make_legible(text, MAX_LENGTH))
