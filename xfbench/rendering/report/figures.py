"""Figures of the report as values, each with its data and a description in words.

This module decides which cells of a leaderboard form a thread sweep, a comparison of kernels or a
scaling curve. `svg.py` draws the figures.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xfbench.analysis.leaderboard import Row, Table
from xfbench.model.record import Record
from xfbench.rendering import tables

MOST_LINES, MOST_BARS, MOST_STEPS = 8, 20, 60
MOST_NAMED = 6  # lines or bars with values in a description


@dataclass(frozen=True)
class Point:
    """A value at `x`, with its interval if there is one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """Points in order of x. If `ideal`, the line is the ideal scaling of the line before it."""

    name: str
    points: tuple[Point, ...]
    ideal: bool = False


@dataclass(frozen=True)
class Bar:
    """A value, with its interval if there is one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Mark:
    """An external value or range at `x`. `printed` is the figure as its source prints it."""

    name: str
    printed: str
    x: float
    y: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Figure:
    """Lines over an axis `x`, or bars.

    `headers` and `data` are a table of all numbers as text. `at` has the x positions of the ticks;
    if it is empty, ticks are at round numbers. `limit` is the y value of a separate limit line, and
    the name of that line.
    """

    title: str
    description: str
    y: str
    headers: tuple[str, ...]
    data: tuple[tuple[str, ...], ...]
    x: str = ""
    lines: tuple[Line, ...] = ()
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()
    at: tuple[float, ...] = ()
    limit: tuple[float, str] | None = None
    percent: bool = False
    from_zero: bool = True
    note: str = ""


def figures(table: Table, records: Mapping[str, Record]) -> list[Figure]:
    """Return all figures that the leaderboard has cells for, in the order of the page."""
    rows = [row for row in (*table.rows, *table.unranked) if row.images_per_second]
    drawn = (
        _threads([row for row in rows if row.ranks == 1]),
        _kernels(rows),
        _scaling(rows, table.scaling),
        _limit(rows, records),
        _learning(rows, records),
    )
    return [figure for figure in drawn if figure]


def name(row: Row, *, without: Collection[str] = ()) -> str:
    """Return a short name of a row: "torch · onednn · 2 threads"."""
    return " · ".join(text for key, text in parts(row).items() if text and key not in without)


def parts(row: Row) -> dict[str, str]:
    """Return the parts of a row's name. The part of a default setting is empty."""
    return {
        "framework": row.framework,
        "kernel": row.kernel,
        "threads": f"{row.threads} thread{'s' if row.threads > 1 else ''}",
        "ranks": f"{row.ranks} ranks" if row.ranks > 1 else "",
        "strategy": row.request.strategy_text if row.ranks > 1 else "",
        "format": row.data_format or "",
        "reader": f"{row.input} reader" if row.input == "native" else "",
        "medium": row.medium or "",
        "cache": f"{row.page_cache} cache" if row.page_cache else "",
        "checkpoints": f"{row.checkpoints} checkpoints" if row.checkpoints else "",
        "allocator": row.request.allocator or "",
        "differs": row.differs,
    }


def _marked(row: Row, text: str) -> str:
    return text if row.reason is None else f"{text} (not ranked)"


def _other_settings(row: Row) -> tuple[Any, ...]:
    request = row.request
    return (
        *row.storage,
        row.checkpoints,
        request.allocator,
        request.steps,
        request.epochs,
        request.warmup,
    )


def _point(row: Row, x: float) -> Point:
    speed = row.images_per_second
    assert speed is not None
    return Point(x, speed.value, speed.low, speed.high)


