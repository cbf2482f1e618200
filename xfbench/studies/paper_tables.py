"""The answer of a study for a paper: tables in LaTeX, and all values as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xfbench.rendering import formats
from xfbench.statistics import CLAIM_LAUNCHES, CONFIDENCE
from xfbench.studies import cells as of_cells
from xfbench.studies import render
from xfbench.studies.answer import Answer
from xfbench.studies.finding import Finding, JudgedClaim, Value
from xfbench.studies.wording import format_bounds_without_unit, format_number_without_unit

_LATEX = formats.FORMATS["latex"]


def render_latex(answer: Answer) -> str:
    """Return a table for each finding, one of the verdicts and one of the published values.

    The caption of a table says what was measured, on what, and what its brackets are. Lines that
    are comments have the limits, the cells without a result, and the command that repeats it.
    """
    parts = [_LATEX.render_heading(f"{answer.study.title}: {answer.study.question}")]
    for finding in answer.findings:
        parts += _render_finding(answer, finding)
    claims = answer.sentences or [claim for each in answer.findings for claim in each.judged]
    if claims:
        parts += _render_verdicts(answer, claims)
    if answer.published:
        caption = f"{answer.study.title}: published values, as printed in the sources."
        rows = render.published_rows(answer)
        parts += [*_render_table(answer, "published", caption, render.PUBLISHED_HEADERS, rows), ""]
    parts += [_LATEX.render_heading(f"Limit: {limit}") for limit in answer.limits]
    parts += [_LATEX.render_heading(f"No result: {cell}: {why}") for cell, why in answer.missing]
    return _LATEX.join([*parts, _LATEX.render_heading(f"To repeat it: {answer.command}")]) + "\n"


def _render_finding(answer: Answer, finding: Finding) -> list[str]:
    """Return the table of a finding and the notes below it; nothing if no value was measured."""
    if finding.table:
        headers, rows = render.table_headers(finding), render.table_rows(finding)
        rows = [[text.replace(" – ", "–") for text in row] for row in rows]
        brackets, notes = "", [*finding.notes]
    else:
        measured = [value for value in finding.values if value.interval]
        headers, rows = _build_value_rows(finding, measured)
        brackets, notes = _describe_brackets(measured), [*finding.notes]
        if common := _find_common_note(measured):
            notes.insert(0, f"All rows: {common}.")
    if not rows:
        return [_LATEX.render_heading(f"{finding.title}: {finding.sentence}")]
    unit = f", in {finding.unit}" if finding.unit not in ("", "%", "times") else ""
    caption = " ".join(
        filter(
            None,
            (
                f"{answer.study.title}: {finding.title}{unit}.",
                render.describe_launches(answer),
                brackets,
            ),
        )
    )
    is_divided = bool(finding.table) and finding.over == "framework"
    table = _render_table(answer, finding.title, caption, headers, rows, is_divided=is_divided)
    labels = {value.label for value in finding.values if value.interval}
    if labels & {"smoke", "indicative"}:
        notes.append("Values that are smoke or indicative support no claim.")
    return [*table, *map(_LATEX.render_note, [*notes, *answer.disturbance]), ""]


def _build_value_rows(
    finding: Finding, values: Sequence[Value]
) -> tuple[list[str], list[list[str]]]:
    """Return headers and rows of measured values. Remarks have a column unless all are equal."""
    common = _find_common_note(values)
    has_notes = not common and any(value.note for value in values)
    over = [finding.over.replace("_", " ")] if finding.over else []
    headers = ["configuration", *over, finding.unit or "value", "launches"]
    rows = [
        [
            value.name,
            *([value.at] if over else []),
            _format_value(value, finding.unit),
            _format_launches(value),
            *([value.note] if has_notes else []),
        ]
        for value in values
    ]
    return [*headers, *(["remark"] if has_notes else [])], rows


def _format_launches(value: Value) -> str:
    """Return the number of launches, with the label if it supports no claim."""
    count = str(value.interval.launches) if value.interval else "–"
    return count if value.label in (None, "claim") else f"{count} ({value.label})"


def _find_common_note(values: Sequence[Value]) -> str:
    """Return the remark that all values have; "" if they differ."""
    notes = {value.note for value in values}
    return notes.pop() if len(notes) == 1 else ""


def _format_value(value: Value, unit: str) -> str:
    """Return the value with its bounds, such as "12.5 (12.1–12.9)"."""
    if value.interval is None:
        return "–"
    number = format_number_without_unit(value.interval.value, unit)
    bounds = format_bounds_without_unit(value.interval, unit).removeprefix("range ")
    return number if bounds == "–" else f"{number} ({bounds.replace(' – ', '–')})"


def _describe_brackets(values: Sequence[Value]) -> str:
    """Return the sentences that say what the brackets in the values are."""
    bounded = [each.interval for each in values if each.interval and each.interval.low is not None]
    confidences = {interval.confidence for interval in bounded if interval.confidence}
    sentences = []
    if confidences:
        joint = " that hold together" if max(confidences) > CONFIDENCE else ""
        sentences.append(f"The brackets are 95 % confidence intervals{joint}.")
    if any(interval.confidence is None for interval in bounded):
        sentences.append(
            f"The brackets of fewer than {CLAIM_LAUNCHES} launches are their range, which is no "
            "confidence interval."
        )
    return " ".join(sentences)


def _render_verdicts(answer: Answer, claims: Sequence[JudgedClaim]) -> list[str]:
    caption = f"{answer.study.title}: findings of the sources, and whether they hold here."
    rows = [[each.source, each.text, each.verdict, each.why] for each in claims]
    headers = ["source", "finding", "here", "why"]
    return [*_render_table(answer, "verdicts", caption, headers, rows), ""]


def _render_table(
    answer: Answer,
    name: str,
    caption: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    is_divided: bool = False,
) -> Iterator[str]:
    """Yield tables that fit an article.

    - `name`: what the label ends with.
    - `is_divided`: whether a table that is too wide is divided, instead of wrapping its texts.
    """
    label = formats.make_latex_label("tab", f"{answer.study.name} {name}")
    caption = formats.make_latex_caption(caption)
    if not is_divided:
        yield _LATEX.render_table(headers, rows, name, caption, formats.LATEX_WIDTH, label)
        return
    yield from _LATEX.render_tables_that_fit(
        headers, rows, formats.LATEX_WIDTH, 1, name, caption, label
    )


def render_csv(answer: Answer) -> str:
    """Return the values of all findings as CSV, one line for each value, with all digits.

    A finding without values, such as a table of answers, has a line for each field of its table.
    """
    lines = [line for finding in answer.findings for line in _csv_lines(answer, finding)]
    return formats.to_csv(lines)


def _csv_lines(answer: Answer, finding: Finding) -> Iterator[dict[str, Any]]:
    head = {"study": answer.study.name, "size": answer.size, "finding": finding.title}
    for value in finding.values:
        interval = value.interval
        settings = {name: value.fields.get(name) for name in of_cells.SETTINGS}
        yield {
            **head,
            "configuration": value.name,
            "over": finding.over,
            "at": value.at,
            "unit": finding.unit,
            **{end: getattr(interval, end, None) for end in ("value", "low", "high", "confidence")},
            "launches": getattr(interval, "launches", None),
            "label": value.label,
            "note": value.note,
            "reason": value.reason,
            **settings,
        }
    if finding.values or not finding.table:
        return
    _, *names = finding.table[0]
    empty = dict.fromkeys(("unit", "value", "low", "high", "confidence", "launches", "label"))
    for first, *fields in finding.table[1:]:
        for name, text in zip(names, fields, strict=True):
            line = {**head, "configuration": first, "over": finding.over, "at": name}
            answer_of_field = {"note": text, "reason": None, **dict.fromkeys(of_cells.SETTINGS)}
            yield {**line, **empty, **answer_of_field}
