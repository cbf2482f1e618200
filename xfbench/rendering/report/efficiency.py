"""Plots of efficiency and of speed-up by number of ranks.

A published or imported number is drawn with the measured lines only if these conditions hold:

- The source states the number of ranks.
- The number is a speed-up, or an efficiency under the scaling law of the table.

Nothing is computed from such a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from xfbench.analysis.leaderboard import Row, Table
from xfbench.model.record import Record
from xfbench.rendering import external_figures
from xfbench.rendering.report.figures import (
    MOST_LINES,
    MOST_NAMED,
    Figure,
    Line,
    Mark,
    Point,
    group_rows_into_scaling_curves,
    row_name,
)

# Published numbers on more than so many times the measured ranks would squeeze what was measured.
_FARTHEST_MARK = 8


def build_efficiency_figures(table: Table, external_records: Iterable[Record]) -> list[Figure]:
    """Return the table's efficiency figure and its speed-up figure, if they can be drawn.

    The efficiency figure is drawn if both conditions hold:

    - The table has a scaling law (strong, weak or per-node).
    - At least two rows that have an efficiency differ only in ranks.

    The speed-up figure is drawn if two more conditions hold:

    - A line of the efficiency figure starts at one rank.
    - `external_records` has a speed-up of the table's network.
    """
    lines = _build_efficiency_lines(
        [row for row in (*table.rows, *table.unranked) if row.efficiency]
    )
    if not table.scaling or not lines:
        return []
    most_ranks = max(point.x for line in lines for point in line.points)
    published = [
        record
        for record in external_figures.distinct_external_figures(external_records)
        if _is_drawable(record, table.workload, _FARTHEST_MARK * most_ranks)
    ]
    scaling_figures = [
        _build_efficiency_figure(
            table.scaling,
            lines,
            [
                _build_mark(record)
                for record in published
                if _is_efficiency_of(record, table.scaling)
            ],
        )
    ]
    marks = [
        _build_mark(record) for record in published if _unqualified_quantity(record) == "speed-up"
    ]
    from_one_rank = [line for line in lines if line.points[0].x == 1]
    return (
        [*scaling_figures, _build_speed_up_figure(from_one_rank, marks)]
        if marks and from_one_rank
        else scaling_figures
    )


def _build_efficiency_lines(rows: Sequence[Row]) -> list[Line]:
    """Return one line of efficiency by number of ranks for each group of rows.

    Rows of a group differ only in ranks. The line whose last point is highest is first.
    """
    lines = [
        Line(
            row_name(group[-1], omitted_parts=("ranks",)),
            tuple(map(_build_efficiency_point, group)),
        )
        for group in group_rows_into_scaling_curves(rows)
    ]
    return sorted(lines, key=lambda line: -line.points[-1].y)


def _build_efficiency_point(row: Row) -> Point:
    interval = row.efficiency
    assert interval is not None
    return Point(row.ranks, interval.value, interval.low, interval.high)


def _build_efficiency_figure(
    law: str, lines: Sequence[Line], percent_marks: Sequence[Mark]
) -> Figure:
    percent_marks = [_scale_mark(mark, 0.01) for mark in percent_marks]
    x_limits = _x_range(lines, percent_marks)
    ideal = Line("ideal", tuple(Point(x, 1.0) for x in x_limits), ideal=True)
    return _build_figure(
        f"Efficiency of {law} scaling",
        "Throughput per rank relative to the fewest ranks",
        "efficiency",
        [*lines[:MOST_LINES], ideal],
        lines,
        percent_marks,
        _format_percent,
    )


def _build_speed_up_figure(efficiency_lines: Sequence[Line], marks: Sequence[Mark]) -> Figure:
    speed_ups = [
        Line(line.name, tuple(_scale_point(point, point.x) for point in line.points))
        for line in efficiency_lines
    ]
    x_limits = _x_range(speed_ups, marks)
    ideal = Line("ideal", tuple(Point(x, x) for x in x_limits), ideal=True)
    return _build_figure(
        "Speed-up",
        "Throughput relative to one rank",
        "times",
        [*speed_ups[:MOST_LINES], ideal],
        speed_ups,
        marks,
        lambda value: f"{value:.3g}",
    )


def _build_figure(
    title: str,
    summary: str,
    y_label: str,
    drawn_lines: Sequence[Line],
    measured_lines: Sequence[Line],
    marks: Sequence[Mark],
    format_value: Callable[[float], str],
) -> Figure:
    sentences = [
        f"{line.name}: " + ", ".join(f"{format_value(p.y)} at {p.x:g}" for p in line.points)
        for line in measured_lines[:MOST_NAMED]
    ]
    sentences += [f"Not measured here: {mark.name} at {mark.x:g}" for mark in marks[:MOST_NAMED]]
    line_rows = [
        (line.name, f"{point.x:g}", format_value(point.y), _format_range(point, format_value))
        for line in measured_lines
        for point in line.points
    ]
    mark_rows = [(mark.name, f"{mark.x:g}", mark.printed, "–") for mark in marks]
    x_values = {point.x for line in drawn_lines for point in line.points} | {
        mark.x for mark in marks
    }
    is_truncated = len(measured_lines) > MOST_LINES
    return Figure(
        title=title,
        description=f"{summary}. {'; '.join(sentences)}.",
        x="ranks",
        y=y_label,
        headers=("configuration", "ranks", y_label, "95 % interval"),
        data=(*line_rows, *mark_rows),
        lines=tuple(drawn_lines),
        marks=tuple(marks),
        at=tuple(sorted(x_values)),
        percent=y_label == "efficiency",
        note=f"Shows {MOST_LINES} of {len(measured_lines)}; the data table has all."
        if is_truncated
        else "",
    )


def _is_drawable(record: Record, network: str, max_ranks: float) -> bool:
    """Return whether the record's published or imported number can be drawn on the axes.

    All these conditions must hold:

    - The number is about this network. An efficiency may also be about no single network.
    - The number of ranks is known, and at most `max_ranks`.
    - The record states a value, or both ends of a range.
    - The unit is "%" for an efficiency and "times" for a speed-up.
    - All numbers are plausible.
    """
    figure = record.figure
    if figure is None or figure.about is None or figure.about.ranks is None:
        return False
    numbers = [number for number in (figure.value, figure.low, figure.high) if number is not None]
    has_value_or_range = figure.value is not None or len(numbers) == 2
    units = {"efficiency": "%", "speed-up": "times"}
    has_right_unit = units.get(_unqualified_quantity(record)) == figure.unit
    is_plausible = all(0 < number < 1e6 for number in numbers)
    is_near = figure.about.ranks <= max_ranks
    # An efficiency that is about no single network is still comparable. Such a speed-up is not.
    workloads = (network, None) if _unqualified_quantity(record) == "efficiency" else (network,)
    return (
        has_value_or_range
        and has_right_unit
        and is_plausible
        and is_near
        and external_figures.single_network_of_figure(record) in workloads
    )


def _is_efficiency_of(record: Record, law: str) -> bool:
    about = record.figure.about if record.figure else None
    return (
        _unqualified_quantity(record) == "efficiency" and about is not None and about.scaling == law
    )


def _unqualified_quantity(record: Record) -> str:
    """Return the quantity of the record's figure up to its first comma; "" without a figure.

    For "speed-up, about", return "speed-up".
    """
    return record.figure.quantity.partition(",")[0] if record.figure else ""


def _build_mark(record: Record) -> Mark:
    figure = record.figure
    assert figure is not None and figure.about is not None and figure.about.ranks is not None
    text = external_figures.describe_figure(record)
    about = figure.about.model_copy(update={"ranks": None, "scaling": None})
    subject = (
        f", {words}" if (words := external_figures.describe_setup_without_network(about)) else ""
    )
    reference = f", relative to {figure.relative_to}" if figure.relative_to else ""
    return Mark(
        name=f"{text.key}{subject}: {figure.quantity} {text.figure} ({record.source}{reference})",
        printed=text.figure,
        x=figure.about.ranks,
        y=figure.value,
        low=figure.low,
        high=figure.high,
    )


def _scale_mark(mark: Mark, factor: float) -> Mark:
    y, low, high = (None if v is None else v * factor for v in (mark.y, mark.low, mark.high))
    return Mark(mark.name, mark.printed, mark.x, y, low, high)


def _scale_point(point: Point, factor: float) -> Point:
    low, high = (None if bound is None else bound * factor for bound in (point.low, point.high))
    return Point(point.x, point.y * factor, low, high)


def _x_range(lines: Sequence[Line], marks: Sequence[Mark]) -> tuple[float, float]:
    x_values = [point.x for line in lines for point in line.points] + [mark.x for mark in marks]
    return min(x_values), max(x_values)


def _format_percent(fraction: float) -> str:
    return f"{fraction:.1%}"


def _format_range(point: Point, format_value: Callable[[float], str]) -> str:
    if point.low is None or point.high is None:
        return "–"
    return f"{format_value(point.low)} – {format_value(point.high)}"
