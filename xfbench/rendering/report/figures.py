"""Figures of the report as values, each with its data and a description in words.

This module decides which cells of a leaderboard form a thread sweep, a comparison of kernels or a
scaling curve. `svg.py` draws the figures.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xfbench.analysis.leaderboard import Row, Table
from xfbench.base.wording import pluralize
from xfbench.host.roofline import usual_matrix_product
from xfbench.model.record import Record
from xfbench.rendering import tables

MOST_LINES, MOST_BARS, MOST_STEPS = 8, 20, 60
_MIN_TICK_SHARE = 0.09  # of the x axis, between two ticks
MOST_NAMED = 6  # lines or bars whose values are in the description of a figure


@dataclass(frozen=True)
class Point:
    """A point of a line. `low` and `high` are the bounds of the interval of `y`, or None."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """A line of a figure, with its points in order of `x`.

    If `ideal` is true, the line shows ideal scaling instead of measurements.
    """

    name: str
    points: tuple[Point, ...]
    ideal: bool = False


@dataclass(frozen=True)
class Bar:
    """A bar of a figure. `low` and `high` are the bounds of the interval of `value`, or None."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Mark:
    """A published or imported number that is drawn at `x`.

    - `y`: the number; None: only its range is known.
    - `low`, `high`: the ends of its range, or None.
    - `printed`: the number or range as its source prints it.
    """

    name: str
    printed: str
    x: float
    y: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Figure:
    """A plot of lines, or a plot of bars.

    - `description`: the plot in words, for readers who cannot see it.
    - `x`, `y`: the names of the axes.
    - `headers`, `data`: a table of all numbers as texts.
    - `marks`: published or imported numbers, which are drawn with the lines.
    - `at`: the x values of the ticks, ascending; empty: ticks are at round numbers. Values that are
      too near to another have no tick.
    - `limit`: the value and the name of a line that marks a limit; None: there is no such line.
    - `percent`: whether values are fractions that are shown as percentages.
    - `from_zero`: whether the y axis starts at zero.
    - `note`: a note below the plot.
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

    @property
    def has_markers(self) -> bool:
        """Whether the points of lines have markers. Those of many steps have none."""
        return bool(self.at) or not self.from_zero

    @property
    def is_x_logarithmic(self) -> bool:
        """Whether the x axis is logarithmic: the ticks are given, and span more than 3 octaves."""
        return bool(self.at) and self.at[0] > 0 and self.at[-1] / self.at[0] > 8

    @property
    def bar_end(self) -> float:
        """The end of the axis of bars: long enough for the bars, the limit and usual intervals.

        An interval that goes beyond is drawn with an arrow, so that it does not hide the bars.
        """
        best = max(bar.value for bar in self.bars)
        end = max([best, *(min(bar.high or 0.0, 2 * best) for bar in self.bars)]) or 1.0
        return max(end, self.limit[0] * 1.02) if self.limit else end

    @property
    def ticks(self) -> list[float]:
        """The values of `at` whose labels do not overlap. Powers of two come first."""
        if not self.at:
            return []
        position = math.log2 if self.is_x_logarithmic else float
        min_distance = (position(self.at[-1]) - position(self.at[0])) * _MIN_TICK_SHARE
        chosen: list[float] = []
        for x in sorted(self.at, key=lambda x: (math.frexp(x)[0] != 0.5, x)):
            if all(abs(position(x) - position(other)) >= min_distance for other in chosen):
                chosen.append(x)
        return sorted(chosen)


def build_speed_and_learning_figures(
    table: Table, records_by_id: Mapping[str, Record]
) -> list[Figure]:
    """Return up to five figures of the table, in the order of the page.

    1. Throughput by number of threads.
    2. Throughput of different kernels.
    3. Throughput by number of ranks.
    4. Speed as a share of the speed of a matrix product.
    5. Test accuracy by time.

    A figure is left out if the table has no rows for it.
    """
    rows = [row for row in (*table.rows, *table.unranked) if row.images_per_second]
    drawn = (
        _build_thread_sweep_figure([row for row in rows if row.ranks == 1]),
        _build_kernel_figure(rows),
        _build_scaling_figure(rows, table.scaling),
        _build_share_of_limit_figure(rows, records_by_id),
        _build_test_accuracy_figure(rows, records_by_id),
    )
    return [figure for figure in drawn if figure]


def build_throughput_figure(table: Table) -> Figure | None:
    """Return the figure of the throughput of each ranked row, or None if no row is ranked.

    The report has these bars as its summary, so it needs no such figure.
    """
    return _build_throughput_bar_figure("Throughput", table.rows) if table.rows else None


def row_name(row: Row, *, omitted_parts: Collection[str] = ()) -> str:
    """Return a short name of a row, such as "torch · onednn · 2 threads"."""
    return " · ".join(
        text for key, text in row_name_parts(row).items() if text and key not in omitted_parts
    )


def row_name_parts(row: Row) -> dict[str, str]:
    """Return the parts of a row's name, by the name of the setting that each part describes.

    A part that the name does not need is "".
    """
    return {
        "framework": row.framework,
        "kernel": row.kernel,
        "threads": pluralize(row.threads, "thread"),
        "ranks": f"{row.ranks} ranks" if row.ranks > 1 else "",
        "strategy": row.request.strategy_text if row.ranks > 1 else "",
        "format": row.data_format or "",
        "reader": f"{row.input} reader" if (row.input or "").startswith("native") else "",
        "medium": row.medium or "",
        "cache": f"{row.page_cache} cache" if row.page_cache else "",
        "checkpoints": f"{row.checkpoints} checkpoints" if row.checkpoints else "",
        "allocator": row.request.allocator or "",
        "differs": row.differs,
    }


def _note_if_not_ranked(row: Row, text: str) -> str:
    return text if row.reason is None else f"{text} (not ranked)"


def _storage_and_run_settings(row: Row) -> tuple[Any, ...]:
    request = row.request
    return (
        *row.storage,
        row.checkpoints,
        request.allocator,
        request.steps,
        request.epochs,
        request.warmup,
    )


def _throughput_point(row: Row, x: float) -> Point:
    speed = row.images_per_second
    assert speed is not None
    return Point(x, speed.value, speed.low, speed.high)


def _group_rows(rows: Iterable[Row], key: Callable[[Row], Any]) -> list[list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return list(groups.values())


def _build_thread_sweep_figure(rows: Sequence[Row]) -> Figure | None:
    """Return the figure of images per second by number of threads.

    Each line has rows that differ only in the number of threads. Return None if there are no such
    rows.
    """

    def settings_except_threads(row: Row) -> tuple[Any, ...]:
        return row.framework, row.framework_version, row.kernel, *_storage_and_run_settings(row)

    lines = []
    for group in _group_rows(rows, settings_except_threads):
        group.sort(key=lambda row: row.threads)
        if len({row.threads for row in group}) > 1:
            points = tuple(_throughput_point(row, row.threads) for row in group)
            lines.append(Line(row_name(group[0], omitted_parts=("threads",)), points))
    return _build_throughput_line_figure("Thread sweep", "threads", lines)


def _build_throughput_line_figure(title: str, x_label: str, lines: list[Line]) -> Figure | None:
    """Return a figure of images per second that draws the MOST_LINES fastest measured lines.

    The figure's data table has all measured lines. The ideal line of a drawn line is drawn too.
    Return None if there are no measured lines.
    """
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
        (line.name, f"{point.x:g}", _format_four_digits(point.y), _interval_text(point))
        for line in measured_lines
        for point in line.points
    )
    sentences = [
        f"{line.name}: " + ", ".join(f"{_format_four_digits(p.y)} at {p.x:g}" for p in line.points)
        for line in measured_lines[:MOST_NAMED]
    ]
    return Figure(
        title=title,
        description=f"Images per second by {x_label}. {'; '.join(sentences)}.",
        x=x_label,
        y="images/s",
        headers=("configuration", x_label, "images/s", "95 % interval"),
        data=data,
        lines=tuple(drawn),
        at=tuple(sorted({point.x for line in drawn for point in line.points})),
        note=_note_if_truncated(len(measured_lines), MOST_LINES),
    )


def _note_if_truncated(count: int, max_shown: int) -> str:
    return (
        f"Shows the {max_shown} fastest of {count}; the data table has all."
        if count > max_shown
        else ""
    )


def _build_kernel_figure(rows: Sequence[Row]) -> Figure | None:
    """Return the figure that compares kernels of a framework at otherwise equal settings.

    Return None if no rows differ only in the kernel.
    """

    def settings_except_kernel(row: Row) -> tuple[Any, ...]:
        rank_settings = row.ranks, row.nodes, row.strategy, str(row.strategy_options)
        return (
            row.framework,
            row.framework_version,
            row.threads,
            *rank_settings,
            *_storage_and_run_settings(row),
        )

    groups = [
        g for g in _group_rows(rows, settings_except_kernel) if len({row.kernel for row in g}) > 1
    ]
    chosen = [row for group in groups for row in group]
    return _build_throughput_bar_figure("Kernels", chosen) if chosen else None


def _build_throughput_bar_figure(title: str, rows: Sequence[Row]) -> Figure:
    bars = []
    for row in rows:
        point = _throughput_point(row, 0)
        bars.append(Bar(_note_if_not_ranked(row, row_name(row)), point.y, point.low, point.high))
    sentences = [
        f"{bar.name}: {tables.format_with_interval(row.images_per_second)}, {_describe_doubt(row)}"
        for bar, row in zip(bars[:MOST_NAMED], rows, strict=False)
    ]
    noise = tables.noise_note(sum(row.noisy for row in rows), sum(len(row.speeds) for row in rows))
    return Figure(
        title=title,
        description=(
            "Images per second. The ends of a line are those of the 95 % confidence interval, or "
            f"of the range of two to four launches. {'; '.join(sentences)}. {noise}".rstrip()
        ),
        y="images/s",
        headers=("configuration", "images/s", "95 % interval"),
        data=tuple((bar.name, _format_four_digits(bar.value), _interval_text(bar)) for bar in bars),
        bars=tuple(bars[:MOST_BARS]),
        note=_note_if_truncated(len(bars), MOST_BARS),
    )


def _describe_doubt(row: Row) -> str:
    """Return the number of launches, and the label of a row that supports no claim."""
    count = pluralize(len(row.speeds), "launch")
    return count if row.label == "claim" else f"{count} ({row.label})"


def _build_scaling_figure(rows: Sequence[Row], law_of_rows: str | None) -> Figure | None:
    """Return the figure of images per second by number of ranks.

    Each measured line comes with a line of ideal scaling that starts at the same point.

    `law_of_rows` is "strong", "weak" or "per-node". If it is None, return None.
    """
    if law_of_rows is None:
        return None

    lines = []
    for group in group_rows_into_scaling_curves(rows):
        points = tuple(_throughput_point(row, row.ranks) for row in group)
        label = row_name(group[-1], omitted_parts=("ranks",))
        first = points[0]
        x_limits = (first.x, points[-1].x)
        perfect = tuple(Point(x, first.y * x / first.x) for x in x_limits)
        lines += [Line(label, points), Line(label, perfect, ideal=True)]
    return _build_throughput_line_figure(f"{law_of_rows.capitalize()} scaling", "ranks", lines)


def group_rows_into_scaling_curves(rows: Sequence[Row]) -> list[list[Row]]:
    """Return groups of rows that differ only in ranks, in order of ranks.

    Rows with several ranks are in one group only if they have the same strategy. A row with one
    rank has no strategy, so it belongs to the group of every strategy. Each group has at least two
    different numbers of ranks.
    """

    def settings_except_ranks_and_strategy(row: Row) -> tuple[Any, ...]:
        row_settings = row.framework, row.framework_version, row.kernel, row.threads
        return *row_settings, *_storage_and_run_settings(row)

    groups = []
    for group in _group_rows(rows, settings_except_ranks_and_strategy):
        alone = [row for row in group if row.ranks == 1]
        several = [row for row in group if row.ranks > 1]
        for of_one in _group_rows(several, lambda row: (row.strategy, str(row.strategy_options))):
            both = sorted([*alone, *of_one], key=lambda row: row.ranks)
            if len({row.ranks for row in both}) > 1:
                groups.append(both)
    return groups


def _build_share_of_limit_figure(
    rows: Sequence[Row], records_by_id: Mapping[str, Record]
) -> Figure | None:
    """Return the figure of each row's speed as a share of the speed of a usual matrix product.

    The matrix product runs on the same cores as the row's training. Return None if the share is
    not known for any row.
    """
    bars, data = [], []
    for row in rows:
        limits = filter(None, (records_by_id[record_id].limit for record_id in row.records))
        limits_and_peaks = (
            (limit, peak) for limit in limits if (peak := usual_matrix_product(limit))
        )
        limit, peak = next(limits_and_peaks, (None, None))
        share = row.peak_share
        if share is None or limit is None or peak is None:
            continue
        label = _note_if_not_ranked(row, row_name(row))
        bars.append(Bar(label, share.value, share.low, share.high))
        possible = peak.value * row.ranks
        done = share.value * possible
        of_both = [tables.format_number(rate / 1e9, 3) for rate in (done, possible)]
        has_bounds = share.low is not None and share.high is not None
        bounds = f"{share.low:.1%} – {share.high:.1%}" if has_bounds else "–"
        data.append((label, f"{share.value:.1%}", bounds, *of_both, limit.source))
    if not bars:
        return None
    best = max(bars, key=lambda bar: bar.value)
    return Figure(
        title="Share of the limit",
        description=(
            "Arithmetic of training as a share of a usual matrix product on the same cores. "
            f"The highest is {best.name}: {best.value:.0%}."
        ),
        y="share of the matrix product",
        headers=(
            *("configuration", "share", "95 % interval"),
            *("GFLOP/s", "possible", "source of the limit"),
        ),
        data=tuple(data),
        bars=tuple(bars[:MOST_BARS]),
        limit=(1.0, "limit"),
        percent=True,
        note=" ".join(
            filter(None, [_note_if_truncated(len(bars), MOST_BARS), _disturbed_peaks_note(rows)])
        ),
    )


def _disturbed_peaks_note(rows: Sequence[Row]) -> str:
    """Return a sentence about the rows without a share because their peak was disturbed, or ""."""
    count = sum(row.peak_disturbed for row in rows)
    if not count:
        return ""
    return (
        f"{pluralize(count, 'row')} left out: other work disturbed the measurement of the matrix "
        "product, so the limit is unknown."
    )


def _build_test_accuracy_figure(
    rows: Sequence[Row], records_by_id: Mapping[str, Record]
) -> Figure | None:
    """Return the figure of test accuracy by time, or None if no row has a test accuracy.

    The time is in seconds since the start of the processes. It does not include evaluations.
    """
    lines, data = [], []
    for row in rows:
        points = []
        row_records = [records_by_id[record_id] for record_id in row.records]
        trained = [
            record
            for record in row_records
            if record.status == "ok" and record.learning and record.measurement
        ]
        for number in range(min((len(record.learning or ()) for record in trained), default=0)):
            epochs = [record.learning[number] for record in trained if record.learning]
            reached = statistics.median(
                _startup_build_and_epochs_seconds(record, number) for record in trained
            )
            means = [
                _mean_without_none(getattr(epoch, field) for epoch in epochs)
                for field in ("test_accuracy", "train_loss", "test_loss")
            ]
            if means[0] is not None:
                points.append(Point(reached, means[0]))
            shown = (
                f"{reached:.3g}",
                _format_percent_or_dash(means[0]),
                _format_number_or_dash(means[1]),
                _format_number_or_dash(means[2]),
            )
            data.append((_note_if_not_ranked(row, row_name(row)), str(epochs[0].epoch), *shown))
        if points:
            lines.append(Line(_note_if_not_ranked(row, row_name(row)), tuple(points)))
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
        note=_note_if_truncated(len(lines), MOST_LINES),
    )


def _startup_build_and_epochs_seconds(record: Record, last_epoch_index: int) -> float:
    measured, learning = record.measurement, record.learning
    assert measured is not None and learning is not None
    start = (measured.startup_seconds or 0.0) + measured.build_seconds
    return start + sum(epoch_facts.seconds for epoch_facts in learning[: last_epoch_index + 1])


def build_step_time_figure(records: Sequence[Record]) -> Figure | None:
    """Return the figure of the timed steps in milliseconds, with one line per launch.

    Return None if no record has timed steps.
    """
    lines, data = [], []
    for record in records:
        measured = record.measurement
        if measured is None or not measured.step_seconds or record.request is None:
            continue
        label = f"launch {record.request.launch}"
        milliseconds = [1e3 * seconds for seconds in measured.step_seconds]
        places = _evenly_spaced_step_indices(len(milliseconds))
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


def _evenly_spaced_step_indices(count: int) -> list[int]:
    """Return the indices of at most MOST_STEPS steps, evenly spread over `count` steps."""
    step_count = min(count, MOST_STEPS)
    return [place * count // step_count for place in range(step_count)]


def _mean_without_none(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.fmean(numbers) if numbers else None


def _format_four_digits(value: float) -> str:
    return tables.format_number(value, 4)


def _interval_text(point: Point | Bar) -> str:
    if point.low is None or point.high is None:
        return "–"
    return f"{_format_four_digits(point.low)} – {_format_four_digits(point.high)}"


def _format_percent_or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _format_number_or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
