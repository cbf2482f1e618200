"""Efficiency and speed-up over ranks, with what others published of the same drawn beside it.

Of others only what was printed is drawn, where it was printed of a number of ranks: an
efficiency under the law it is of, a speed-up over one rank. Nothing is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from xfbench.analysis.leaderboard import Row, Table
from xfbench.layout import external_figures
from xfbench.records.record import Record
from xfbench.report.figures import (
    MOST_LINES,
    MOST_NAMED,
    Figure,
    Line,
    Mark,
    Point,
    name,
    over_ranks,
)


def figures(table: Table, elsewhere: Iterable[Record]) -> list[Figure]:
    """Those of a table under a law: efficiency, and speed-up where others printed one."""
    lines = _lines([row for row in (*table.rows, *table.unranked) if row.efficiency])
    if not table.scaling or not lines:
        return []
    printed = [
        one for one in external_figures.external_figures(elsewhere) if _is_of(one, table.workload)
    ]
    made = [_efficiency(table.scaling, lines, [_mark(o) for o in printed if _is(o, table.scaling)])]
    marks = [_mark(one) for one in printed if _quantity(one) == "speed-up"]
    alone = [line for line in lines if line.points[0].x == 1]
    return [*made, _speed_up(alone, marks)] if marks and alone else made


def _lines(rows: Sequence[Row]) -> list[Line]:
    """Efficiency over ranks, a line for what differs in ranks alone; the best first."""
    lines = [
        Line(name(group[-1], without=("ranks",)), tuple(map(_point, group)))
        for group in over_ranks(rows)
    ]
    return sorted(lines, key=lambda line: -line.points[-1].y)


def _point(row: Row) -> Point:
    interval = row.efficiency
    assert interval is not None
    return Point(row.ranks, interval.value, interval.low, interval.high)


def _efficiency(law: str, lines: Sequence[Line], marks: Sequence[Mark]) -> Figure:
    marks = [_scaled(mark, 0.01) for mark in marks]
    ends = _x_range(lines, marks)
    perfect = Line("ideal", tuple(Point(x, 1.0) for x in ends), ideal=True)
    return _figure(
        f"Efficiency of {law} scaling",
        "Throughput per rank, relative to that on the fewest ranks",
        "efficiency",
        [*lines[:MOST_LINES], perfect],
        lines,
        marks,
        _percent,
    )


def _speed_up(lines: Sequence[Line], marks: Sequence[Mark]) -> Figure:
    own = [
        Line(line.name, tuple(_times(point, point.x) for point in line.points)) for line in lines
    ]
    ends = _x_range(own, marks)
    perfect = Line("ideal", tuple(Point(x, x) for x in ends), ideal=True)
    return _figure(
        "Speed-up",
        "Throughput relative to that on one rank",
        "times",
        [*own[:MOST_LINES], perfect],
        own,
        marks,
        lambda value: f"{value:.3g}",
    )


def _figure(
    title: str,
    says: str,
    y: str,
    drawn: Sequence[Line],
    lines: Sequence[Line],
    marks: Sequence[Mark],
    text: Callable[[float], str],
) -> Figure:
    sentences = [
        f"{line.name}: " + ", ".join(f"{text(p.y)} at {p.x:g}" for p in line.points)
        for line in lines[:MOST_NAMED]
    ]
    sentences += [f"Not measured here: {mark.name}, at {mark.x:g}" for mark in marks[:MOST_NAMED]]
    own = [
        (line.name, f"{point.x:g}", text(point.y), _range(point, text))
        for line in lines
        for point in line.points
    ]
    mark_rows = [(mark.name, f"{mark.x:g}", mark.printed, "–") for mark in marks]
    places = {point.x for line in drawn for point in line.points} | {mark.x for mark in marks}
    more = len(lines) > MOST_LINES
    return Figure(
        title=title,
        description=f"{says}. {'; '.join(sentences)}.",
        x="ranks",
        y=y,
        headers=("configuration", "ranks", y, "95 % interval"),
        data=(*own, *mark_rows),
        lines=tuple(drawn),
        marks=tuple(marks),
        at=tuple(sorted(places)),
        percent=y == "efficiency",
        note=f"Drawn are {MOST_LINES} of {len(lines)}; all are in the data." if more else "",
    )


def _is_of(record: Record, network: str) -> bool:
    """Whether its figure can stand on these axes: of the network or of none, on known ranks."""
    figure = record.figure
    if figure is None or figure.about is None or figure.about.ranks is None:
        return False
    numbers = [one for one in (figure.value, figure.low, figure.high) if one is not None]
    whole = figure.value is not None or len(numbers) == 2
    units = {"efficiency": "%", "speed-up": "times"}
    unit = units.get(_quantity(record)) == figure.unit
    sane = all(0 < one < 1e6 for one in numbers) and figure.about.ranks < 1e7
    # Of no network in particular an efficiency says something; a speed-up is of a network.
    about = (network, None) if _quantity(record) == "efficiency" else (network,)
    return whole and unit and sane and external_figures.figure_workload(record) in about


def _is(record: Record, law: str) -> bool:
    about = record.figure.about if record.figure else None
    return _quantity(record) == "efficiency" and about is not None and about.scaling == law


def _quantity(record: Record) -> str:
    """Its name, without how it was told."""
    return record.figure.quantity.partition(",")[0] if record.figure else ""


def _mark(record: Record) -> Mark:
    figure = record.figure
    assert figure is not None and figure.about is not None and figure.about.ranks is not None
    said = external_figures.describe_figure(record)
    about = figure.about.model_copy(update={"ranks": None, "scaling": None})
    where = f", {words}" if (words := external_figures.describe_subject(about)) else ""
    against = f", relative to {figure.relative_to}" if figure.relative_to else ""
    return Mark(
        name=f"{said.key}{where}: {figure.quantity} {said.figure} ({record.source}{against})",
        printed=said.figure,
        x=figure.about.ranks,
        y=figure.value,
        low=figure.low,
        high=figure.high,
    )


def _scaled(mark: Mark, factor: float) -> Mark:
    y, low, high = (None if v is None else v * factor for v in (mark.y, mark.low, mark.high))
    return Mark(mark.name, mark.printed, mark.x, y, low, high)


def _times(point: Point, factor: float) -> Point:
    low, high = (None if end is None else end * factor for end in (point.low, point.high))
    return Point(point.x, point.y * factor, low, high)


def _x_range(lines: Sequence[Line], marks: Sequence[Mark]) -> tuple[float, float]:
    places = [point.x for line in lines for point in line.points] + [mark.x for mark in marks]
    return min(places), max(places)


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _range(point: Point, text: Callable[[float], str]) -> str:
    if point.low is None or point.high is None:
        return "–"
    return f"{text(point.low)} – {text(point.high)}"
