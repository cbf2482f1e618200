"""How tables look: one function per format, values in, text out."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any

from tabulate import tabulate

from xfbench.checkpoints import Checkpointing
from xfbench.communication import Shares
from xfbench.comparison import Compared
from xfbench.leaderboard import Row, Table
from xfbench.prediction import Figure, Point
from xfbench.scaling import Efficiency
from xfbench.statistics import Interval
from xfbench.strategy import words

# What a table shows; a column that has nothing in any row is left out where `_WHERE_KNOWN`.
Column = tuple[str, Callable[[Row], str]]


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _rank(row: Row) -> str:
    if row.rank is None:
        return "–"
    first, last = row.rank
    return str(first) if first == last else f"{first}–{last}"


def _ranks(row: Row) -> str:
    if row.ranks == 1:
        return "–"
    label = ["(asynchronous)"] if row.asynchronous else []
    chosen = words(row.strategy_options.items())
    return " ".join(filter(None, [str(row.ranks), row.strategy, chosen, *label]))


def _bounded(found: Efficiency | Interval | None, form: str) -> str:
    """A share with its interval, where there is one."""
    if found is None:
        return "–"
    if found.low is None or found.high is None:
        return f"{found.value:{form}}"
    return f"{found.value:{form}} ({found.low:{form}}–{found.high:{form}})"


def _launches(row: Row) -> str:
    if row.images_per_second is None:
        return f"0 ({row.unstable} unstable)" if row.unstable else "0"
    notes = [row.images_per_second.label]
    notes += [f"{row.outliers} far off"] if row.outliers else []
    notes += [f"{row.unstable} unstable"] if row.unstable else []
    return f"{row.images_per_second.launches} ({', '.join(notes)})"


def _reader(row: Row) -> str:
    """Whose it is, and how far the pixels that it gives are off where its decoder is another."""
    return f"{row.input or '–'}{f', ±{row.pixels_off}' if row.pixels_off else ''}"


_WHO: list[Column] = [
    ("rank", _rank),
    ("framework", lambda row: row.framework),
    ("version", lambda row: row.framework_version or "–"),
    ("kernel", lambda row: row.kernel),
    ("ranks", _ranks),
    ("threads", lambda row: str(row.threads)),
    ("format", lambda row: row.data_format or "–"),
    ("reader", _reader),
    ("medium", lambda row: row.medium or "–"),
    ("page cache", lambda row: row.page_cache or "–"),
    ("checkpoints", lambda row: str(row.checkpoints or "–")),
    ("images/s", lambda row: speed(row.images_per_second)),
]
COLUMNS: dict[str, list[Column]] = {
    "throughput": [
        *_WHO,
        ("of best", lambda row: _or_dash(row.relative_to_best, ".2f")),
        ("efficiency", lambda row: _bounded(row.efficiency, ".0%")),
        ("of peak", lambda row: _or_dash(row.share_of_peak, ".0%")),
        ("launches", _launches),
        ("equal", lambda row: "yes" if row.reason is None else "–"),
        ("test acc.", lambda row: _or_dash(row.test_accuracy, ".1%")),
    ],
    "costs": [
        *_WHO,
        ("start-up", lambda row: _seconds(row.costs.startup_seconds)),
        ("build", lambda row: _seconds(row.costs.build_seconds)),
        ("first step", lambda row: _seconds(row.costs.first_step_seconds)),
        ("all epochs", lambda row: _seconds(row.costs.solution_seconds)),
        ("to accuracy", lambda row: _seconds(row.costs.accuracy_seconds)),
        ("memory", lambda row: _bytes(row.costs.peak_rss_bytes)),
        ("J/image", lambda row: _or_dash(row.costs.joules_per_image, ".3g")),
    ],
    "accuracy": [
        *_WHO,
        ("seeds", lambda row: str(row.seeds)),
        ("test acc.", lambda row: _bounded(row.accuracy, ".2%")),
        ("to accuracy", lambda row: _seconds(row.costs.accuracy_seconds)),
        ("all epochs", lambda row: _seconds(row.costs.solution_seconds)),
    ],
    "communication": [
        *_WHO,
        ("nodes", lambda row: str(row.nodes)),
        ("efficiency", lambda row: _bounded(row.efficiency, ".0%")),
        ("computing", lambda row: _of_step(row, "compute")),
        ("waiting", lambda row: _of_step(row, "waiting")),
        ("exchange", lambda row: _of_step(row, "exposed")),
        ("to send", lambda row: _sent(row, "bytes_per_step")),
        ("counted", lambda row: _sent(row, "counted_bytes")),
        ("an epoch", lambda row: _sent(row, "bytes_per_epoch")),
        ("counted, epoch", lambda row: _sent(row, "counted_bytes_per_epoch")),
    ],
    "storage": [
        *_WHO,
        ("spread", lambda row: _bounded(row.spread, ".1%")),
        ("input", lambda row: _or_dash(row.input_share, ".1%")),
        ("checkpoint", lambda row: _saved(row, lambda one: one.format)),
        ("on", lambda row: _saved(row, lambda one: one.file_system)),
        ("size", lambda row: _saved(row, lambda one: _megabytes(one.bytes))),
        ("save", lambda row: _saved(row, lambda one: _seconds(one.save_seconds))),
        ("saved", lambda row: _saved(row, lambda one: f"{_megabytes(one.save_bandwidth)}/s")),
        ("load", lambda row: _saved(row, lambda one: _seconds(one.load_seconds))),
        ("loaded", lambda row: _saved(row, lambda one: f"{_megabytes(one.load_bandwidth)}/s")),
        ("of the run", lambda row: _saved(row, lambda one: f"{one.share:.1%}")),
    ],
}


def _saved(row: Row, of: Callable[[Checkpointing], str]) -> str:
    return "–" if row.checkpointing is None else of(row.checkpointing)


def _of_step(row: Row, share: str) -> str:
    known = row.communication
    return _or_dash(None if known is None else max(0.0, getattr(known, share)), ".0%")


def _sent(row: Row, which: str) -> str:
    known = row.communication
    sent = None if known is None else getattr(known, which)
    return "–" if sent is None else _megabytes(sent)


def _megabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"


_WHERE_KNOWN = (
    "reader",
    "ranks",
    "checkpoints",
    "efficiency",
    "format",
    "medium",
    "page cache",
    "of peak",
    "test acc.",
    "all epochs",
    "to accuracy",
    "J/image",
    "an epoch",
    "counted, epoch",
)

# Of the formats that are for people: the name of tabulate's style, and what a heading looks like.
STYLES = {
    "text": ("simple", "{}"),
    "markdown": ("github", "### {}"),
    "latex": ("latex_booktabs", "% {}"),
    "html": ("html", "<!-- {} -->"),
}


def text(tables: Sequence[Table], columns: str = "throughput") -> str:
    """For a terminal."""
    return _document(tables, columns, *STYLES["text"])


def markdown(tables: Sequence[Table], columns: str = "throughput") -> str:
    """For a README or a web page's source."""
    return _document(tables, columns, *STYLES["markdown"])


