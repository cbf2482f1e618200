"""Leaderboard tables as text, with one function per format."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast

from xfbench.analysis.checkpoints import CheckpointCosts
from xfbench.analysis.communication import Shares
from xfbench.analysis.costs import Costs
from xfbench.analysis.leaderboard import Row, Table, describe_idle_threads
from xfbench.analysis.scaling import Efficiency
from xfbench.analysis.steps import Steps
from xfbench.base.terminal_text import remove_style
from xfbench.base.wording import pluralize
from xfbench.model.origins import WORDS, Origin
from xfbench.model.strategy import format_options
from xfbench.rendering import captions, formats
from xfbench.rendering.fitting import SETTINGS, Fit, fit_columns
from xfbench.statistics import CLAIM_HALF_WIDTH, CLAIM_LAUNCHES, MIN_SESSIONS, Interval

if TYPE_CHECKING:  # these take long to import, and most tables need neither
    from xfbench.analysis.comparison import CellComparison
    from xfbench.analysis.prediction import Point

SELECTION_NOTE = (
    "The same launches select the best configuration and measure it, so it looks a little faster "
    "than it is (docs/method.md, The best of each)."
)
_RANGE_NOTE = (
    "The brackets of images/s of 2 to 4 launches are their range, which is no 95 % interval."
)
_INTERVAL_NOTE = (
    "images/s is the median launch. The brackets of 5 launches or more are its 95 % confidence "
    "interval."
)
_SESSIONS_NOTE = (
    f"Rows with {MIN_SESSIONS} sessions or more: images/s is the mean over the sessions, and the "
    "brackets are its 95 % confidence interval."
)
_BEST_NOTE = (
    "of best: mean ratio of launches to those of the first row, of neighbouring ones where "
    "possible. The 95 % confidence intervals hold for all pairs of rows together."
)
_FEW_NOTE = f"indicative, smoke: fewer than {CLAIM_LAUNCHES} launches support no claim."
_WIDE_NOTE = (
    f"indicative: the interval is wider than ±{100 * CLAIM_HALF_WIDTH:.0f} %: its ends differ by a "
    f"factor of more than {(1 + CLAIM_HALF_WIDTH) ** 2:.2f}."
)
_TWO_SESSIONS_NOTE = (
    "indicative: two sessions do not show how much sessions differ. --where 'created>=TIME' leaves "
    "out earlier ones."
)
_NOISY_NOTE = "indicative: most launches of a row were noisy."
_OTHER_RUN_NOTE = (
    "Rows whose launches are of different runs are not compared, and share ranks. Launch the cells "
    "that you want to compare in one run."
)
_SMALL_BATCHES_NOTE = "Proven at small batches: the gradients of the timed batch were not compared."
_LEVEL_NOTE = (
    "changed level: the steps of a launch became faster or slower for good. All of them count."
)
_NO_EXCHANGE_NOTE = (
    "exchange –: ranks took longer to compute alone than for a whole step together, so something "
    "disturbed them."
)
_PEAK_NOTE = (
    "of peak –: the matrix product was disturbed while it was measured, so the peak is unknown."
)
# From this difference on, a reader sees that the ratio of two medians is another one.
_RATIO_TOLERANCE = 0.02
_BUSY_TOLERANCE = 0.1  # as a share of the requested threads
_SUSTAINED_TOLERANCE = 0.05  # as a share of the rate at the median step
_STEP_PARTS = ("computing", "exchange", "waiting")
format_with_interval, format_number = formats.format_with_interval, formats.format_number
# A column of a table: its name, and the function that returns a row's text.
# A column of `_OPTIONAL_COLUMNS` is left out if it is empty in every row.
Column = tuple[str, Callable[[Row], str]]


def _format_or_dash(value: float | None, spec: str) -> str:
    return "–" if value is None else format(value, spec)


def _rank_range_text(row: Row) -> str:
    if row.rank is None:
        return "–"
    first, last = row.rank
    return str(first) if first == last else f"{first}–{last}"


def _ranks_and_strategy_text(row: Row) -> str:
    if row.ranks == 1:
        return "–"
    label = ["(asynchronous)"] if row.asynchronous else []
    chosen = format_options(row.strategy_options.items())
    return " ".join(filter(None, [str(row.ranks), row.strategy, chosen, *label]))


def _efficiency_text(row: Row) -> str:
    """Return the efficiency with its bounds and its baseline; "base" for the baseline itself."""
    efficiency = row.efficiency
    if efficiency is None:
        return "–"
    if efficiency.baseline_ranks == row.ranks:
        return "base"
    ranks = f"{efficiency.baseline_ranks} rank{'s' if efficiency.baseline_ranks > 1 else ''}"
    speed = format_number(efficiency.baseline_images_per_second, 3)
    return f"{_format_value_and_bounds(efficiency, '.0%')} of {ranks} at {speed}"


def _format_value_and_bounds(interval: Efficiency | Interval | None, spec: str) -> str:
    """Return the value, followed by its bounds if they are known.

    `spec` is the format of each number. The text for None is "–".
    """
    if interval is None:
        return "–"
    if interval.low is None or interval.high is None:
        return f"{interval.value:{spec}}"
    return f"{interval.value:{spec}} ({interval.low:{spec}}–{interval.high:{spec}})"


def _launch_count_and_label_text(row: Row) -> str:
    if row.images_per_second is None:
        return "0"
    return f"{row.images_per_second.launches} ({row.label})"


def _launch_count_and_doubt_text(row: Row) -> str:
    """Return the number of launches, with the label if they support no claim."""
    return _launch_count_and_label_text(row).removesuffix(" (claim)")


def _launch_notes_text(row: Row) -> str:
    """Return what is unusual about the launches."""
    speed = row.images_per_second
    if speed is None:
        return "–"
    notes = ["range"] if speed.low is not None and speed.confidence is None else []
    notes += [f"{row.sessions} sessions"] if row.sessions > 1 else []
    notes += [f"{row.outliers} outlier{'s' if row.outliers > 1 else ''}"] if row.outliers else []
    notes += [f"{row.noisy} noisy"] if row.noisy else []
    notes += [f"{row.unstable} changed level"] if row.unstable else []
    notes += [f"{row.steps.two_modes} with two modes"] if row.steps and row.steps.two_modes else []
    notes += [f"{row.failed} failed"] if row.failed else []
    notes += ["proven at small batches"] if row.is_proven_at_small_batches else []
    for origin, count in row.origins.items():
        words = WORDS[cast(Origin, origin)]
        notes.append(words if count == len(row.records) else f"{count} {words}")
    return ", ".join(notes) or "–"


def _sustained_rate_text(row: Row) -> str:
    return format_number(row.steps.sustained_images_per_second, 3) if row.steps else "–"


def _is_sustained_rate_different(row: Row) -> bool:
    """Return whether the sustained rate differs by more than 5 % from that of the median step."""
    if row.steps is None or row.asynchronous:
        return False
    rate = row.request.global_batch_size / row.steps.median_seconds
    ratio = row.steps.sustained_images_per_second / rate
    return abs(ratio - 1) > _SUSTAINED_TOLERANCE


def _milliseconds_text(row: Row, field_name: str) -> str:
    seconds = getattr(row.steps, field_name) if row.steps else None
    return "–" if seconds is None else f"{format_number(1000 * seconds, 3)} ms"


def _reader_and_pixel_error_text(row: Row) -> str:
    """Return the name of the data reader, such as "native, ±2".

    The number is the largest difference from the pixels of xfbench's own reader. Pixels are on the
    scale 0 to 255. The text leaves out a difference of zero.
    """
    return f"{row.input or '–'}{f', ±{row.pixels_off}' if row.pixels_off else ''}"


def _cpus_busy_text(row: Row) -> str:
    """Return how many CPUs training on CPUs kept busy."""
    return _format_or_dash(row.cpus_busy, ".1f")


def _is_other_number_of_cpus_busy(row: Row) -> bool:
    """Return whether the CPUs busy differ from the requested threads by more than a tenth."""
    if row.cpus_busy is None:
        return False
    return abs(row.cpus_busy - row.threads) > _BUSY_TOLERANCE * row.threads


def _configuration_count_text(row: Row) -> str:
    """Return the number of configurations from which the row was selected.

    If only some of them are ranked, the text also has the number of ranked configurations.
    """
    if row.configurations is None:
        return "–"
    ranked, total = row.configurations_ranked or 0, row.configurations
    return str(total) if ranked in (0, total) else f"{total}, {ranked} ranked"


def _share_of_best_text(row: Row) -> str:
    """Return the row's throughput as a fraction of the best ranked row's; "–" if not known.

    The bounds are those that decide the ranks.
    """
    if row.relative_interval and row.relative_interval.low is not None:
        return _format_value_and_bounds(row.relative_interval, ".2f")
    return _format_or_dash(row.relative_to_best, ".2f")


def _memory_limit_text(row: Row) -> str:
    limit_bytes = row.request.memory_limit
    return "–" if limit_bytes is None else _format_bytes(limit_bytes)


_CONFIGURATION_COLUMNS: list[Column] = [
    ("rank", _rank_range_text),
    ("framework", lambda row: row.framework),
    ("version", lambda row: row.framework_version or "–"),
    ("kernel", lambda row: row.kernel),
    ("ranks", _ranks_and_strategy_text),
    ("threads", lambda row: str(row.threads)),
    ("CPUs busy", _cpus_busy_text),
    ("format", lambda row: row.data_format or "–"),
    ("reader", _reader_and_pixel_error_text),
    ("medium", lambda row: row.medium or "–"),
    ("page cache", lambda row: row.page_cache or "–"),
    ("checkpoints", lambda row: str(row.checkpoints or "–")),
    ("memory limit", _memory_limit_text),
    ("allocator", lambda row: row.request.allocator or "–"),
    ("differs", lambda row: row.differs or "–"),
    ("best of", _configuration_count_text),
    ("images/s", lambda row: format_with_interval(row.images_per_second)),
]
COLUMNS: dict[str, list[Column]] = {
    "throughput": [
        *_CONFIGURATION_COLUMNS,
        ("sustained", _sustained_rate_text),
        ("of best", _share_of_best_text),
        ("efficiency", _efficiency_text),
        ("of peak", lambda row: _format_value_and_bounds(row.peak_share, ".0%")),
        ("launches", _launch_count_and_label_text),
        ("notes", _launch_notes_text),
        ("test acc.", lambda row: _format_or_dash(row.test_accuracy, ".1%")),
    ],
    "steps": [
        *_CONFIGURATION_COLUMNS,
        ("sustained", _sustained_rate_text),
        ("median step", lambda row: _milliseconds_text(row, "median_seconds")),
        ("p95", lambda row: _milliseconds_text(row, "p95_seconds")),
        ("p99", lambda row: _milliseconds_text(row, "p99_seconds")),
        ("launches", _launch_count_and_label_text),
        ("notes", _launch_notes_text),
    ],
    "costs": [
        *_CONFIGURATION_COLUMNS,
        ("start-up", lambda row: _format_seconds(row.costs.startup_seconds)),
        ("build", lambda row: _format_seconds(row.costs.build_seconds)),
        (
            "first step",
            lambda row: (
                f"{_format_seconds(row.costs.first_step_seconds)}{first_step_origin_text(row.costs)}"
            ),
        ),
        ("all epochs", lambda row: _format_seconds(row.costs.solution_seconds)),
        ("to accuracy", lambda row: time_to_accuracy_text(row.costs)),
        ("memory", lambda row: _format_gigabytes(row.costs.peak_rss_bytes)),
        ("GPU memory", lambda row: _format_gigabytes(row.costs.peak_device_bytes)),
        ("GPU busy", lambda row: _format_or_dash(row.costs.gpu_utilization, ".1%")),
        ("J/image", lambda row: _format_or_dash(row.costs.joules_per_image, ".3g")),
    ],
    "accuracy": [
        *_CONFIGURATION_COLUMNS,
        ("seeds", lambda row: str(row.seeds)),
        ("test acc.", lambda row: _format_value_and_bounds(row.accuracy, ".2%")),
        ("to accuracy", lambda row: time_to_accuracy_text(row.costs)),
        ("all epochs", lambda row: _format_seconds(row.costs.solution_seconds)),
    ],
    "communication": [
        *_CONFIGURATION_COLUMNS,
        ("nodes", lambda row: str(row.nodes)),
        ("efficiency", _efficiency_text),
        ("computing", lambda row: _step_share_text(row, "compute")),
        ("waiting", lambda row: _step_share_text(row, "waiting")),
        ("exchange", lambda row: _step_share_text(row, "exposed")),
        ("median step", lambda row: _milliseconds_text(row, "median_seconds")),
        ("to send", lambda row: _exchanged_bytes_text(row, "bytes_per_step")),
        ("counted", lambda row: _exchanged_bytes_text(row, "counted_bytes")),
        ("an epoch", lambda row: _exchanged_bytes_text(row, "bytes_per_epoch")),
        ("counted an epoch", lambda row: _exchanged_bytes_text(row, "counted_bytes_per_epoch")),
    ],
    "storage": [
        *_CONFIGURATION_COLUMNS,
        ("spread", lambda row: _format_value_and_bounds(row.spread, ".1%")),
        ("input", lambda row: _format_or_dash(row.input_share, ".1%")),
        ("input CPU", lambda row: _format_or_dash(row.input_cpu_share, ".1%")),
        ("checkpoint", lambda row: _checkpoint_text(row, lambda costs: costs.format)),
        ("on", lambda row: _checkpoint_text(row, lambda costs: costs.file_system)),
        ("size", lambda row: _checkpoint_text(row, lambda costs: _format_bytes(costs.bytes))),
        (
            "save",
            lambda row: _checkpoint_text(row, lambda costs: _format_seconds(costs.save_seconds)),
        ),
        (
            "saved",
            lambda row: _checkpoint_text(
                row, lambda costs: f"{_format_bytes(costs.save_bandwidth)}/s"
            ),
        ),
        (
            "load",
            lambda row: _checkpoint_text(row, lambda costs: _format_seconds(costs.load_seconds)),
        ),
        (
            "loaded",
            lambda row: _checkpoint_text(
                row, lambda costs: f"{_format_bytes(costs.load_bandwidth)}/s"
            ),
        ),
        ("of the run", lambda row: _checkpoint_text(row, lambda costs: f"{costs.share:.1%}")),
    ],
}


def _checkpoint_text(row: Row, cost_text: Callable[[CheckpointCosts], str]) -> str:
    return "–" if row.checkpointing is None else cost_text(row.checkpointing)


def _step_share_text(row: Row, share_name: str) -> str:
    """Return a share of the step. A single rank exchanges nothing, so it only computes."""
    shares = row.communication
    if row.ranks == 1 and row.steps:
        return "100%" if share_name == "compute" else "0%"
    if shares is None or (share_name == "exposed" and not shares.can_tell_exchange):
        return "–"
    return f"{max(0.0, getattr(shares, share_name)):.0%}"


def _exchanged_bytes_text(row: Row, field_name: str) -> str:
    shares = row.communication
    count = None if shares is None else getattr(shares, field_name)
    return "–" if count is None else _format_bytes(count)


def _format_bytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"


# Columns of a view that are left out unless such a row makes them worth reading.
_TELLING_ROWS: dict[tuple[str, str], Callable[[Row], bool]] = {
    **{(view, "CPUs busy"): _is_other_number_of_cpus_busy for view in COLUMNS},
    ("throughput", "sustained"): _is_sustained_rate_different,
    ("throughput", "of peak"): lambda row: row.peak_share is not None or row.peak_disturbed,
}
_OPTIONAL_COLUMNS = (
    "CPUs busy",
    "notes",
    "sustained",
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
    "input CPU",
    "all epochs",
    "to accuracy",
    "GPU memory",
    "GPU busy",
    "J/image",
    "an epoch",
    "counted an epoch",
)
# Columns that a table for a paper has only on request.
_NOT_FOR_PAPERS = (*("rank", "CPUs busy", "best of", "sustained", "of peak", "notes", "test acc."),)


@dataclass(frozen=True)
class Layout:
    """Which columns of a view a table has.

    - `columns`: names of the columns, in their order; empty: all columns.
    - `max_width`: maximum length of a line in characters, in LaTeX in points. Settings that are
      equal in all rows are in the heading, and the least important columns are left out. None:
      there is no maximum.
    - `caption`: the caption of tables in LaTeX, in LaTeX; None: sentences about the table.
    - `label`: the label of the table in LaTeX; None: a name made from the table's heading.
    """

    columns: tuple[str, ...] = ()
    max_width: int | None = None
    caption: str | None = None
    label: str | None = None


ALL_COLUMNS = Layout()


def to_json(
    tables: Sequence[Table], ignored_view: str = "", ignored_layout: Layout = ALL_COLUMNS
) -> str:
    """Return one JSON document with all fields of the tables.

    All functions of `FORMATS` have the same parameters. Here, the others have no effect.
    """
    return json.dumps({"tables": [table.document() for table in tables]}, indent=1)


def to_csv(
    tables: Sequence[Table], ignored_view: str = "", ignored_layout: Layout = ALL_COLUMNS
) -> str:
    """Return one CSV line per row, with all columns and all digits.

    All functions of `FORMATS` have the same parameters. Here, the others have no effect.
    """
    lines = [_row_columns(table, row) for table in tables for row in (*table.rows, *table.unranked)]
    return formats.to_csv(lines)


def comparison_table(
    compared: Sequence[CellComparison],
    confidence: str | None = None,
    format_name: str = "text",
    max_width: int | None = None,
) -> str:
    """Return a table of the comparisons of two cells, A and B, with one line each.

    - `format_name`: a key of `formats.FORMATS`.
    - `max_width`: maximum length of a line in a terminal, in characters. Long texts are wrapped,
      the least important columns are left out, and reasons for no verdict are notes below the
      table. None: there is no maximum.

    A line has these fields after the parts that the names of the two cells share, and the other
    parts of each:

    - In Markdown, the images per second of A and of B.
    - The ratio of throughputs A/B and its interval, which has the heading `confidence`; by default,
      the heading says how many intervals hold together.
    - The number of launches, and the smallest ratio that they would probably show.
    - The verdict.
    """
    lines = []
    reasons = list(dict.fromkeys(each.reason for each in compared if not each.verdict))
    for comparison in compared:
        ratio, smallest_difference = (
            comparison.figures.ratio,
            comparison.figures.smallest_visible_difference,
        )
        interval = "–" if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}"
        reason = f": {comparison.reason}"
        if max_width is not None and not comparison.verdict:
            reason = f" [{1 + reasons.index(comparison.reason)}]"
        verdict = comparison.verdict or f"no verdict{reason}"
        if comparison.verdict and comparison.is_mostly_noisy:
            verdict += " (noisy)"
        visible = "–" if smallest_difference is None else f"{1 + smallest_difference:.3f}"
        count = comparison.figures.describe_count()
        names = _split_names(comparison.a, comparison.b)
        speeds = []
        if format_name == "markdown":
            speeds = [formats.format_number(each, 4) for each in comparison.speeds or ()]
            speeds = speeds or ["–", "–"]
        lines.append([*names, *speeds, f"{ratio.value:.3f}", interval, count, visible])
        lines[-1].append(verdict.replace("_", " "))
    joint = sum(each.reason is None and each.figures.ratio.low is not None for each in compared)
    confidence = confidence or (f"95 % (joint for {joint})" if joint > 1 else "95 %")
    headers = ["both", "A", "B", "A/B", confidence, "launches", "detectable", "A is"]
    if format_name == "markdown":
        headers[3:3] = ["A: images/s", "B: images/s"]
    if max_width is None:
        return formats.FORMATS[format_name].render_table(headers, lines)
    headers[4] = confidence.replace(" (", "\n(")
    table = formats.render_listing(headers, lines, None)
    if max(map(len, remove_style(table).splitlines())) > max_width:
        # Three columns of names would be too narrow, so one column has all names.
        headers[:3] = [_NAMES]
        lines = [[f"{both}: {a} / {b}", *texts] for both, a, b, *texts in lines]
        less_important = ("detectable", "launches")
        table = formats.render_listing(headers, lines, max_width, less_important, {_NAMES: 26})
    notes = [formats.wrap_line(f"[{n}] {reason}", max_width) for n, reason in enumerate(reasons, 1)]
    return "\n".join([table, *notes])


_NAMES = "both: A / B"


def _split_names(a: str, b: str) -> tuple[str, str, str]:
    """Return the parts that two names share, and the other parts of each; "–" if there are none."""
    parts_a, parts_b = a.split(" · "), b.split(" · ")
    groups = (
        [part for part in parts_a if part in parts_b],
        [part for part in parts_a if part not in parts_b],
        [part for part in parts_b if part not in parts_a],
    )
    shared, only_a, only_b = (" · ".join(parts) or "–" for parts in groups)
    return shared, only_a, only_b


def prediction_table(points: Sequence[Point], fit: Mapping[str, Any], max_width: int = 100) -> str:
    """Return a terminal table of the predictions, with the parts of each predicted step.

    The measurements behind the predictions follow.

    - `points`: one prediction per number of ranks.
    - `fit`: describes the fitted model.
    - `max_width`: maximum length of a line, in characters.
    """
    rows = [
        [
            str(point.ranks),
            format_with_interval(point.images_per_second),
            "–" if point.measured is None else format_number(point.measured, 3),
            f"{point.efficiency:.0%}",
            "–" if point.beyond_data <= 1 else f"{point.beyond_data:.3g} times",
        ]
        for point in points
    ]
    names = ["ranks", "images/s", "measured", "efficiency", "beyond the data"]
    text_format = formats.FORMATS["text"]
    computing_texts = [
        f"{figure['value']:.3g} s for {images} images"
        for images, figure in fit["computing_seconds"].items()
    ]
    counts = ", ".join(map(str, fit["measured_ranks"]))
    bandwidth, latency = fit["bandwidth"]["value"], fit["latency"]["value"]
    count = len(fit["buckets"])
    pieces = f"{count} buckets during computing" if count > 1 else "one piece after computing"
    baseline = fit["baseline"]
    base_ranks = pluralize(baseline["ranks"], "rank")
    notes = [
        f"efficiency: predicted images/s per rank, as a share of {base_ranks} at "
        f"{format_number(baseline['images_per_second'], 3)} images/s, which were measured.",
        f"From {fit['launches']} launches on {counts} ranks. "
        f"A step computes {', '.join(computing_texts)}. "
        f"{fit['payload_bytes'] / 1e6:.3g} MB of gradients by {fit['algorithm']}, in {pieces}, "
        f"over a {fit['link']} link of {8e-9 * bandwidth:.3g} Gbit/s and {1e6 * latency:.3g} µs. "
        f"In tests with up to 8 ranks and measured links, {fit['coverage']:.0%} of the intervals "
        "contained what was measured later.",
    ]
    if misfits := [str(point.ranks) for point in points if _is_outside_interval(point)]:
        notes.append(
            "Do not trust these predictions: what was measured on "
            f"{', '.join(misfits)} {'rank' if misfits == ['1'] else 'ranks'} is outside the "
            "interval."
        )
    efficiency_note, *further_notes = (formats.wrap_line(note, max_width, "") for note in notes)
    return "\n".join(
        [
            text_format.render_heading(fit["title"], max_width),
            formats.render_listing(names, rows, max_width, ("beyond the data",)),
            efficiency_note,
            "",
            *_step_part_lines(points, max_width),
            "",
            *further_notes,
        ]
    )


def _is_outside_interval(point: Point) -> bool:
    """Return whether the measured speed is outside the predicted interval."""
    low, high = point.images_per_second.low, point.images_per_second.high
    if point.measured is None or low is None or high is None:
        return False
    return not low <= point.measured <= high


def _step_part_lines(points: Sequence[Point], max_width: int) -> list[str]:
    """Return a terminal table of the parts of each predicted step, and notes on the parts."""
    rows = []
    ranks_by_note: dict[tuple[str, str], list[str]] = {}
    for point in points:
        parts = {name: getattr(point.step, name) for name in _STEP_PARTS}
        shares = format_percentages([part.share for part in parts.values()])
        rows.append([str(point.ranks), _format_seconds(point.step.seconds), *shares])
        for name, part in parts.items():
            if part.reason:
                ranks_by_note.setdefault((name, part.reason), []).append(str(point.ranks))
    text_format = formats.FORMATS["text"]
    return [
        text_format.render_heading("parts of a predicted step"),
        text_format.render_table(["ranks", "step", *_STEP_PARTS], rows),
        *(
            formats.wrap_line(f"{name} on {', '.join(ranks)} ranks: {reason}", max_width)
            for (name, reason), ranks in ranks_by_note.items()
        ),
    ]


def format_percentages(shares: Sequence[float | None]) -> list[str]:
    """Return shares as whole percentages that add up to the rounded total. None becomes "–".

    The shares that lose most when they are rounded down are rounded up.
    """
    percentages = [100 * share for share in shares if share is not None]
    whole = [math.floor(percentage) for percentage in percentages]
    losses = [percentage - floor for percentage, floor in zip(percentages, whole, strict=True)]
    for n in sorted(range(len(whole)), key=lambda n: -losses[n])[: round(sum(losses))]:
        whole[n] += 1
    rounded = iter(whole)
    return ["–" if share is None else f"{next(rounded)}%" for share in shares]


def _format_seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} s"


def first_step_origin_text(costs: Costs) -> str:
    """Return whether the first step loaded its program; "" if it never did."""
    return {0.0: "", 1.0: " (loaded)"}.get(costs.first_step_loaded, " (some loaded)")


def time_to_accuracy_text(costs: Costs) -> str:
    """Return the median time to the target accuracy, such as "38 s (4 of 5 runs)".

    The number of runs that reached the accuracy is left out if all did.
    """
    if costs.accuracy_runs == 0:
        return "–"
    seconds = _format_seconds(costs.accuracy_seconds)
    if costs.accuracy_reached == costs.accuracy_runs:
        return seconds
    plural = "" if costs.accuracy_runs == 1 else "s"
    return f"{seconds} ({costs.accuracy_reached} of {costs.accuracy_runs} run{plural})"


def _format_gigabytes(size_bytes: int | None) -> str:
    return "–" if size_bytes is None else f"{size_bytes / 1e9:.2g} GB"


def group_and_nonempty_columns(table: Table, view: str = "throughput") -> list[Column]:
    """Return the columns to show for the table.

    - `view`: a key of `COLUMNS`.

    Optional columns that are empty in every row are left out. The fields by which the table groups
    its rows (`table.by`) are added after the first column, unless they have a column already.
    """
    rows = [*table.rows, *table.unranked]
    visible = [
        (name, read)
        for name, read in COLUMNS[view]
        if name not in _OPTIONAL_COLUMNS or _is_worth_showing(name, read, rows, view)
    ]
    names = {name for name, _ in visible} | {"framework_version"}
    group_columns = [(name, _group_text_reader(name)) for name in table.by if name not in names]
    return [*visible[:1], *group_columns, *visible[1:]]


def _is_worth_showing(
    name: str, read: Callable[[Row], str], rows: Sequence[Row], view: str
) -> bool:
    """Return whether an optional column says something that the others do not."""
    is_telling = _TELLING_ROWS.get((view, name), lambda row: read(row) != "–")
    return any(map(is_telling, rows))


def _group_text_reader(name: str) -> Callable[[Row], str]:
    return lambda row: "–" if row.group[name] is None else str(row.group[name])


def _render(
    tables: Sequence[Table],
    view: str = "throughput",
    layout: Layout = ALL_COLUMNS,
    *,
    table_format: formats.Format,
) -> str:
    return table_format.join(render_parts(tables, view, layout, table_format))


def render_parts(
    tables: Sequence[Table], view: str, layout: Layout, table_format: formats.Format
) -> list[str]:
    """Return headings, tables and notes. `table_format.join` makes one text of them."""
    if not table_format.stands_alone:
        tables_parts = [_render_table(table, view, layout, table_format) for table in tables]
    else:
        labels = captions.label_leaderboards(tables, view)
        layouts = [replace(layout, label=layout.label or label) for label in labels]
        tables_parts = [
            _render_for_paper(table, view, table_layout, table_format)
            for table, table_layout in zip(tables, layouts, strict=True)
        ]
    return [part for parts in tables_parts for part in (*parts, "")]


def _render_table(
    table: Table, view: str, layout: Layout, table_format: formats.Format
) -> list[str]:
    columns = _chosen_columns(table, view, layout)
    fit = None
    if layout.max_width is not None:
        fit = _fit(table, columns, layout.max_width, table_format)
        columns = [(name, read) for name, read in columns if name in fit.shown]
    common = [f"{name} {text}" for name, text in fit.common] if fit else []
    heading = " · ".join([table.title, *common])
    parts = [table_format.render_heading(heading, layout.max_width)]
    headers = [name for name, _ in columns]
    if table.rows:
        lines = [[read(row) for _, read in columns] for row in table.rows]
        parts.append(table_format.render_table(headers, lines, heading))
    if table.unranked:
        parts += _render_unranked(table, columns, layout.max_width, table_format)
    notes = _list_notes(table, headers)
    parts += [table_format.render_note(note, layout.max_width) for note in notes]
    if fit and fit.left_out:
        left_out = ", ".join(fit.left_out).removesuffix(".")  # a name ends with a full stop
        note = f"Not shown: {left_out}. See xfbench leaderboard --wide."
        parts.append(table_format.render_note(note, layout.max_width))
    return parts


def _render_for_paper(
    table: Table, view: str, layout: Layout, table_format: formats.Format
) -> list[str]:
    """Return the parts of a table whose caption and notes say what it shows.

    What a caption says is not in the notes. The notes are below the ranked rows.
    """
    columns = _chosen_columns(table, view, layout)
    if layout.max_width is not None:
        columns = _select_paper_columns(table, columns)
        shown = _fit(table, columns, layout.max_width, table_format).shown
        columns = [(name, read) for name, read in columns if name in shown]
    columns = [
        (name, _launch_count_and_doubt_text if name == "launches" else read)
        for name, read in columns
    ]
    headers = [name for name, _ in columns]
    notes = [*_list_notes(table, headers, stands_alone=True)]
    readers = dict(group_and_nonempty_columns(table, view))
    description = captions.describe_leaderboard(table, view, readers, headers)
    parts = [table_format.render_heading(table.title)]
    caption = layout.caption
    if caption is None:
        intervals = [*_list_interval_notes(table, stands_alone=True)]
        notes = [note for note in notes if note not in intervals]
        caption = formats.make_latex_caption(" ".join([description, *intervals]))
    else:  # keeps the facts of the caption that it replaces
        parts.append(table_format.render_heading(description))
    label = layout.label or ""
    note_parts = [table_format.render_note(note) for note in notes]
    if table.rows:
        lines = [[read(row) for _, read in columns] for row in table.rows]
        parts.append(table_format.render_table(headers, lines, table.title, caption, label=label))
        parts += [*note_parts, ""]
        note_parts = []
        label += "-not-ranked"
    if table.unranked:
        parts += _render_unranked(table, columns, None, table_format, caption, label)
    return parts + note_parts


def _select_paper_columns(table: Table, columns: Sequence[Column]) -> list[Column]:
    """Return the columns that a paper needs if they fit: no details, and no equal settings.

    A version that follows from the framework is in the caption.
    """
    rows = (*table.rows, *table.unranked)
    versions = {(row.framework, row.framework_version) for row in rows}
    has_one_version = len(versions) == len({row.framework for row in rows})
    return [
        (name, read)
        for name, read in columns
        if name not in _NOT_FOR_PAPERS
        and not (name in SETTINGS and name != "framework" and len({*map(read, rows)}) == 1)
        and not (name == "version" and has_one_version)
    ]


def _list_notes(table: Table, names: Sequence[str], *, stands_alone: bool = False) -> Iterator[str]:
    """Yield sentences that say how to read the columns `names` of a table.

    `stands_alone`: whether sentences also say what is usual, such as intervals of 95 %.
    """
    rows = (*table.rows, *table.unranked)
    if any((row.configurations or 1) > 1 for row in rows):
        yield SELECTION_NOTE
    yield from _list_interval_notes(table, stands_alone=stands_alone)
    if note := _order_note(table):
        yield note
    if "launches" in names:
        if stands_alone and any(row.label and _has_few_launches(row) for row in rows):
            yield _FEW_NOTE
        yield from _reasons_for_indicative_rows(rows)
    noise = noise_note(sum(row.noisy for row in rows), sum(len(row.speeds) for row in rows))
    idle = dict.fromkeys(describe_idle_threads(row.request, row.cpus_busy) for row in rows)
    idle_note = idle_threads_note([*filter(None, idle)], with_advice=not stands_alone)
    yield from filter(None, [noise, idle_note])
    if any(row.is_of_another_run(table.rows[0]) for row in table.rows):
        yield _OTHER_RUN_NOTE
    if "notes" in names and any(row.unstable for row in rows):
        yield _LEVEL_NOTE
    if stands_alone and "of best" in names and any(row.relative_interval for row in rows):
        yield _BEST_NOTE
        names = [name for name in names if name != "of best"]
    ratio_names = [
        name
        for name, is_other in (
            ("of best", _is_best_of_other_launches),
            ("efficiency", _is_efficiency_of_other_launches),
        )
        if name in names and any(map(is_other, rows))
    ]
    if ratio_names:
        yield (
            f"{' and '.join(ratio_names)}: the mean ratio of launches, of neighbouring ones where "
            "possible, which differs from the ratio of two medians."
        )
    if "of peak" in names and any(row.peak_disturbed for row in rows):
        yield _PEAK_NOTE
    yield from _list_origin_notes(rows)
    yield from _list_batch_notes(rows)
    if "exchange" in names and any(
        row.communication and not row.communication.can_tell_exchange for row in rows
    ):
        yield _NO_EXCHANGE_NOTE


def _list_origin_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence if launches were not measured here."""
    foreign = [row for row in rows if row.origins]
    if foreign:
        kinds = {kind for row in foreign for kind in row.origins} - {"measured"}
        words = ", ".join(text for kind, text in WORDS.items() if kind in kinds)
        which = "all rows" if len(foreign) == len(rows) else f"{len(foreign)} of {len(rows)} rows"
        yield f"Not measured here: launches of {which} ({words})."


