"""Drawing of figures as accessible SVG: a title, a description, and text as text.

The page's style sheet sets colours and fonts. A framework has the same colour in all figures and
tables. Lines also differ in dashes and markers.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable
from xml.etree import ElementTree as ET

from markupsafe import Markup

from xfbench.base.terminal_text import make_legible
from xfbench.rendering.report.figures import Figure, Line, Mark, Point

WIDTH, HEIGHT = 440, 250
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 52, 12, 22, 40
BAR_HEIGHT, BAR_PITCH = 10, 36
NAME_CHARACTERS, NAME_LINE_HEIGHT = 62, 14  # of the name above a bar
# Markers of the lines, which use them in turn. Each marker is drawn around (0, 0).
_MARKERS = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "M-3-3h6v6h-6z",
    "M0-4.4l4.4 4.4l-4.4 4.4l-4.4-4.4z",
    "M0-4l4 7h-8z",
    "M0 4l4-7h-8z",
    "M-4-1.4h2.6v-2.6h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6z",
)
# Hollow markers of published or imported numbers.
_OPEN_MARKERS = (
    "M-4.5 0L0-4.5L4.5 0L0 4.5z",
    "M-4-4h8v8h-8z",
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "M0-5l5 8.5h-10z",
)
STYLE_COUNT = 8  # colours, and dashes of lines
# Those of page.css in light mode, safe for colour-blind readers together with dashes and markers.
COLOURS = ("#0a5ca8", "#b8470b", "#08734d", "#9a2a9c", "#86640a", "#0b6f82", "#56701a", "#b3204f")
_FRAMEWORK_COLOURS = {
    **{"mxnet": 0, "tensorflow": 1, "caffe": 2, "jax": 3, "reference": 4, "ipex": 5},
    "torch": 7,
}
_OTHER_COLOUR = 6

Scale = Callable[[float], float]


def draw_figure(figure: Figure, id_prefix: str) -> Markup:
    """Return the figure as an `svg` element. All ids in it start with `id_prefix`."""
    height = HEIGHT
    if not figure.lines:
        name_lines = sum(len(_wrap_name(bar.name)) - 1 for bar in figure.bars)
        height = len(figure.bars) * BAR_PITCH + name_lines * NAME_LINE_HEIGHT
        height += MARGIN_TOP + MARGIN_BOTTOM - 8
    root = ET.Element(
        "svg",
        {
            "viewBox": f"0 0 {WIDTH} {height}",
            "role": "img",
            "aria-labelledby": f"{id_prefix}-t {id_prefix}-d",
        },
    )
    ET.SubElement(root, "title", {"id": f"{id_prefix}-t"}).text = make_legible(figure.title)
    ET.SubElement(root, "desc", {"id": f"{id_prefix}-d"}).text = make_legible(
        figure.description, 2000
    )
    if figure.lines:
        _draw_axes_lines_and_marks(root, figure)
    else:
        _draw_axis_and_bars(root, figure, height)
    return Markup(ET.tostring(root, encoding="unicode"))


def draw_line_swatch(index: int, name: str, *, has_markers: bool = True) -> Markup:
    """Return a legend's sample of a line: its colour, dashes and marker.

    `index` is the number of the line in its figure, and `name` its name.
    """
    root = ET.Element(
        "svg",
        {
            "viewBox": "0 0 28 10",
            "class": f"swatch {style_classes(name, index)}",
            "aria-hidden": "true",
        },
    )
    _add_path(root, "M1 5H27", "line")
    if has_markers:
        _add_path(root, _MARKERS[index % len(_MARKERS)], "mark", transform="translate(14 5)")
    return Markup(ET.tostring(root, encoding="unicode"))


def style_classes(name: str, index: int = 0) -> str:
    """Return the CSS classes of a line or bar: those of its colour and its dashes.

    - `name`: parts separated by " · ". A framework among them sets the colour.
    - `index`: number of the line, which sets the dashes. Without a framework, it sets the colour.
    """
    return f"s{_colour_number(name, index)} d{index % STYLE_COUNT}"


def colour(name: str, index: int = 0) -> str:
    """Return the colour of a line or bar on a light ground (see `style_classes`)."""
    return COLOURS[_colour_number(name, index)]


def _colour_number(name: str, index: int) -> int:
    framework = next((part for part in name.split(" · ") if part in _FRAMEWORK_COLOURS), None)
    if framework:
        return _FRAMEWORK_COLOURS[framework]
    return index % STYLE_COUNT if index > 0 else _OTHER_COLOUR


def draw_mark_swatch(index: int) -> Markup:
    """Return a legend's sample of mark number `index`: its hollow marker."""
    root = ET.Element("svg", {"viewBox": "0 0 28 10", "class": "swatch", "aria-hidden": "true"})
    _add_path(root, _OPEN_MARKERS[index % len(_OPEN_MARKERS)], "other", transform="translate(14 5)")
    return Markup(ET.tostring(root, encoding="unicode"))