def _grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> list[list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return list(groups.values())


def _threads(rows: Sequence[Row]) -> Figure | None:
    """Return the figure of images per second over threads.

    It has a line for each combination of the other settings.
    """

    def group_key(row: Row) -> tuple[Any, ...]:
        return row.framework, row.framework_version, row.kernel, *_other_settings(row)

    lines = []
    for group in _grouped(rows, group_key):
        group.sort(key=lambda row: row.threads)
        if len({row.threads for row in group}) > 1:
            points = tuple(_point(row, row.threads) for row in group)
            lines.append(Line(name(group[0], without=("threads",)), points))
    return _lines_figure("Thread sweep", "threads", lines)


def _lines_figure(title: str, x: str, lines: list[Line]) -> Figure | None:
    """Return the figure of images per second, limited to the fastest lines."""
    measured_lines = [line for line in lines if not line.ideal]
    if not measured_lines:
        return None
    measured_lines.sort(key=lambda line: -max(point.y for point in line.points))
    drawn_names = {line.name for line in measured_lines[:MOST_LINES]}
    order = {line.name: place for place, line in enumerate(measured_lines)}
    drawn = sorted(
        (line for line in lines if line.name in drawn_names), key=lambda line: order[line.name]
    )
    data = tuple(
        (line.name, f"{point.x:g}", _number(point.y), _interval_text(point))
        for line in measured_lines
        for point in line.points
    )
    sentences = [
        f"{line.name}: " + ", ".join(f"{_number(p.y)} at {p.x:g}" for p in line.points)
        for line in measured_lines[:MOST_NAMED]
    ]
    return Figure(
        title=title,
        description=f"Images per second by {x}. {'; '.join(sentences)}.",
        x=x,
        y="images/s",
        headers=("configuration", x, "images/s", "95 % interval"),
        data=data,
        lines=tuple(drawn),
        at=tuple(sorted({point.x for line in drawn for point in line.points})),
        note=_fastest_of(len(measured_lines), MOST_LINES),
    )


def _fastest_of(count: int, most: int) -> str:
    return f"Shows the {most} fastest of {count}; the data table has all." if count > most else ""


def _kernels(rows: Sequence[Row]) -> Figure | None:
    """Return a figure of frameworks measured with several kernels and otherwise equal settings."""

    def group_key(row: Row) -> tuple[Any, ...]:
        rank_settings = row.ranks, row.nodes, row.strategy, str(row.strategy_options)
        return (
            row.framework,
            row.framework_version,
            row.threads,
            *rank_settings,
            *_other_settings(row),
        )

    groups = [g for g in _grouped(rows, group_key) if len({row.kernel for row in g}) > 1]
    chosen = [row for group in groups for row in group]
    return _bars_figure("Kernels", chosen) if chosen else None


def _bars_figure(title: str, rows: Sequence[Row]) -> Figure:
    bars = []
    for row in rows:
        point = _point(row, 0)
        bars.append(Bar(_marked(row, name(row)), point.y, point.low, point.high))
    sentences = [f"{bar.name}: {_number(bar.value)}" for bar in bars[:MOST_NAMED]]
    return Figure(
        title=title,
        description=f"Images per second. {'; '.join(sentences)}.",
        y="images/s",
        headers=("configuration", "images/s", "95 % interval"),
        data=tuple((bar.name, _number(bar.value), _interval_text(bar)) for bar in bars),
        bars=tuple(bars[:MOST_BARS]),
        note=_fastest_of(len(bars), MOST_BARS),
    )


def _scaling(rows: Sequence[Row], law: str | None) -> Figure | None:
    """Return the figure of images per second over ranks, with the ideal scaling of each line."""
    if law is None:
        return None

    lines = []
    for group in over_ranks(rows):
        points = tuple(_point(row, row.ranks) for row in group)
        label = name(group[-1], without=("ranks",))
        first = points[0]
        x_limits = (first.x, points[-1].x)
        perfect = tuple(Point(x, first.y * x / first.x) for x in x_limits)
        lines += [Line(label, points), Line(label, perfect, ideal=True)]
    title = {"strong": "Strong scaling", "weak": "Weak scaling"}[law]
    return _lines_figure(title, "ranks", lines)


def over_ranks(rows: Sequence[Row]) -> list[list[Row]]:
    """Return groups of rows that differ only in ranks, in order of ranks.

    Each group has at least two numbers of ranks. A row of one rank belongs to the groups of all
    strategies.
    """

    def group_key(row: Row) -> tuple[Any, ...]:
        row_settings = row.framework, row.framework_version, row.kernel, row.threads
        return *row_settings, *_other_settings(row)

    groups = []
    for group in _grouped(rows, group_key):
        alone = [row for row in group if row.ranks == 1]
        several = [row for row in group if row.ranks > 1]
        for of_one in _grouped(several, lambda row: (row.strategy, str(row.strategy_options))):
            both = sorted([*alone, *of_one], key=lambda row: row.ranks)
            if len({row.ranks for row in both}) > 1:
                groups.append(both)
    return groups


def _limit(rows: Sequence[Row], records: Mapping[str, Record]) -> Figure | None:
    """Return the figure of each row's speed as a share of the cores' matrix product, its limit."""
    bars, data = [], []
    for row in rows:
        limit = next(
            (records[record_id].limit for record_id in row.records if records[record_id].limit),
            None,
        )
        if row.share_of_peak is None or limit is None:
            continue
        label = _marked(row, name(row))
        bars.append(Bar(label, row.share_of_peak))
        possible = limit.matrix_product * row.ranks
        done = row.share_of_peak * possible
        of_both = (f"{done / 1e9:.3g}", f"{possible / 1e9:.3g}")
        data.append((label, f"{row.share_of_peak:.1%}", *of_both, limit.source))
    if not bars:
        return None
    best = max(bars, key=lambda bar: bar.value)
    return Figure(
        title="Share of the limit",
        description=(
            "Arithmetic of training as a share of the matrix product on the same cores. "
            f"The highest is {best.name}: {best.value:.0%}."
        ),
        y="share of the matrix product",
        headers=("configuration", "share", "GFLOP/s", "possible", "source of the limit"),
        data=tuple(data),
        bars=tuple(bars[:MOST_BARS]),
        limit=(1.0, "limit"),
        percent=True,
        note=_fastest_of(len(bars), MOST_BARS),
    )


def _learning(rows: Sequence[Row], records: Mapping[str, Record]) -> Figure | None:
    """Return the figure of test accuracy over seconds since process start, without evaluations."""
    lines, data = [], []
    for row in rows:
        points = []
        row_records = [records[record_id] for record_id in row.records]
        trained = [
            record
            for record in row_records
            if record.status == "ok" and record.learning and record.measurement
        ]
        for number in range(min((len(record.learning or ()) for record in trained), default=0)):
            epochs = [record.learning[number] for record in trained if record.learning]
            reached = statistics.median(_passed(record, number) for record in trained)
            means = [
                _mean(getattr(epoch, field) for epoch in epochs)
                for field in ("test_accuracy", "train_loss", "test_loss")
            ]
            if means[0] is not None:
                points.append(Point(reached, means[0]))
            shown = (f"{reached:.3g}", _share(means[0]), _plain(means[1]), _plain(means[2]))
            data.append((_marked(row, name(row)), str(epochs[0].epoch), *shown))
        if points:
            lines.append(Line(_marked(row, name(row)), tuple(points)))
    if not lines:
        return None
    sentences = [
        f"{line.name}: {line.points[-1].y:.1%} after {line.points[-1].x:.3g} s"
        for line in lines[:MOST_NAMED]
    ]
    headers = ("epoch", "seconds", "test accuracy", "training loss", "test loss")
    return Figure(
        title="Learning",
        description=f"Test accuracy by seconds since the start. {'; '.join(sentences)}.",
        x="seconds since the start",
        y="test accuracy",
        headers=("configuration", *headers),
        data=tuple(data),
        lines=tuple(lines[:MOST_LINES]),
        percent=True,
        from_zero=False,
        note=_fastest_of(len(lines), MOST_LINES),
    )


def _passed(record: Record, epoch: int) -> float:
    measured, learning = record.measurement, record.learning
    assert measured is not None and learning is not None
    start = (measured.startup_seconds or 0.0) + measured.build_seconds
    return start + sum(epoch_facts.seconds for epoch_facts in learning[: epoch + 1])


def steps(records: Sequence[Record]) -> Figure | None:
    """Return the figure of each launch's timed steps in order, in milliseconds."""
    lines, data = [], []
    for record in records:
        measured = record.measurement
        if measured is None or not measured.step_seconds or record.request is None:
            continue
        label = f"launch {record.request.launch}"
        milliseconds = [1e3 * seconds for seconds in measured.step_seconds]
        places = _spread(len(milliseconds))
        lines.append(Line(label, tuple(Point(place + 1, milliseconds[place]) for place in places)))
        shown = " ".join(f"{step_ms:.4g}" for step_ms in milliseconds[:MOST_STEPS])
        omitted = len(milliseconds) - MOST_STEPS
        data.append((label, f"{shown} and {omitted} more in the record" if omitted > 0 else shown))
    if not lines:
        return None
    middle = statistics.median(point.y for line in lines for point in line.points)
    longest = max(point.y for line in lines for point in line.points)
    return Figure(
        title="Step times",
        description=f"Median {middle:.3g} ms, longest {longest:.3g} ms.",
        x="timed step",
        y="ms",
        headers=("launch", "milliseconds of each timed step"),
        data=tuple(data),
        lines=tuple(lines[:MOST_LINES]),
    )


def _spread(count: int) -> list[int]:
    """Return the indices of at most MOST_STEPS steps, evenly spread over all steps."""
    step_count = min(count, MOST_STEPS)
    return [place * count // step_count for place in range(step_count)]


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.fmean(numbers) if numbers else None


def _number(value: float) -> str:
    return tables.format_number(value, 4)


def _interval_text(point: Point | Bar) -> str:
    if point.low is None or point.high is None:
        return "–"
    return f"{_number(point.low)} – {_number(point.high)}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