def _list_batch_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield sentences that say which timed batches were not compared, and why not."""
    small = [row for row in rows if row.is_proven_at_small_batches]
    if small:
        which = "" if len(small) == len(rows) else f"{len(small)} of {len(rows)} rows: "
        yield which + (_SMALL_BATCHES_NOTE if not which else _SMALL_BATCHES_NOTE.lower())
    frameworks: dict[str, dict[str, None]] = {}
    for row in small:
        if row.batch_unproven_reason:
            frameworks.setdefault(row.batch_unproven_reason, {})[row.framework] = None
    for reason, names in frameworks.items():
        yield f"{', '.join(names)}: batch not compared: {reason}"


def _list_interval_notes(table: Table, *, stands_alone: bool) -> Iterator[str]:
    rows = (*table.rows, *table.unranked)
    if any(row.images_per_second and _has_range(row.images_per_second) for row in rows):
        yield _RANGE_NOTE
    if stands_alone and any(row.sessions < MIN_SESSIONS and _has_interval(row) for row in rows):
        yield _INTERVAL_NOTE
    if any(row.sessions >= MIN_SESSIONS for row in rows):
        yield _SESSIONS_NOTE


def _order_note(table: Table) -> str:
    """Return sentences about the rows whose rank may change with more launches; "" if none may."""
    doubtful = [row for row in table.rows if row.label != "claim"]
    if len(table.rows) < 2 or not doubtful:
        return ""
    names = [row.framework for row in doubtful]
    are_names_clear = len({row.framework for row in table.rows}) == len(table.rows)
    which = ", ".join(names) if are_names_clear else f"{len(doubtful)} of {len(table.rows)} rows"
    if len(doubtful) == len(table.rows):
        which = "all rows"
    return f"Ranks may change: {which} (few, different or mostly noisy launches)."


def idle_threads_note(texts: Sequence[str], *, with_advice: bool = True) -> str:
    """Return a sentence about `leaderboard.describe_idle_threads`; "" if there are no texts.

    `with_advice`: whether to say what to try.
    """
    if not texts:
        return ""
    advice = " Try one thread, in the same run (--threads 1,2)." if with_advice else ""
    return f"{'; '.join(texts)}: threads waited for cores, for each other or for input.{advice}"


def noise_note(noisy: int, launches: int) -> str:
    """Return a sentence with the number of noisy launches, or "" if there are none."""
    if not noisy:
        return ""
    count = pluralize(launches, "launch")
    were, them = ("was", "it") if noisy == 1 else ("were", "them")
    return f"{noisy} of {count} {were} noisy: something on the machine disturbed {them}."


def _has_few_launches(row: Row) -> bool:
    return bool(row.images_per_second and row.images_per_second.launches < CLAIM_LAUNCHES)


def _has_interval(row: Row) -> bool:
    speed = row.images_per_second
    return bool(speed and speed.low is not None and speed.confidence)


def _reasons_for_indicative_rows(rows: Sequence[Row]) -> Iterator[str]:
    """Yield why rows are "indicative" although they have launches enough for a claim."""
    indicative = [
        (row, row.images_per_second)
        for row in rows
        if row.label == "indicative" and row.images_per_second
    ]
    if any(
        speed.launches >= CLAIM_LAUNCHES and not speed.is_within(CLAIM_HALF_WIDTH)
        for _, speed in indicative
    ):
        yield _WIDE_NOTE
    if any(row.sessions == 2 and speed.label == "claim" for row, speed in indicative):
        yield _TWO_SESSIONS_NOTE
    if any(row.is_mostly_noisy and speed.label == "claim" for row, speed in indicative):
        yield _NOISY_NOTE


def _is_best_of_other_launches(row: Row) -> bool:
    """Return whether the share of the best row differs from the ratio of the printed medians."""
    if row.relative_interval is None or row.relative_interval.low is None:
        return False
    if row.relative_to_best is None:
        return False
    return abs(row.relative_interval.value - row.relative_to_best) >= _RATIO_TOLERANCE


def _is_efficiency_of_other_launches(row: Row) -> bool:
    """Return whether the efficiency differs from the ratio of the printed medians."""
    efficiency, speed = row.efficiency, row.images_per_second
    if efficiency is None or speed is None:
        return False
    share = efficiency.baseline_ranks / row.ranks
    of_medians = share * speed.value / efficiency.baseline_images_per_second
    return abs(efficiency.value - of_medians) >= _RATIO_TOLERANCE


def _chosen_columns(table: Table, view: str, layout: Layout) -> list[Column]:
    """Return the columns of a view that the layout chooses, before they are fitted."""
    if not layout.columns:
        return group_and_nonempty_columns(table, view)
    group_columns = {name: _group_text_reader(name) for name in table.by}
    readers = group_columns | dict(COLUMNS[view])
    return [(name, readers[name]) for name in layout.columns if name in readers]


def _fit(
    table: Table, columns: Sequence[Column], max_width: int, table_format: formats.Format
) -> Fit:
    rows = (*table.rows, *table.unranked)
    texts = {name: [table_format.escape_field(read(row)) for row in rows] for name, read in columns}
    return fit_columns(
        texts, max_width, table_format.column_gap, table_format.measure, table_format.header_padding
    )


def _render_unranked(
    table: Table,
    columns: Sequence[Column],
    max_width: int | None,
    table_format: formats.Format,
    caption: str = "",
    label: str = "",
) -> list[str]:
    """Return the rows that are not ranked, and the reasons as numbered notes below them."""
    reasons = list(dict.fromkeys(row.reason or "" for row in table.unranked))
    lines = []
    for row in table.unranked:
        first, *further_texts = (read(row) for _, read in columns)
        mark = f"[{1 + reasons.index(row.reason or '')}]"
        lines.append([mark if first == "–" else f"{mark} {first}", *further_texts])
    return [
        table_format.render_heading("not ranked"),
        table_format.render_table(
            [name for name, _ in columns],
            lines,
            f"Not ranked: {table.title}",
            caption and f"Not ranked: {caption}",
            label=label,
        ),
        *(
            table_format.render_warning(f"[{number}] {reason}", max_width)
            for number, reason in enumerate(reasons, 1)
        ),
    ]


def _has_range(figure: Interval) -> bool:
    """Return whether the ends of the figure's interval are the smallest and largest launch."""
    return figure.low is not None and figure.confidence is None


