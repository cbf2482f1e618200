"""Draws figures as SVG that a screen reader can read: a title, a description, text as text.

Colours and fonts are the page's style sheet's. Lines differ in colour, dashes and markers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from xml.etree import ElementTree as ET

from markupsafe import Markup

from xfbench.base.terminal_text import make_legible
from xfbench.report.figures import Figure, Line, Mark, Point

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 22, 40
BAR, GAP = 10, 36
# Around (0, 0), one for each line in turn.
_MARKERS = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "M-3-3h6v6h-6z",
    "M0-4.4l4.4 4.4l-4.4 4.4l-4.4-4.4z",
    "M0-4l4 7h-8z",
    "M0 4l4-7h-8z",
    "M-4-1.4h2.6v-2.6h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6z",
)
# Open ones, for what was not measured here.
_OPEN_MARKERS = (
    "M-4.5 0L0-4.5L4.5 0L0 4.5z",
    "M-4-4h8v8h-8z",
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "M0-5l5 8.5h-10z",
)
STYLES = 8

Scale = Callable[[float], float]


def draw(figure: Figure, name: str) -> Markup:
    """The figure as an `svg` element whose ids begin with `name`."""
    height = HEIGHT if figure.lines else len(figure.bars) * GAP + TOP + BOTTOM - 8
    root = ET.Element(
        "svg",
        {
            "viewBox": f"0 0 {WIDTH} {height}",
            "role": "img",
            "aria-labelledby": f"{name}-t {name}-d",
        },
    )
    ET.SubElement(root, "title", {"id": f"{name}-t"}).text = make_legible(figure.title)
    ET.SubElement(root, "desc", {"id": f"{name}-d"}).text = make_legible(figure.description, 2000)
    if figure.lines:
        _draw_lines(root, figure)
    else:
        _draw_bars(root, figure, height)
    return Markup(ET.tostring(root, encoding="unicode"))


def swatch(place: int) -> Markup:
    """A line's colour, dashes and marker, for a legend."""
    root = ET.Element(
        "svg", {"viewBox": "0 0 28 10", "class": f"swatch s{place % STYLES}", "aria-hidden": "true"}
    )
    _path(root, "M1 5H27", "line")
    _path(root, _MARKERS[place % len(_MARKERS)], "mark", transform="translate(14 5)")
    return Markup(ET.tostring(root, encoding="unicode"))


def other_swatch(place: int) -> Markup:
    """The marker of what was not measured here, for a legend."""
    root = ET.Element("svg", {"viewBox": "0 0 28 10", "class": "swatch", "aria-hidden": "true"})
    _path(root, _OPEN_MARKERS[place % len(_OPEN_MARKERS)], "other", transform="translate(14 5)")
    return Markup(ET.tostring(root, encoding="unicode"))


def legend(figure: Figure) -> list[tuple[Markup, str]]:
    """A swatch and a name for each line but the ideal ones, and for each mark."""
    own = [line for line in figure.lines if not line.ideal]
    lines = [(swatch(place), line.name) for place, line in enumerate(own)]
    return lines + [(other_swatch(place), mark.name) for place, mark in enumerate(figure.marks)]


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between `low` and `high`, at most so many steps apart."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * n for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _draw_lines(root: ET.Element, figure: Figure) -> None:
    points = [point for line in figure.lines for point in line.points]
    points += [_as_point(mark) for mark in figure.marks]
    top = max(point.high or point.y for point in points)
    # An interval that reaches far beyond all values would press them to the ground.
    top = min(top, 2.5 * max(point.y for point in points)) or 1.0
    low = 0.0 if figure.from_zero else min(point.y for point in points)
    if not figure.from_zero:
        margin = (top - low) / 10 or 0.01
        low, top = low - margin, min(top + margin, 1.0) if figure.percent else top + margin
    y = _scale(low, top, HEIGHT - BOTTOM, TOP)
    first, last = min(p.x for p in points), max(p.x for p in points)
    doubling = bool(figure.at) and first > 0 and last / first > 8
    x = _along(first, last, doubling)
    marks = ticks(low, top)
    if figure.percent and len(marks) > 1:
        digits = max(0, -math.floor(math.log10((marks[1] - marks[0]) * 100) + 1e-9))
        of_y = [f"{tick:.{digits}%}" for tick in marks]
    else:
        of_y = [_short(tick) for tick in marks]
    for tick, text in zip(marks, of_y, strict=True):
        _path(root, f"M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}", "grid")
        _text(root, LEFT - 6, y(tick) + 4, text, "end")
    for tick in figure.at or ticks(first, last, 6):
        _text(root, x(tick), HEIGHT - BOTTOM + 17, _short(tick), "middle")
    _text(root, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, figure.x, "middle", "name")
    _text(root, 2, 12, figure.y, "start", "name")
    place, count = -1, sum(not line.ideal for line in figure.lines)
    for line in figure.lines:
        place += not line.ideal
        group = ET.SubElement(root, "g", {"class": f"s{place % STYLES}"})
        _draw_line(group, line, x, y, place, plain=not figure.at and figure.from_zero)
        # Beside one another, so that none hides another's interval.
        if figure.at:
            group.set("transform", f"translate({4 * (place - (count - 1) / 2):g} 0)")
    for number, mark in enumerate(figure.marks):
        _draw_mark(root, mark, x, y, number)


def _as_point(mark: Mark) -> Point:
    known = [one for one in (mark.y, mark.low, mark.high) if one is not None]
    return Point(mark.x, known[0], mark.low, mark.high)


