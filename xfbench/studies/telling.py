"""A study's answer as text: rows of its tables, a document in Markdown, figures beside it."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from xfbench.base.terminal_text import MAX_LENGTH, make_legible
from xfbench.layout.beside import format_figure
from xfbench.report import svg
from xfbench.studies.answer import Answer
from xfbench.studies.drawing import about, drawn
from xfbench.studies.finding import Finding
from xfbench.studies.wording import ends, number

# A picture that stands alone has no page to give it colours.
_STYLE = (
    "<style>text{font:11px sans-serif}path{fill:none;stroke:#456}.bar{fill:#69a;stroke:none}"
    ".grid{stroke:#ddd}.mark{fill:#fff}.range{stroke:#000}.ideal{stroke-dasharray:2 3}"
    ".s1 path{stroke:#a40}.s2 path{stroke:#075}.s3 path{stroke:#609}</style>"
)


def headers(finding: Finding) -> list[str]:
    """Of its table: that of its values, where it has no other."""
    if finding.table:
        return [*finding.table[0]]
    over = [finding.over] if finding.over else []
    return ["configuration", *over, finding.unit, "95 % interval", "launches", ""]


def rows(finding: Finding) -> list[list[str]]:
    """Its table; in that of its values, what has none says why."""
    if finding.table:
        return [[*line] for line in finding.table[1:]]
    found = []
    for one in finding.values:
        known = one.interval
        shown = ["–", "–", "–"]
        if known:
            launches = f"{known.launches} ({known.label})"
            shown = [number(known.value, finding.unit), ends(known, finding.unit), launches]
        over = [one.at] if finding.over else []
        found.append([one.name, *over, *shown, one.reason or one.note])
    return found


def beside(answer: Answer) -> list[list[str]]:
    """The table of what was published."""
    return [
        [
            ", relative to ".join(filter(None, (figure.quantity, figure.relative_to))),
            about(figure),
            format_figure(figure),
            f"{citation.key}, {citation.where}",
        ]
        for citation, figure in answer.published
    ]


BESIDE = ["published", "of", "figure", "source"]


def markdown(answer: Answer, pictures: Sequence[str] = ()) -> str:
    """The answer as a document; `pictures` are the names of the files of its figures, in order."""
    study = answer.study
    where = "; ".join(answer.machines) or "nowhere yet"
    when = " to ".join(dict.fromkeys(answer.span)).strip() or "never"
    names = list(pictures)
    parts = [f"# {study.title}", f"**{study.question}**"]
    parts += [study.method] if study.method else []
    parts.append(f"{answer.launches} launches, {when}, on {_line(where)}; size {answer.size}.")
    for finding in answer.findings:
        parts += [f"## {finding.title}", _line(finding.sentence)]
        parts += [
            f"- {one.source}: {one.text}. Here it **{one.verdict}**: {_line(one.why)}."
            if one.verdict != "cannot be told"
            else f"- {one.source}: {one.text}. Whether it holds here **cannot be told**: "
            f"{_line(one.why)}."
            for one in finding.judged
        ]
        for figure in drawn(finding, answer.published):
            if names:
                parts.append(f"![{figure.title}]({names.pop(0)})")
        lines = rows(finding)
        parts += [table(headers(finding), lines)] if lines else []
        parts += [f"- {_line(note)}" for note in finding.notes]
    if answer.published or answer.sentences:
        parts.append("## Published")
        parts += [f"- {key}: {sentence}" for key, sentence in answer.sentences]
        parts += [table(BESIDE, beside(answer))] if answer.published else []
    if answer.missing:
        parts += ["## Not done here", table(["what", "why"], list(map(list, answer.missing)))]
    if answer.limits:
        parts += ["## Limits", "\n".join(f"- {_line(one)}" for one in answer.limits)]
    parts += ["## To repeat it", f"    {answer.command}"]
    return _joined(parts)


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """In Markdown; nothing in a field ends it."""
    clean = [[make_legible(field).replace("|", "\\|") for field in line] for line in lines]
    return tabulate(clean, list(head), "github", disable_numparse=True)


def pictures(answer: Answer) -> list[str]:
    """Its figures as SVG files that stand alone, in the order of the document."""
    found: list[str] = []
    for finding in answer.findings:
        for figure in drawn(finding, answer.published):
            text = str(
                svg.draw_figure(figure, f"f{len(found)}")
            )  # markup would escape what is put in
            text = text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
            found.append(text.replace("<title", f"{_STYLE}<title", 1))
    return found


def _line(text: str) -> str:
    """What a record may have said: no more than text, in one line."""
    return make_legible(text, MAX_LENGTH)


def _joined(parts: Sequence[str]) -> str:
    """Blank lines between parts, none between the points of a list."""
    text = ""
    last = ""
    for part in parts:
        text += "\n" if part.startswith("- ") and last.startswith("- ") else "\n\n" if text else ""
        text += part
        last = part
    return f"{text}\n"