def _row_columns(table: Table, row: Row) -> dict[str, Any]:
    document = {
        key: value for key, value in table.document().items() if key not in ("rows", "unranked")
    }
    document |= {"ranked": row.reason is None, "reason": row.reason, **row.document()}
    document |= {f"by_{name}": value for name, value in document.pop("group", {}).items()}
    document["by"] = " ".join(table.by)
    document["strategy_options"] = format_options(row.strategy_options.items())
    throughput = document.pop("images_per_second") or {}
    document["records"] = " ".join(document["records"])
    document |= document.pop("costs")
    steps = document.pop("steps") or {}
    for field in fields(Steps):
        document[f"steps_{field.name}"] = steps.get(field.name)
    del document["profile"]  # only --view layers prints the profile
    shares = document.pop("communication") or {}
    for field in fields(Shares):
        document[f"communication_{field.name}"] = shares.get(field.name)
    checkpoint_costs = document.pop("checkpointing") or {}
    for field in fields(CheckpointCosts):
        document[f"checkpoint_{field.name}"] = checkpoint_costs.get(field.name)
    for name in ("spread", "accuracy", "efficiency", "relative_interval", "peak_share"):
        interval = document.pop(name) or {}
        for end in ("value", "low", "high"):
            document[f"{name}_{end}"] = interval.get(end)
    document["rank_low"], document["rank_high"] = document.pop("rank") or (None, None)
    for key in ("value", "low", "high", "launches", "confidence", "label"):
        document[f"images_per_second_{key}"] = throughput.get(key)
    return document


def to_text(tables: Sequence[Table], view: str = "throughput", layout: Layout = ALL_COLUMNS) -> str:
    """Return the tables for a terminal."""
    return _render(tables, view, layout, table_format=formats.FORMATS["text"])


_RENDERERS = formats.renderers_by_format(_render)
# `--format` lists the formats in this order.
FORMATS: dict[str, Callable[..., str]] = {
    "text": _RENDERERS["text"],
    "markdown": _RENDERERS["markdown"],
    "latex": _RENDERERS["latex"],
    "csv": to_csv,
    "json": to_json,
    "html": _RENDERERS["html"],
}
