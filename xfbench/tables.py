"""How tables look: one function per format, values in, text out."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from tabulate import tabulate

from xfbench.comparison import Compared
from xfbench.leaderboard import Row, Table
from xfbench.statistics import Interval

_HEADERS = [
    "rank",
    "framework",
    "version",
    "kernel",
    "threads",
    "images/s",
    "of best",
    "launches",
    "equal",
]


def text(tables: Sequence[Table]) -> str:
    """For a terminal."""
    return _document(tables, "simple", "{}")


def markdown(tables: Sequence[Table]) -> str:
    """For a README or a web page's source."""
    return _document(tables, "github", "### {}")


def latex(tables: Sequence[Table]) -> str:
    """For a paper; needs the package booktabs."""
    return _document(tables, "latex_booktabs", "% {}")


def html(tables: Sequence[Table]) -> str:
    """Bare tables for a page of one's own; every cell is escaped."""
    return _document(tables, "html", "<!-- {} -->")


def as_json(tables: Sequence[Table]) -> str:
    """One JSON document."""
    return json.dumps({"tables": [table.document() for table in tables]}, indent=1)


def as_csv(tables: Sequence[Table]) -> str:
    """One line per row, numbers in full; what a spreadsheet would run as a formula is disarmed."""
    out = io.StringIO()
    lines = [_flat(table, row) for table in tables for row in (*table.rows, *table.unranked)]
    if lines:
        writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return out.getvalue()


def comparisons(found: Sequence[Compared]) -> str:
    """Verdicts with their evidence, for a terminal."""
    lines = []
    for one in found:
        ratio, seen = one.figures.ratio, one.figures.smallest_visible_difference
        interval = "–" if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}"
        verdict = (one.verdict or f"no verdict: {one.reason}").replace("_", " ")
        visible = "–" if seen is None else f"{seen:.1%}"
        launches = f"{ratio.launches}{' pairs' if one.figures.paired else ''}"
        lines.append([one.a, one.b, f"{ratio.value:.3f}", interval, launches, visible, verdict])
    headers = ["A", "B", "A/B", "95 %", "launches", "could be seen", "A is"]
    return tabulate(lines, headers, "simple", disable_numparse=True)


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "text": text,
    "markdown": markdown,
    "latex": latex,
    "csv": as_csv,
    "json": as_json,
    "html": html,
}


def speed(interval: Interval | None) -> str:
    """A throughput with the digits its interval supports, or both ends where it is wide."""
    if interval is None:
        return "–"
    if interval.low is None or interval.high is None:
        return _grouped(interval.value, 3)
    half = (interval.high - interval.low) / 2
    if half > interval.value / 4:
        ends = f"{_grouped(interval.low, 2)}–{_grouped(interval.high, 2)}"
        return f"{_grouped(interval.value, 2)} ({ends})"
    if half <= 0:
        return _grouped(interval.value, 3)
    place = 1 - math.floor(math.log10(half))  # two significant digits of the half-width
    return f"{_placed(interval.value, place)} ± {_placed(half, place)}"


def _grouped(value: float, digits: int) -> str:
    return _placed(value, digits - 1 - math.floor(math.log10(value)))


def _placed(value: float, place: int) -> str:
    return f"{round(value, place):,.{max(place, 0)}f}".replace(",", " ")


def _document(tables: Sequence[Table], style: str, heading: str) -> str:
    parts: list[str] = []
    for table in tables:
        parts.append(heading.format(table.title))
        accuracy = any(row.test_accuracy is not None for row in (*table.rows, *table.unranked))
        headers = [*_HEADERS, *(["test acc."] if accuracy else [])]
        if table.rows:
            lines = [_cells(row, accuracy) for row in table.rows]
            parts.append(tabulate(lines, headers, style, disable_numparse=True))
        if table.unranked:
            lines = [[*_cells(row, accuracy), row.reason or ""] for row in table.unranked]
            parts.append(heading.format("not ranked"))
            parts.append(_unranked(lines, headers, style))
        parts.append("")
    return "\n".join(parts)


def _rank(rank: tuple[int, int] | None) -> str:
    if rank is None:
        return "–"
    first, last = rank
    return str(first) if first == last else f"{first}–{last}"


def _unranked(lines: list[list[str]], headers: list[str], style: str) -> str:
    """A reason that all rows share is said once, under the table."""
    reasons = {line[-1] for line in lines}
    if len(reasons) == 1:
        shown = tabulate([line[:-1] for line in lines], headers, style, disable_numparse=True)
        note = reasons.pop()
        return f"{shown}\n{note}" if style in ("simple", "github") else f"{shown}\n"
    return tabulate(lines, [*headers, "why"], style, disable_numparse=True)


def _cells(row: Row, accuracy: bool) -> list[str]:
    interval = row.images_per_second
    cells = [
        _rank(row.rank),
        row.framework,
        row.framework_version or "–",
        row.kernel,
        str(row.threads),
        speed(interval),
        "–" if row.relative_to_best is None else f"{row.relative_to_best:.2f}",
        f"{interval.launches} ({interval.label})" if interval else "0",
        "yes" if row.reason is None else "–",
    ]
    if accuracy:
        cells.append("–" if row.test_accuracy is None else f"{row.test_accuracy:.1%}")
    return cells


def _flat(table: Table, row: Row) -> dict[str, Any]:
    document = {
        key: value for key, value in table.document().items() if key not in ("rows", "unranked")
    }
    document |= {"ranked": row.reason is None, "reason": row.reason, **row.document()}
    found = document.pop("images_per_second") or {}
    document["rank_low"], document["rank_high"] = document.pop("rank") or (None, None)
    for key in ("value", "low", "high", "launches", "label"):
        document[f"images_per_second_{key}"] = found.get(key)
    return {
        key: f"'{value}"
        if isinstance(value, str) and value.startswith(("=", "+", "-", "@"))
        else value
        for key, value in document.items()
    }
