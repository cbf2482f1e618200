"""A finding as the report's figures: measured values, and published ones beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from xfbench.layout.beside import describe_subject, format_figure
from xfbench.records.elsewhere import About, Citation, Figure
from xfbench.report import figures
from xfbench.report.figures import MOST_BARS, MOST_LINES, Bar, Line, Mark, Point
from xfbench.studies.finding import Finding, Value
from xfbench.studies.wording import ends, number

Quoted = tuple[Citation, Figure]
_OF_ABOUT = {"batch size": ("global_batch_size", "batch_size_per_rank"), "format": ("data_format",)}


def drawn(finding: Finding, published: Sequence[Quoted]) -> list[figures.Figure]:
    """What there is to draw of it: values where they have any, and curves."""
    beside = [one for one in published if _belongs(one, finding)]
    known = [one for one in finding.values if one.interval]
    made = []
    if known and finding.plot == "lines" and len({one.x for one in known}) > 1:
        made.append(_lines(finding, known, beside))
    elif known and finding.plot != "none":
        made.append(_bars(finding, known, beside))
    if finding.curves:
        made.append(_curves(finding))
    return made


def _belongs(one: Quoted, finding: Finding) -> bool:
    _, figure = one
    named = bool(finding.beside) and figure.quantity.startswith(finding.beside)
    return named and figure.unit == finding.unit


def about(figure: Figure) -> str:
    """What it is of: its network first, then the rest in words."""
    of = figure.about or About()
    return " · ".join(filter(None, (of.workload, describe_subject(of))))


def _scaled(value: float, finding: Finding) -> float:
    """Percentages as they are kept here: parts of one."""
    return value / 100 if finding.unit == "%" else value


def _bars(finding: Finding, known: Sequence[Value], beside: Sequence[Quoted]) -> figures.Figure:
    bars = []
    for one in known:
        assert one.interval
        name = " · ".join(filter(None, (one.name, one.at)))
        bars.append(Bar(name, one.interval.value, one.interval.low, one.interval.high))
    for citation, figure in beside:
        # A range has no value of its own: its ends are drawn, each as what it is.
        for printed, end in ((figure.value, ""), (figure.low, ", least"), (figure.high, ", most")):
            if printed is not None:
                name = f"published ({citation.key}{end}): {about(figure)}"
                bars.append(Bar(name, _scaled(printed, finding)))
    return _figure(finding, known, beside, bars=tuple(bars[:MOST_BARS]))


def _lines(finding: Finding, known: Sequence[Value], beside: Sequence[Quoted]) -> figures.Figure:
    lines: dict[str, list[Point]] = defaultdict(list)
    for one in known:
        assert one.interval and one.x is not None
        i = one.interval
        lines[one.name].append(Point(one.x, i.value, i.low, i.high))
    marks = [
        _mark(one, x, finding) for one in beside if (x := _place(one[1], finding.over)) is not None
    ]
    drawn = [
        Line(name, tuple(sorted(points, key=lambda point: point.x)))
        for name, points in lines.items()
    ]
    places = {point.x for line in drawn for point in line.points} | {mark.x for mark in marks}
    made = _figure(finding, known, beside, lines=tuple(drawn[:MOST_LINES]), x=finding.over)
    return replace(made, marks=tuple(marks), at=tuple(sorted(places)))


def _mark(one: Quoted, x: float, finding: Finding) -> Mark:
    citation, figure = one
    y, low, high = (
        None if end is None else _scaled(end, finding)
        for end in (figure.value, figure.low, figure.high)
    )
    name = f"published ({citation.key}): {about(figure)}"
    return Mark(name, format_figure(figure), x, y, low, high)


def _place(figure: Figure, over: str) -> float | None:
    for name in _OF_ABOUT.get(over, (over,)):
        value = getattr(figure.about, name, None)
        if isinstance(value, int):
            return float(value)
    return None


def _curves(finding: Finding) -> figures.Figure:
    lines = [
        Line(one.name, tuple(Point(*point) for point in sorted(one.points)))
        for one in finding.curves
    ]
    told = "; ".join(
        f"{line.name}: {line.points[0].y:.3g} at {line.points[0].x:.3g}" for line in lines
    )
    return figures.Figure(
        title=f"{finding.title}, by {finding.x_title}",
        description=f"By {finding.x_title}. {told}.",
        x=finding.x_title,
        y=finding.unit,
        headers=("configuration", finding.x_title, finding.unit, "95 % interval"),
        data=tuple(
            (
                line.name,
                f"{p.x:.4g}",
                f"{p.y:.4g}",
                "–" if p.low is None else f"{p.low:.4g} – {p.high:.4g}",
            )
            for line in lines
            for p in line.points
        ),
        lines=tuple(lines[:MOST_LINES]),
        from_zero=False,
    )


def _figure(
    finding: Finding,
    known: Sequence[Value],
    beside: Sequence[Quoted],
    *,
    bars: tuple[Bar, ...] = (),
    lines: tuple[Line, ...] = (),
    x: str = "",
) -> figures.Figure:
    data = [
        (
            " · ".join(filter(None, (one.name, one.at))),
            number(one.interval.value, finding.unit),
            ends(one.interval, finding.unit),
        )
        for one in known
        if one.interval
    ]
    data += [(f"{c.key}: {about(f)}", format_figure(f), "as printed") for c, f in beside]
    return figures.Figure(
        title=finding.title,
        description=finding.sentence,
        y=finding.unit,
        headers=("configuration", finding.unit, "95 % interval"),
        data=tuple(data),
        lines=lines,
        bars=bars,
        x=x,
        percent=finding.unit == "%",
    )
