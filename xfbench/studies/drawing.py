"""Drawing of a finding as plots of the report, with measured and published values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from xfbench.model.external_record import About, Citation, Figure
from xfbench.rendering.external_figures import describe_setup_without_network, format_figure
from xfbench.rendering.report import figures
from xfbench.rendering.report.figures import MOST_BARS, MOST_LINES, Bar, Line, Mark, Point
from xfbench.studies.finding import Finding, Value
from xfbench.studies.wording import format_bounds_without_unit, format_number_without_unit

CitedFigure = tuple[Citation, Figure]
_ABOUT_FIELDS = {
    "batch size": ("global_batch_size", "batch_size_per_rank"),
    "format": ("data_format",),
}


def draw_figures(finding: Finding, published: Sequence[CitedFigure]) -> list[figures.Figure]:
    """Return the plots of a finding: first a plot of its values, then a plot of its curves.

    A plot without data is left out. The plot of the values also shows a published value if two
    conditions hold: it has the unit of the finding, and the name of its quantity starts with
    `finding.beside`.
    """
    cited = [cited_figure for cited_figure in published if _is_shown_with(cited_figure, finding)]
    measured = [measured_value for measured_value in finding.values if measured_value.interval]
    charts = []
    if (
        measured
        and finding.plot == "lines"
        and len({measured_value.x for measured_value in measured}) > 1
    ):
        charts.append(_draw_lines(finding, measured, cited))
    elif measured and finding.plot != "none":
        charts.append(_draw_measured_and_cited_bars(finding, measured, cited))
    if finding.curves:
        charts.append(_draw_curves(finding))
    return charts


def _is_shown_with(cited_figure: CitedFigure, finding: Finding) -> bool:
    _, figure = cited_figure
    named = bool(finding.beside) and figure.quantity.startswith(finding.beside)
    return named and figure.unit == finding.unit


def figure_subject(figure: Figure) -> str:
    """Return what a published value describes, in words. The workload comes first."""
    subject = figure.about or About()
    return " · ".join(filter(None, (subject.workload, describe_setup_without_network(subject))))


def _published_value_in_finding_unit(published_value: float, finding: Finding) -> float:
    """Return a published value in the unit of the finding. A percentage becomes a fraction."""
    return published_value / 100 if finding.unit == "%" else published_value


def _draw_measured_and_cited_bars(
    finding: Finding, measured: Sequence[Value], cited: Sequence[CitedFigure]
) -> figures.Figure:
    bars = []
    for measured_value in measured:
        assert measured_value.interval
        name = " · ".join(filter(None, (measured_value.name, measured_value.at)))
        bars.append(
            Bar(
                name,
                measured_value.interval.value,
                measured_value.interval.low,
                measured_value.interval.high,
            )
        )
    subjects = Counter((citation.key, figure_subject(figure)) for citation, figure in cited)
    for citation, figure in cited:
        subject = figure_subject(figure)
        if subjects[citation.key, subject] > 1 and figure.relative_to:
            subject = f"{subject}, relative to {figure.relative_to}"
        # A published range has no single value, so both ends are drawn.
        for printed, end in ((figure.value, ""), (figure.low, ", least"), (figure.high, ", most")):
            if printed is not None:
                name = f"published ({citation.key}{end}): {subject}"
                bars.append(Bar(name, _published_value_in_finding_unit(printed, finding)))
    return _build_figure_with_data_table(finding, measured, cited, bars=tuple(bars[:MOST_BARS]))


def _draw_lines(
    finding: Finding, measured: Sequence[Value], cited: Sequence[CitedFigure]
) -> figures.Figure:
    lines: dict[str, list[Point]] = defaultdict(list)
    for measured_value in measured:
        assert measured_value.interval and measured_value.x is not None
        interval = measured_value.interval
        lines[measured_value.name].append(
            Point(measured_value.x, interval.value, interval.low, interval.high)
        )
    marks = [
        _draw_mark(cited_figure, x, finding)
        for cited_figure in cited
        if (x := _x_position(cited_figure[1], finding.over)) is not None
    ]
    drawn_lines = [
        Line(name, tuple(sorted(points, key=lambda point: point.x)))
        for name, points in lines.items()
    ]
    ticks = {point.x for line in drawn_lines for point in line.points} | {mark.x for mark in marks}
    chart = _build_figure_with_data_table(
        finding, measured, cited, lines=tuple(drawn_lines[:MOST_LINES]), x=finding.over
    )
    return replace(chart, marks=tuple(marks), at=tuple(sorted(ticks)))


def _draw_mark(cited_figure: CitedFigure, x: float, finding: Finding) -> Mark:
    citation, figure = cited_figure
    y, low, high = (
        None if end is None else _published_value_in_finding_unit(end, finding)
        for end in (figure.value, figure.low, figure.high)
    )
    name = f"published ({citation.key}): {figure_subject(figure)}"
    return Mark(name, format_figure(figure), x, y, low, high)


def _x_position(figure: Figure, over: str) -> float | None:
    """Return the x position of a published value: its number for the setting `over`.

    Return None if the publication does not state this number.
    """
    for name in _ABOUT_FIELDS.get(over, (over,)):
        value = getattr(figure.about, name, None)
        if isinstance(value, int):
            return float(value)
    return None


def _draw_curves(finding: Finding) -> figures.Figure:
    lines = [
        Line(curve.name, tuple(Point(*point) for point in sorted(curve.points)))
        for curve in finding.curves
    ]
    starts = "; ".join(
        f"{line.name}: {line.points[0].y:.3g} at {line.points[0].x:.3g}" for line in lines
    )
    return figures.Figure(
        title=f"{finding.title}, by {finding.x_title}",
        description=f"By {finding.x_title}. {starts}.",
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


def _build_figure_with_data_table(
    finding: Finding,
    measured: Sequence[Value],
    cited: Sequence[CitedFigure],
    *,
    bars: tuple[Bar, ...] = (),
    lines: tuple[Line, ...] = (),
    x: str = "",
) -> figures.Figure:
    data = [
        (
            " · ".join(filter(None, (measured_value.name, measured_value.at))),
            format_number_without_unit(measured_value.interval.value, finding.unit),
            format_bounds_without_unit(measured_value.interval, finding.unit),
        )
        for measured_value in measured
        if measured_value.interval
    ]
    data += [(f"{c.key}: {figure_subject(f)}", format_figure(f), "as printed") for c, f in cited]
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
