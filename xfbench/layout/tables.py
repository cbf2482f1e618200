"""How tables look: one function per format, values in, text out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from xfbench.analysis.checkpoints import Checkpointing
from xfbench.analysis.communication import Shares
from xfbench.analysis.comparison import Compared
from xfbench.analysis.leaderboard import Row, Table
from xfbench.analysis.prediction import Point
from xfbench.analysis.scaling import Efficiency
from xfbench.analysis.statistics import Interval
from xfbench.layout import formats
from xfbench.strategy import words

CHOSEN = (
    "The best of several was chosen by the same launches, which makes it look a little faster than "
    "it is (docs/method.md, The best of each)."
)
speed, grouped = formats.speed, formats.grouped
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


def _threads(row: Row) -> str:
    """Asked for, and how many worked where that is another number."""
    if row.threads_observed in (None, row.threads):
        return str(row.threads)
    return f"{row.threads} ({row.threads_observed} worked)"


def _tried(row: Row) -> str:
    """How many configurations a row is the best of."""
    if row.configurations is None:
        return "–"
    ranked, rest = row.configurations_ranked or 0, row.configurations
    return str(rest) if ranked in (0, rest) else f"{rest}, {ranked} ranked"


def _of_best(row: Row) -> str:
    """Two digits, where the interval is narrow enough for them."""
    found, share = row.images_per_second, row.relative_to_best
    if found is None or share is None:
        return "–"
    wide = found.high is not None and (found.high / found.value - 1) * share >= 0.1
    return f"{share:.1f}" if wide else f"{share:.2f}"


def _limit(row: Row) -> str:
    most = row.request.memory_limit
    return "–" if most is None else _megabytes(most)


_WHO: list[Column] = [
    ("rank", _rank),
    ("framework", lambda row: row.framework),
    ("version", lambda row: row.framework_version or "–"),
    ("kernel", lambda row: row.kernel),
    ("ranks", _ranks),
    ("threads", _threads),
    ("format", lambda row: row.data_format or "–"),
    ("reader", _reader),
    ("medium", lambda row: row.medium or "–"),
    ("page cache", lambda row: row.page_cache or "–"),
    ("checkpoints", lambda row: str(row.checkpoints or "–")),
    ("memory limit", _limit),
    ("allocator", lambda row: row.request.allocator or "–"),
    ("differs", lambda row: row.differs or "–"),
    ("best of", _tried),
    ("images/s", lambda row: speed(row.images_per_second)),
]
COLUMNS: dict[str, list[Column]] = {
    "throughput": [
        *_WHO,
        ("of best", _of_best),
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
        ("input, CPU", lambda row: _or_dash(row.input_cpu_share, ".1%")),
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
    "best of",
    "reader",
    "ranks",
    "checkpoints",
    "memory limit",
    "allocator",
    "differs",
    "efficiency",
    "format",
    "medium",
    "page cache",
    "of peak",
    "test acc.",
    "input, CPU",
    "all epochs",
    "to accuracy",
    "J/image",
    "an epoch",
    "counted, epoch",
)


def text(tables: Sequence[Table], columns: str = "throughput") -> str:
    """For a terminal."""
    return _document(tables, columns, formats.FORMATS["text"])


def markdown(tables: Sequence[Table], columns: str = "throughput") -> str:
    """For a README or a web page's source."""
    return _document(tables, columns, formats.FORMATS["markdown"])


def latex(tables: Sequence[Table], columns: str = "throughput") -> str:
    """For a paper; needs the package booktabs."""
    return _document(tables, columns, formats.FORMATS["latex"])


def html(tables: Sequence[Table], columns: str = "throughput") -> str:
    """Bare tables for a page of one's own; whatever a record says is text."""
    return _document(tables, columns, formats.FORMATS["html"])


def as_json(tables: Sequence[Table], columns: str = "") -> str:
    """One JSON document, which has all that there is."""
    return json.dumps({"tables": [table.document() for table in tables]}, indent=1)


def as_csv(tables: Sequence[Table], columns: str = "") -> str:
    """One line per row, all columns, numbers in full; nothing in it runs in a spreadsheet."""
    lines = [_flat(table, row) for table in tables for row in (*table.rows, *table.unranked)]
    return formats.as_csv(lines)


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
    return formats.FORMATS["text"].table(headers, lines)