def latex(tables: Sequence[Table], columns: str = "throughput") -> str:
    """For a paper; needs the package booktabs."""
    return _document(tables, columns, *STYLES["latex"])


def html(tables: Sequence[Table], columns: str = "throughput") -> str:
    """Bare tables for a page of one's own; every cell is escaped."""
    return _document(tables, columns, *STYLES["html"])


def as_json(tables: Sequence[Table], columns: str = "") -> str:
    """One JSON document, which has all that there is."""
    return json.dumps({"tables": [table.document() for table in tables]}, indent=1)


def as_csv(tables: Sequence[Table], columns: str = "") -> str:
    """One line per row, all columns, numbers in full.

    What a spreadsheet would run as a formula is disarmed.
    """
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


def prediction(points: Sequence[Point], fit: Mapping[str, Any]) -> str:
    """For a terminal: what is expected on each number of ranks, and from what it follows."""
    rows = [
        [
            point.ranks,
            speed(point.images_per_second),
            "–" if point.measured is None else grouped(point.measured, 3),
            f"{point.efficiency:.0%}",
            "–" if point.beyond_data <= 1 else f"{point.beyond_data:.3g} times",
        ]
        for point in points
    ]
    names = ["ranks", "images/s", "measured", "efficiency", "beyond the data"]
    body = tabulate(rows, names, tablefmt="simple", disable_numparse=True)
    each = [
        f"{figure['value']:.3g} s for {images} images"
        for images, figure in fit["computing_seconds"].items()
    ]
    counts = ", ".join(map(str, fit["measured_ranks"]))
    bandwidth, latency = fit["bandwidth"]["value"], fit["latency"]["value"]
    count = len(fit["buckets"])
    together = f"{count} buckets behind computing" if count > 1 else "one piece after computing"
    lines = [
        fit["title"],
        body,
        f"From {fit['launches']} launches on {counts} ranks. A step computes {', '.join(each)}.",
        f"{fit['payload_bytes'] / 1e6:.3g} MB of gradients by {fit['algorithm']}, in {together}, "
        f"over a {fit['link']} link of {8e-9 * bandwidth:.3g} Gbit/s and {1e6 * latency:.3g} µs.",
    ]
    return "\n".join(lines)