def _draw_mark(root: ET.Element, mark: Mark, x: Scale, y: Scale, number: int) -> None:
    """A value or the ends of a range, open, so that it is not taken for a measured one."""
    if mark.low is not None and mark.high is not None:
        low, high = _inside(y(mark.low)), _inside(y(mark.high))
        _path(root, f"M{x(mark.x):.1f} {low:.1f}V{high:.1f}", "other")
    ends = [mark.low, mark.high] if mark.y is None else [mark.y]
    for end in ends:
        if end is not None:
            at = f"translate({x(mark.x):.1f} {_inside(y(end)):.1f})"
            _path(root, _OPEN_MARKERS[number % len(_OPEN_MARKERS)], "other", transform=at)


def _draw_line(
    group: ET.Element, line: Line, x: Scale, y: Scale, place: int, *, plain: bool
) -> None:
    course = "M" + "L".join(f"{x(p.x):.0f} {_inside(y(p.y)):.1f}" for p in line.points)
    _path(group, course, "ideal" if line.ideal else "line")
    if line.ideal or plain:
        return
    for point in line.points:
        if point.low is not None and point.high is not None:
            low, high = _inside(y(point.low)), _inside(y(point.high))
            _path(group, f"M{x(point.x):.1f} {low:.1f}V{high:.1f}", "range")
    marker = _MARKERS[place % len(_MARKERS)]
    for point in line.points:
        at = f"translate({x(point.x):.1f} {_inside(y(point.y)):.1f})"
        _path(group, marker, "mark", transform=at)


def _inside(height: float) -> float:
    return min(max(height, TOP - 6.0), float(HEIGHT - BOTTOM))


def _along(first: float, last: float, doubling: bool) -> Scale:
    """The x axis; by doublings where values lie far apart."""
    if first == last:
        return lambda _: (LEFT + WIDTH - RIGHT) / 2
    if doubling:
        inner = _scale(math.log2(first), math.log2(last), LEFT + 12, WIDTH - RIGHT - 12)
        return lambda value: inner(math.log2(value))
    return _scale(first, last, LEFT + 12, WIDTH - RIGHT - 12)


def _draw_bars(root: ET.Element, figure: Figure, height: float) -> None:
    best = max(bar.value for bar in figure.bars)
    top = max([best, *(min(bar.high or 0.0, 2 * best) for bar in figure.bars)]) or 1.0
    top = max(top, figure.limit[0] * 1.02) if figure.limit else top
    x, floor = _scale(0, top, 2, WIDTH - RIGHT - 60), height - BOTTOM + 8
    for tick in ticks(0, top):
        text = f"{tick:.0%}" if figure.percent else _short(tick)
        _path(root, f"M{x(tick):.1f} {TOP - 14}V{floor}", "grid")
        _text(root, x(tick), floor + 15, text, "start" if tick == 0 else "middle")
    _text(root, WIDTH - 2, height - 3, figure.y, "end", "name")
    for place, bar in enumerate(figure.bars):
        y = TOP + place * GAP
        _text(root, 4, y, bar.name, "start", "bar-name")
        group = ET.SubElement(root, "g", {"class": "s0"})
        _path(group, f"M{x(0):.1f} {y + 6}H{x(min(bar.value, top)):.1f}v{BAR}H{x(0):.1f}z", "bar")
        end = x(min(bar.value, top))
        if bar.low is not None and bar.high is not None:
            low, high = (x(min(max(one, 0.0), top)) for one in (bar.low, bar.high))
            _path(group, f"M{low:.1f} {y + 6 + BAR / 2}H{high:.1f}", "range")
            end = max(end, high)
        text = f"{bar.value:.0%}" if figure.percent else _short(bar.value)
        _text(root, end + 6, y + 6 + BAR - 1, text, "start", "value")
    if figure.limit:
        _path(root, f"M{x(figure.limit[0]):.1f} {TOP - 14}V{floor}", "limit")


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (value - low) / ((high - low) or 1.0) * (end - start)


def _short(value: float) -> str:
    """A number of an axis: no more digits than one can read off."""
    if abs(value) >= 1e6 or 0 < abs(value) < 1e-3:
        return f"{value:.2g}"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def _path(parent: ET.Element, course: str, kind: str, **more: str) -> None:
    ET.SubElement(parent, "path", {"d": course, "class": kind, **more})


def _text(parent: ET.Element, x: float, y: float, text: str, anchor: str, kind: str = "") -> None:
    attributes = {"x": f"{x:.1f}", "y": f"{y:.1f}"}
    attributes |= {"text-anchor": anchor} if anchor != "start" else {}
    attributes |= {"class": kind} if kind else {}
    ET.SubElement(parent, "text", attributes).text = make_legible(text, 64)


def interval_bar(value: float, low: float | None, high: float | None, most: float) -> Markup:
    """A throughput on a scale that ends at `most`, for beside its number."""
    end = _scale(0, most, 0, 100)
    course = f'<path class="bar" d="M0 2H{min(end(value), 100):.1f}v6H0z"/>'
    if low is not None and high is not None:
        ends = (min(max(end(one), 0), 100) for one in (low, high))
        first, last = (f"{one:.1f}" for one in ends)
        course += f'<path class="range" d="M{first} 5H{last}M{first} 2v6M{last} 2v6"/>'
    head = '<svg class="iv" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
    return Markup(f"{head}{course}</svg>")