def prediction(points: Sequence[Point], fit: Mapping[str, Any]) -> str:
    """For a terminal: what is expected on each number of ranks, and from what it follows."""
    rows = [
        [
            str(point.ranks),
            speed(point.images_per_second),
            "–" if point.measured is None else grouped(point.measured, 3),
            f"{point.efficiency:.0%}",
            "–" if point.beyond_data <= 1 else f"{point.beyond_data:.3g} times",
        ]
        for point in points
    ]
    names = ["ranks", "images/s", "measured", "efficiency", "beyond the data"]
    body = formats.FORMATS["text"].table(names, rows)
    each = [
        f"{figure['value']:.3g} s for {images} images"
        for images, figure in fit["computing_seconds"].items()
    ]
    counts = ", ".join(map(str, fit["measured_ranks"]))
    bandwidth, latency = fit["bandwidth"]["value"], fit["latency"]["value"]
    count = len(fit["buckets"])
    together = f"{count} buckets behind computing" if count > 1 else "one piece after computing"
    lines = [
        formats.FORMATS["text"].above(fit["title"]),
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


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} s"


def _bytes(value: int | None) -> str:
    return "–" if value is None else f"{value / 1e9:.2g} GB"


def shown_columns(table: Table, columns: str = "throughput") -> list[Column]:
    """The columns of a table that have something to say in it, those it is by among the first."""
    rows = [*table.rows, *table.unranked]
    known = [
        (name, of)
        for name, of in COLUMNS[columns]
        if name not in _WHERE_KNOWN or any(of(row) != "–" for row in rows)
    ]
    have = {name for name, _ in known} | {"framework_version"}
    by = [(name, _of_group(name)) for name in table.by if name not in have]
    return [*known[:1], *by, *known[1:]]


def _of_group(name: str) -> Callable[[Row], str]:
    return lambda row: "–" if row.group[name] is None else str(row.group[name])


def _document(tables: Sequence[Table], columns: str, into: formats.Format) -> str:
    parts: list[str] = []
    for table in tables:
        parts.append(into.above(table.title))
        shown = shown_columns(table, columns)
        headers = [name for name, _ in shown]
        if table.rows:
            parts.append(into.table(headers, [[of(row) for _, of in shown] for row in table.rows]))
        if table.unranked:
            parts.append(into.above("not ranked"))
            lines = [[of(row) for _, of in shown] for row in table.unranked]
            reasons = [row.reason or "" for row in table.unranked]
            if len(set(reasons)) == 1:  # said once, under the table
                parts += [into.table(headers, lines), into.below(reasons[0])]
            else:
                wide = [[*line, why] for line, why in zip(lines, reasons, strict=True)]
                parts.append(into.table([*headers, "why"], wide))
        if any((row.configurations or 1) > 1 for row in (*table.rows, *table.unranked)):
            parts.append(into.below(CHOSEN))
        parts.append("")
    return "\n".join(parts)


def _flat(table: Table, row: Row) -> dict[str, Any]:
    document = {
        key: value for key, value in table.document().items() if key not in ("rows", "unranked")
    }
    document |= {"ranked": row.reason is None, "reason": row.reason, **row.document()}
    document |= {f"by_{name}": value for name, value in document.pop("group", {}).items()}
    document["by"] = " ".join(table.by)
    document["strategy_options"] = words(row.strategy_options.items())
    found = document.pop("images_per_second") or {}
    document["records"] = " ".join(document["records"])
    document |= document.pop("costs")
    del document["profile"]  # which has a line per layer: --columns layers
    of_step = document.pop("communication") or {}
    for field in fields(Shares):
        document[f"communication_{field.name}"] = of_step.get(field.name)
    saved = document.pop("checkpointing") or {}
    for field in fields(Checkpointing):
        document[f"checkpoint_{field.name}"] = saved.get(field.name)
    for name in ("spread", "accuracy", "efficiency"):
        known = document.pop(name) or {}
        for end in ("value", "low", "high"):
            document[f"{name}_{end}"] = known.get(end)
    document["rank_low"], document["rank_high"] = document.pop("rank") or (None, None)
    for key in ("value", "low", "high", "launches", "label"):
        document[f"images_per_second_{key}"] = found.get(key)
    return document
