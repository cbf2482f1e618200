"""Text formats of slowdown tables, with one function per format."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

from xfbench.analysis.leaderboard import Row
from xfbench.analysis.slowdown import (
    BEST,
    NO_REFERENCE,
    NOT_MEASURED,
    Entry,
    Line,
    Slowdown,
)
from xfbench.base.wording import pluralize
from xfbench.model.record import Status
from xfbench.rendering import captions, formats
from xfbench.rendering.tables import SELECTION_NOTE, format_with_interval, noise_note
from xfbench.statistics import Interval

_REASON_WORDS = {status for status in get_args(Status) if status != "ok"}
_REASON_WORDS |= {NOT_MEASURED, NO_REFERENCE}


def headers(table: Slowdown) -> list[str]:
    """Return the headers of the columns that `row_texts` fills."""
    count = len(table.common)
    means = [] if count < 2 else [f"mean of {count}"]
    if means and table.reference != BEST:
        means.append(f"total time of {count}")
    return [*table.by, *(network.name for network in table.networks), *means]


def row_texts(table: Slowdown, line: Line) -> list[str]:
    """Return the texts of a line, in the order of `headers`.

    - The values that form the line's group.
    - For each network, the slowdown, or a word that says why there is none.
    - The means over the networks `table.common`. They are left out if there are fewer than two such
      networks. If the line has a slowdown in only some of them, the text has the number.
    """
    means = [] if len(table.common) < 2 else [_mean_text(table, line, line.overall)]
    if means and table.reference != BEST:
        means.append(_mean_text(table, line, line.total_time))
    return [*_group_texts(line), *map(_slowdown_or_reason_text, line.entries), *means]


def _mean_text(table: Slowdown, line: Line, mean: Interval | None) -> str:
    text = format_ratio_with_interval(mean)
    if mean is None or _is_complete(table, line):
        return text
    return f"{text} [{len(line.averaged)} of {len(table.common)}]"


def _is_complete(table: Slowdown, line: Line) -> bool:
    return len(line.averaged) == len(table.common)


def group_texts_and_settings_per_network(line: Line) -> list[str]:
    """Return the texts of a line.

    - The values that form the line's group.
    - For each network, the configuration that was measured; "–" if there is no slowdown.
    """
    return [
        *_group_texts(line),
        *(
            describe_settings_outside_group(entry.row, line) if entry.slowdown else "–"
            for entry in line.entries
        ),
    ]


def describe_settings_outside_group(row: Row | None, line: Line) -> str:
    """Return the row's settings in words, or "–" for None.

    Settings that form the line's group are left out. The batch size is the exception: it is in the
    text only if lines are grouped by `global_batch_size`.
    """
    if row is None:
        return "–"
    parts = {
        "framework": row.framework,
        "kernel": row.kernel,
        "threads": pluralize(row.threads, "thread"),
        "ranks": f"{row.ranks} ranks" if row.ranks > 1 else "",
        "strategy": row.request.strategy_text if row.ranks > 1 else "",
        "batch_size": f"batch {row.global_batch_size}" if "global_batch_size" in line.group else "",
    }
    return ", ".join(text for name, text in parts.items() if text and name not in line.group)


def format_ratio_with_interval(interval: Interval | None) -> str:
    """Return the slowdown, a ratio, with the digits that its interval supports."""
    return format_with_interval(interval)


def notes_under_table(table: Slowdown) -> Iterator[str]:
    """Yield the notes under the table.

    The notes say what the intervals and the means are, and how rows were selected. If a group was
    measured in a network but has no slowdown there, a note gives the reason.
    """
    if any(entry.slowdown and entry.slowdown.low for line in table.lines for entry in line.entries):
        yield "All intervals of the table together hold with 95 %."
    if table.reference == BEST:
        yield "The intervals allow for the luck of the row that seems to be the best."
    if len(table.common) > 1:
        yield from _notes_on_means(table)
    rows = [entry.row for line in table.lines for entry in line.entries if entry.slowdown]
    if any(row and (row.configurations or 1) > 1 for row in rows):
        yield SELECTION_NOTE
    yield from _notes_on_certainty(table)
    missing: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for line in table.lines:
        networks_by_reason = defaultdict(list)
        for network, entry in zip(table.networks, line.entries, strict=True):
            if entry.reason and entry.reason != NOT_MEASURED:
                networks_by_reason[entry.reason].append(network.name)
        for reason, names in networks_by_reason.items():
            missing[(reason, *names)].append(line.name)
    for (reason, *names), lines in missing.items():
        yield f"{', '.join(lines)} in {', '.join(names)}: {reason}"


def _notes_on_certainty(table: Slowdown) -> Iterator[str]:
    """Yield which slowdowns support no claim, and how many launches were noisy."""
    networks: dict[tuple[str, ...], list[str]] = defaultdict(list)
    rows: list[Row] = []
    for line in table.lines:
        shown = [
            (network.name, entry.row)
            for network, entry in zip(table.networks, line.entries, strict=True)
            if entry.slowdown and entry.row
        ]
        rows += [row for _, row in shown]
        if doubtful := tuple(name for name, row in shown if row.label != "claim"):
            networks[doubtful].append(line.name)
    for names, lines in networks.items():
        yield (
            f"Ranks may change: {', '.join(lines)} in {', '.join(names)} (few, different or mostly "
            "noisy launches: xfbench leaderboard)."
        )
    if noise := noise_note(sum(row.noisy for row in rows), sum(len(row.speeds) for row in rows)):
        yield noise


def _notes_on_means(table: Slowdown) -> Iterator[str]:
    yield f"Mean: geometric, over {', '.join(table.common)}."
    if table.reference != BEST:
        yield "Total time: for the same number of images of each of these networks."
    partial = [line.name for line in table.lines if line.overall and not _is_complete(table, line)]
    if partial:
        yield (
            f"{', '.join(partial)}: means over fewer networks, which cannot be compared with the "
            "other means. --workload selects networks that all rows have."
        )


def _group_texts(line: Line) -> list[str]:
    return ["–" if value is None else str(value) for value in line.group.values()]


def _slowdown_or_reason_text(entry: Entry) -> str:
    if entry.slowdown:
        return format_ratio_with_interval(entry.slowdown)
    word = (entry.reason or "").partition(":")[0]
    return word if word in _REASON_WORDS else "not ranked"


def _render(
    tables: Sequence[Slowdown],
    max_width: int | None = None,
    caption: str | None = None,
    label: str | None = None,
    *,
    table_format: formats.Format,
) -> str:
    """Return the tables as text, with one row for each group.

    If a table is wider than `max_width` characters, in LaTeX points, its networks are divided among
    several tables. `caption` and `label` replace those of a table in LaTeX.
    """
    parts: list[str] = []
    labels = [label] * len(tables) if label else captions.label_slowdowns(tables)
    for table, table_label in zip(tables, labels, strict=True):
        key_count = len(table.by)
        rows = [row_texts(table, line) for line in table.lines]
        parts.append(table_format.render_heading(table.title, max_width))
        description = formats.make_latex_caption(captions.describe_slowdown(table))
        parts += table_format.render_tables_that_fit(
            headers(table),
            rows,
            max_width,
            key_count,
            table.title,
            caption or description,
            table_label,
        )
        parts += [table_format.render_note(note, max_width) for note in notes_under_table(table)]
        measured = [line for line in table.lines if any(entry.slowdown for entry in line.entries)]
        if measured:
            names = headers(table)[: key_count + len(table.networks)]
            rows = [group_texts_and_settings_per_network(line) for line in measured]
            parts += ["", table_format.render_heading("reached with")]
            title = f"Settings of {table.title}"
            parts += table_format.render_tables_that_fit(
                names,
                rows,
                max_width,
                key_count,
                title,
                "Settings with which the slowdowns of the table before were measured.",
                f"{table_label}-settings",
            )
        parts.append("")
    return table_format.join(parts)


def to_json(
    tables: Sequence[Slowdown],
    ignored_max_width: int | None = None,
    ignored_caption: str | None = None,
    ignored_label: str | None = None,
) -> str:
    """Return one JSON document with all fields.

    All functions of `FORMATS` have the same parameters. Here, the others have no effect.
    """
    return json.dumps({"slowdowns": [table.document() for table in tables]}, indent=1)


def to_csv(
    tables: Sequence[Slowdown],
    ignored_max_width: int | None = None,
    ignored_caption: str | None = None,
    ignored_label: str | None = None,
) -> str:
    """Return one CSV line per row and network, with all digits. The width has no effect."""
    return formats.to_csv([line for table in tables for line in _csv_lines(table)])


def _csv_lines(table: Slowdown) -> Iterator[dict[str, Any]]:
    head = {name: getattr(table, name) for name in ("device", "precision", "scaling", "machine")}
    for line in table.lines:
        group = {f"by_{name}": value for name, value in line.group.items()}
        for network, entry in zip(table.networks, line.entries, strict=True):
            row = entry.row
            speed = row.images_per_second if row else None
            yield {
                **head,
                **group,
                "workload": network.workload,
                "data": network.data,
                "batch_size": network.batch_size or None,
                **_value_and_bound_columns("slowdown", entry.slowdown),
                "launches": entry.slowdown.launches if entry.slowdown else None,
                "reference": table.reference,
                **_value_and_bound_columns("overall", line.overall),
                **_value_and_bound_columns("total_time", line.total_time),
                "overall_networks": ", ".join(line.averaged),
                "reason": entry.reason,
                **_value_and_bound_columns("images_per_second", speed),
                **{name: getattr(row, name, None) for name in _ROW_FIELDS},
            }


_ROW_FIELDS = (
    *(
        "framework",
        "framework_version",
        "kernel",
        "threads",
        "threads_observed",
        "cpus_busy",
        "ranks",
    ),
    *("strategy", "nodes", "configurations", "configurations_ranked", "certificate", "cell"),
)


def _value_and_bound_columns(prefix: str, interval: Interval | None) -> dict[str, float | None]:
    return {f"{prefix}_{end}": getattr(interval, end, None) for end in ("value", "low", "high")}


FORMATS: dict[str, Callable[..., str]] = {
    **formats.renderers_by_format(_render),
    "csv": to_csv,
    "json": to_json,
}