FORMATS: dict[str, Callable[[Sequence[Table], str], str]] = {
    "text": text,
    "markdown": markdown,
    "latex": latex,
    "csv": as_csv,
    "json": as_json,
    "html": html,
}


def speed(interval: Interval | Figure | None) -> str:
    """A throughput with the digits its interval supports, or both ends where it is wide."""
    if interval is None:
        return "–"
    if interval.low is None or interval.high is None:
        return grouped(interval.value, 3)
    half = (interval.high - interval.low) / 2
    if half > interval.value / 4:
        ends = f"{grouped(interval.low, 2)}–{grouped(interval.high, 2)}"
        return f"{grouped(interval.value, 2)} ({ends})"
    if half <= 0:
        return grouped(interval.value, 3)
    place = 1 - math.floor(math.log10(half))  # two significant digits of the half-width
    return f"{_placed(interval.value, place)} ± {_placed(half, place)}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} s"


def _bytes(value: int | None) -> str:
    return "–" if value is None else f"{value / 1e9:.2g} GB"


def grouped(value: float, digits: int) -> str:
    """A positive number with so many significant digits, thousands set apart."""
    return _placed(value, digits - 1 - math.floor(math.log10(value)))


def _placed(value: float, place: int) -> str:
    return f"{round(value, place):,.{max(place, 0)}f}".replace(",", " ")


def shown_columns(table: Table, columns: str = "throughput") -> list[Column]:
    """The columns of a table that have something to say in it."""
    rows = [*table.rows, *table.unranked]
    return [
        (name, of)
        for name, of in COLUMNS[columns]
        if name not in _WHERE_KNOWN or any(of(row) != "–" for row in rows)
    ]


def headed(form: str, words: str) -> str:
    """A heading in a format's own form: on one line, and of a comment no end before its own."""
    line = " ".join(words.split())
    return form.format(escape(line) if form.startswith("<!--") else line)


def _document(tables: Sequence[Table], columns: str, style: str, heading: str) -> str:
    parts: list[str] = []
    for table in tables:
        parts.append(headed(heading, table.title))
        shown = shown_columns(table, columns)
        headers = [name for name, _ in shown]
        if table.rows:
            lines = [[of(row) for _, of in shown] for row in table.rows]
            parts.append(tabulate(lines, headers, style, disable_numparse=True))
        if table.unranked:
            lines = [[*(of(row) for _, of in shown), row.reason or ""] for row in table.unranked]
            parts.append(heading.format("not ranked"))
            parts.append(_unranked(lines, headers, style))
        parts.append("")
    return "\n".join(parts)


def _unranked(lines: list[list[str]], headers: list[str], style: str) -> str:
    """A reason that all rows share is said once, under the table."""
    reasons = {line[-1] for line in lines}
    if len(reasons) == 1:
        shown = tabulate([line[:-1] for line in lines], headers, style, disable_numparse=True)
        note = reasons.pop()
        return f"{shown}\n{note}" if style in ("simple", "github") else f"{shown}\n"
    return tabulate(lines, [*headers, "why"], style, disable_numparse=True)


def _flat(table: Table, row: Row) -> dict[str, Any]:
    document = {
        key: value for key, value in table.document().items() if key not in ("rows", "unranked")
    }
    document |= {"ranked": row.reason is None, "reason": row.reason, **row.document()}
    document["strategy_options"] = words(row.strategy_options.items())
    found = document.pop("images_per_second") or {}
    document["records"] = " ".join(document["records"])
    document |= document.pop("costs")
    of_step = document.pop("communication") or {}
    for field in fields(Shares):
        document[f"communication_{field.name}"] = of_step.get(field.name)
    saved = document.pop("checkpointing") or {}
    for field in fields(Checkpointing):
        document[f"checkpoint_{field.name}"] = saved.get(field.name)
    document["rank_low"], document["rank_high"] = document.pop("rank") or (None, None)
    for key in ("value", "low", "high", "launches", "label"):
        document[f"images_per_second_{key}"] = found.get(key)
    return {key: disarmed(value) for key, value in document.items()}


def disarmed(value: Any) -> Any:
    """A value for CSV: with a quote in front where a spreadsheet would run it as a formula."""
    runs = isinstance(value, str) and value.startswith(("=", "+", "-", "@"))
    return f"'{value}" if runs else value