def build_legend(figure: Figure) -> list[tuple[Markup, str]]:
    """Return the legend as pairs of a drawn sample and a name.

    Measured lines are first, then marks. Ideal lines are left out.
    """
    measured_lines = [line for line in figure.lines if not line.ideal]
    entries = [
        (draw_line_swatch(index, line.name, has_markers=figure.has_markers), line.name)
        for index, line in enumerate(measured_lines)
    ]
    return entries + [
        (draw_mark_swatch(index), mark.name) for index, mark in enumerate(figure.marks)
    ]


def round_ticks_within(low: float, high: float, max_steps: int = 5) -> list[float]:
    """Return evenly spaced round numbers from `low` to `high`, with at most `max_steps` steps."""
    if not high > low:
        return [low]
    min_step = (high - low) / max_steps
    magnitude = 10 ** math.floor(math.log10(min_step))
    step = next(
        magnitude * factor
        for factor in (1, 2, 2.5, 5, 10)
        if magnitude * factor >= min_step * 0.999
    )
    first = math.ceil(low / step - 1e-9)
    return [step * n for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _draw_axes_lines_and_marks(root: ET.Element, figure: Figure) -> None:
    points = [point for line in figure.lines for point in line.points]
    points += [_mark_to_point(mark) for mark in figure.marks]
    top = max(point.high or point.y for point in points)
    # An interval far beyond all values would flatten the lines.
    top = min(top, 2.5 * max(point.y for point in points)) or 1.0
    low = 0.0 if figure.from_zero else min(point.y for point in points)
    if not figure.from_zero:
        margin = (top - low) / 10 or 0.01
        low, top = low - margin, min(top + margin, 1.0) if figure.percent else top + margin
    y = _build_scale(low, top, HEIGHT - MARGIN_BOTTOM, MARGIN_TOP)
    first, last = min(p.x for p in points), max(p.x for p in points)
    x = _build_x_scale(first, last, figure.is_x_logarithmic)
    y_ticks = round_ticks_within(low, top)
    if figure.percent and len(y_ticks) > 1:
        digits = max(0, -math.floor(math.log10((y_ticks[1] - y_ticks[0]) * 100) + 1e-9))
        labels = [f"{tick:.{digits}%}" for tick in y_ticks]
    else:
        labels = [_format_tick(tick) for tick in y_ticks]
    for tick, text in zip(y_ticks, labels, strict=True):
        _add_path(root, f"M{MARGIN_LEFT} {y(tick):.1f}H{WIDTH - MARGIN_RIGHT}", "grid")
        _add_text(root, MARGIN_LEFT - 6, y(tick) + 4, text, "end")
    for tick in figure.ticks if figure.at else round_ticks_within(first, last, 6):
        _add_text(root, x(tick), HEIGHT - MARGIN_BOTTOM + 17, _format_tick(tick), "middle")
    _add_text(
        root, (MARGIN_LEFT + WIDTH - MARGIN_RIGHT) / 2, HEIGHT - 5, figure.x, "middle", "name"
    )
    _add_text(root, 2, 12, figure.y, "start", "name")
    index, count = -1, sum(not line.ideal for line in figure.lines)
    for line in figure.lines:
        index += not line.ideal
        group = ET.SubElement(root, "g", {"class": style_classes(line.name, index)})
        _draw_line(group, line, x, y, index, has_markers=figure.has_markers)
        # Shift points sideways, so that no interval hides another.
        if figure.at:
            group.set("transform", f"translate({4 * (index - (count - 1) / 2):g} 0)")
    for number, mark in enumerate(figure.marks):
        _draw_mark(root, mark, x, y, number)


def _mark_to_point(mark: Mark) -> Point:
    values = [value for value in (mark.y, mark.low, mark.high) if value is not None]
    return Point(mark.x, values[0], mark.low, mark.high)


def _draw_mark(root: ET.Element, mark: Mark, x: Scale, y: Scale, index: int) -> None:
    """Draw a published or imported number as a hollow marker.

    Measured points have filled markers. If only a range is known, both of its ends have a marker.
    """
    if mark.low is not None and mark.high is not None:
        low, high = _clamp_y(y(mark.low)), _clamp_y(y(mark.high))
        _add_path(root, f"M{x(mark.x):.1f} {low:.1f}V{high:.1f}", "other")
    values = [mark.low, mark.high] if mark.y is None else [mark.y]
    for value in values:
        if value is not None:
            position = f"translate({x(mark.x):.1f} {_clamp_y(y(value)):.1f})"
            _add_path(root, _OPEN_MARKERS[index % len(_OPEN_MARKERS)], "other", transform=position)


def _draw_line(
    group: ET.Element, line: Line, x: Scale, y: Scale, index: int, *, has_markers: bool
) -> None:
    path = "M" + "L".join(f"{x(p.x):.0f} {_clamp_y(y(p.y)):.1f}" for p in line.points)
    _add_path(group, path, "ideal" if line.ideal else "line")
    if line.ideal or not has_markers:
        return
    for point in line.points:
        if point.low is not None and point.high is not None:
            low, high = _clamp_y(y(point.low)), _clamp_y(y(point.high))
            arrow = "m-3 5l3-5l3 5" if high > y(point.high) else ""
            _add_path(group, f"M{x(point.x):.1f} {low:.1f}V{high:.1f}{arrow}", "range")
    marker = _MARKERS[index % len(_MARKERS)]
    for point in line.points:
        position = f"translate({x(point.x):.1f} {_clamp_y(y(point.y)):.1f})"
        _add_path(group, marker, "mark", transform=position)


def _clamp_y(y_position: float) -> float:
    return min(max(y_position, MARGIN_TOP - 6.0), float(HEIGHT - MARGIN_BOTTOM))


def _build_x_scale(first: float, last: float, is_logarithmic: bool) -> Scale:
    """Return the function that maps x values to x positions.

    If `is_logarithmic`, the scale is logarithmic with base 2.
    """
    if first == last:
        return lambda _: (MARGIN_LEFT + WIDTH - MARGIN_RIGHT) / 2
    if is_logarithmic:
        log_scale = _build_scale(
            math.log2(first), math.log2(last), MARGIN_LEFT + 12, WIDTH - MARGIN_RIGHT - 12
        )
        return lambda value: log_scale(math.log2(value))
    return _build_scale(first, last, MARGIN_LEFT + 12, WIDTH - MARGIN_RIGHT - 12)


def _draw_axis_and_bars(root: ET.Element, figure: Figure, height: float) -> None:
    top = figure.bar_end
    x, floor = _build_scale(0, top, 2, WIDTH - MARGIN_RIGHT - 60), height - MARGIN_BOTTOM + 8
    for tick in round_ticks_within(0, top):
        text = f"{tick:.0%}" if figure.percent else _format_tick(tick)
        _add_path(root, f"M{x(tick):.1f} {MARGIN_TOP - 14}V{floor}", "grid")
        _add_text(root, x(tick), floor + 15, text, "start" if tick == 0 else "middle")
    _add_text(root, WIDTH - 2, height - 3, figure.y, "end", "name")
    y = MARGIN_TOP - BAR_PITCH
    for bar in figure.bars:
        y += BAR_PITCH - NAME_LINE_HEIGHT
        for name_line in _wrap_name(bar.name):
            y += NAME_LINE_HEIGHT
            _add_text(root, 4, y, name_line, "start", "bar-name")
        group = ET.SubElement(root, "g", {"class": style_classes(bar.name)})
        _add_path(
            group,
            f"M{x(0):.1f} {y + 6}H{x(min(bar.value, top)):.1f}v{BAR_HEIGHT}H{x(0):.1f}z",
            "bar",
        )
        end = x(min(bar.value, top))
        if bar.low is not None and bar.high is not None:
            low, high = (x(min(max(bound, 0.0), top)) for bound in (bar.low, bar.high))
            arrow = "m-5-3l5 3l-5 3" if bar.high > top else ""
            _add_path(group, f"M{low:.1f} {y + 6 + BAR_HEIGHT / 2}H{high:.1f}{arrow}", "range")
            end = max(end, high)
        text = f"{bar.value:.0%}" if figure.percent else _format_tick(bar.value)
        _add_text(root, end + 6, y + 6 + BAR_HEIGHT - 1, text, "start", "value")
    if figure.limit:
        _add_path(root, f"M{x(figure.limit[0]):.1f} {MARGIN_TOP - 14}V{floor}", "limit")


def _wrap_name(name: str) -> list[str]:
    """Return the name of a bar in lines that fit the width of the figure."""
    return textwrap.wrap(make_legible(name), NAME_CHARACTERS) or [""]


def _build_scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (value - low) / ((high - low) or 1.0) * (end - start)


def _format_tick(value: float) -> str:
    """Return a number on an axis or at a bar as text, rounded to a few digits."""
    if abs(value) >= 1e6 or 0 < abs(value) < 1e-3:
        return f"{value:.2g}"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def _add_path(parent: ET.Element, path: str, kind: str, **attributes: str) -> None:
    ET.SubElement(parent, "path", {"d": path, "class": kind, **attributes})


def _add_text(
    parent: ET.Element, x: float, y: float, text: str, anchor: str, kind: str = ""
) -> None:
    attributes = {"x": f"{x:.1f}", "y": f"{y:.1f}"}
    attributes |= {"text-anchor": anchor} if anchor != "start" else {}
    attributes |= {"class": kind} if kind else {}
    ET.SubElement(parent, "text", attributes).text = make_legible(text, 64)


def draw_interval_bar(
    value: float,
    low: float | None,
    high: float | None,
    scale_end: float,
    framework: str,
    launches: Iterable[float] = (),
) -> Markup:
    """Return the bar of a throughput with its interval, on a scale from 0 to `scale_end`.

    An interval that continues beyond the scale ends in an arrow. The throughput of each launch is a
    dot.
    """
    scale = _build_scale(0, scale_end, 0, 100)
    paths = f'<path class="bar" d="M0 2H{min(scale(value), 100):.1f}v6H0z"/>'
    if low is not None and high is not None:
        first, last = (min(max(scale(bound), 0), 100) for bound in (low, high))
        end = "m-3-3l3 3l-3 3" if scale(high) > 100 else "m0-3v6"
        paths += f'<path class="range" d="M{first:.1f} 5H{last:.1f}{end}M{first:.1f} 2v6"/>'
    dots = "".join(f"M{scale(speed):.1f} 5h0" for speed in launches if scale(speed) <= 100)
    paths += f'<path class="dots" d="{dots}"/>' if dots else ""
    head = (
        f'<svg class="iv {style_classes(framework)}" viewBox="0 0 100 10" '
        'preserveAspectRatio="none" aria-hidden="true">'
    )
    return Markup(f"{head}{paths}</svg>")
