"""Analyses over the batch size.

There are three results: the largest batch, the memory per image, and the batch at which throughput
stops growing.

Memory per image: a least-squares line is fitted to peak memory over the batch. The slope of the
line is the memory per image. The intercept is the memory that does not depend on the batch.

Where throughput stops growing: the result is the smallest batch for which no larger batch is
visibly faster. "Visibly" means by more than the smallest visible difference. The interval of the
result starts at this batch. The interval ends at the smallest batch for which the launches exclude
that a larger batch is faster by more than RELEVANT_GAIN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from xfbench import pairwise, statistics
from xfbench.analysis.leaderboard import Certificates
from xfbench.host import memory
from xfbench.planning.study_form import Analysis, Claim
from xfbench.statistics import CONFIDENCE, Interval
from xfbench.studies import analyses
from xfbench.studies import cells as of_cells
from xfbench.studies.cells import MeasuredCell
from xfbench.studies.finding import (
    Agreement,
    Finding,
    JudgedClaim,
    Value,
    tally_text,
    verdict_if_all_must_agree,
)
from xfbench.studies.quantities import QUANTITIES, counted_values_by_block
from xfbench.studies.wording import (
    format_ends,
    format_number_without_unit,
    format_value_with_bounds,
)

# Analyses that use every batch that was tried. Others only use batches reached by doubling.
ALL_BATCH_ANALYSES = ("out_of_memory", "memory_per_image", "values")
RELEVANT_GAIN = 0.02  # relative gain in throughput that matters
PER_IMAGE, FIXED_PART = "each image", "fixed part"


def is_always_out_of_memory(cell: MeasuredCell) -> bool:
    """Return whether every launch of the cell was out of memory."""
    return all(map(memory.is_out_of_memory, cell.records))


@dataclass(frozen=True)
class _BatchLimit:
    """The largest batch that fits in memory, among cells that differ only in the batch.

    - `cells`: the cells, sorted by batch.
    - `smallest_failed`: the cell with the smallest batch that was out of memory; None if no batch
      was out of memory.
    - `largest_ok`: the cell with the largest batch below `smallest_failed` that ran; None if no
      such batch ran.
    - `reason`: the reason in the record of the smallest failed batch; empty if no batch failed.
    """

    cells: Sequence[MeasuredCell]
    largest_ok: MeasuredCell | None
    smallest_failed: MeasuredCell | None
    reason: str


def analyze_largest_batch(
    analysis: Analysis, cells: Sequence[MeasuredCell], _: Certificates
) -> Finding:
    """Return a finding with the largest batch that runs, and why the next larger batch fails."""
    values: list[Value] = []
    examples: list[tuple[float, str]] = []
    batch_limits = [
        _find_batch_limit(group) for group in of_cells.comparison_groups(cells, "batch_size")
    ]
    for batch_limit in batch_limits:
        name = of_cells.cell_name(batch_limit.cells[0], cells, ("batch_size",))
        memory_limit = batch_limit.cells[0].request.memory_limit
        limit_text = f"; limit {_format_megabytes(memory_limit)} per rank" if memory_limit else ""
        interval, reason, note = None, None, ""
        if batch_limit.smallest_failed is None:
            reason = _no_limit_reason(batch_limit)
        elif batch_limit.largest_ok is None:
            reason = (
                f"the smallest batch, {_batch_size(batch_limit.smallest_failed)}: "
                f"{batch_limit.reason}{limit_text}"
            )
        else:
            interval = Interval(
                float(_batch_size(batch_limit.largest_ok)),
                None,
                None,
                _min_launch_count(batch_limit),
            )
            note = (
                f"batch {_batch_size(batch_limit.smallest_failed)}: "
                f"{batch_limit.reason}{limit_text}"
            )
            text = (
                f"{interval.value:.0f} ({name}; {_batch_size(batch_limit.smallest_failed)} does not"
            )
            examples.append((interval.value, f"{text}{limit_text})"))
        fields = analyses.settings_and_strategy_options(
            batch_limit.largest_ok or batch_limit.cells[0]
        )
        values.append(Value(name, "", None, interval, fields, reason, note))
    return Finding(
        title=analysis.title or "Memory limit",
        sentence=f"The largest batch that fits is {format_ends(examples)}."
        if examples
        else "No launch was out of memory here.",
        over="",
        unit="images",
        values=tuple(values),
        judged=tuple(_judge_claim(claim, batch_limits) for claim in analysis.claim),
        plot=analysis.plot,
        beside=analysis.beside,
    )


def _find_batch_limit(cells: Sequence[MeasuredCell]) -> _BatchLimit:
    first_failed = next(
        (cell for cell in cells if any(map(memory.is_out_of_memory, cell.records))), None
    )
    ok_cells = [
        cell
        for cell in cells
        if cell.ok_records()
        and (first_failed is None or _batch_size(cell) < _batch_size(first_failed))
    ]
    reason = ""
    if first_failed is not None:
        reason = next(r.reason or "" for r in first_failed.records if memory.is_out_of_memory(r))
    return _BatchLimit(cells, ok_cells[-1] if ok_cells else None, first_failed, reason)


def _no_limit_reason(batch_limit: _BatchLimit) -> str:
    """Return why no limit was found: the largest batch ran, or failed for another reason."""
    last_cell = batch_limit.cells[-1]
    if not last_cell.ok_records():
        return analyses.no_result_reason(last_cell)
    return f"not out of memory up to batch {_batch_size(last_cell)}, the largest tried"


def _batch_size(cell: MeasuredCell) -> int:
    return cell.request.fixed_batch_size


def _min_launch_count(batch_limit: _BatchLimit) -> int:
    """Return how many launches support the limit on both sides.

    This is the smaller of two numbers:

    - The number of ok launches with the largest batch that ran.
    - The number of launches with the smallest failed batch that were out of memory.
    """
    assert batch_limit.largest_ok and batch_limit.smallest_failed
    return min(
        len(batch_limit.largest_ok.ok_records()),
        sum(map(memory.is_out_of_memory, batch_limit.smallest_failed.records)),
    )


def _format_megabytes(size_bytes: float) -> str:
    return f"{format_number_without_unit(size_bytes / 1e6, 'MB')} MB"


def _judge_claim(claim: Claim, batch_limits: Sequence[_BatchLimit]) -> JudgedClaim:
    """Judge whether the largest batch that fits in memory lies between the claim's bounds.

    This batch is not known exactly. It is at least the largest batch that ran, and smaller than
    the smallest batch that failed. If the bounds do not decide, the agreement is "unknown".

    One launch per batch is enough, because noise does not affect whether a launch runs out of
    memory.
    """
    agreements: list[Agreement] = []
    details = []
    low, high = claim.bounds
    for batch_limit in batch_limits:
        if not batch_limit.cells[0].matches(claim.where):
            continue
        largest_ok = _batch_size(batch_limit.largest_ok) if batch_limit.largest_ok else 0
        largest_possible = (
            _batch_size(batch_limit.smallest_failed) - 1
            if batch_limit.smallest_failed
            else math.inf
        )
        inside = low <= largest_ok and largest_possible <= high
        agreements.append(
            "yes" if inside else "no" if largest_possible < low or largest_ok > high else "unknown"
        )
        end_text = (
            f"{_batch_size(batch_limit.smallest_failed)} does not"
            if batch_limit.smallest_failed
            else "no limit was found"
        )
        details.append(f"batch {largest_ok} fits, {end_text}")
    reason = (
        f"{tally_text(agreements)} ({'; '.join(details[:3])})"
        if agreements
        else "no matching cell was measured here"
    )
    return JudgedClaim(claim.source, claim.text, verdict_if_all_must_agree(agreements), reason)


@dataclass(frozen=True)
class MemoryGrowth:
    """A line that is fitted to peak memory over the batch.

    - `slope`: bytes per image.
    - `intercept`: bytes that do not depend on the batch.
    - `max_relative_error`: largest deviation from the line, as a fraction of the measured peak.
    """

    slope: Interval
    intercept: Interval
    max_relative_error: float


def fit_memory_growth(sizes: Sequence[int], peaks: Sequence[float]) -> MemoryGrowth | None:
    """Fit a line to peak memory over the batch by least squares.

    - `sizes`: batch sizes in images.
    - `peaks`: peak memory of each batch size in bytes.

    The intervals of slope and intercept are t-intervals with n − 2 degrees of freedom, for n
    points. Return None if there are fewer than three different batch sizes.
    """
    if len(set(sizes)) < 3:
        return None
    x, y = np.asarray(sizes, dtype=float), np.asarray(peaks, dtype=float)
    mean_size, degrees_of_freedom = x.mean(), len(x) - 2
    sum_of_squares = ((x - mean_size) ** 2).sum()
    slope = ((x - mean_size) * y).sum() / sum_of_squares
    intercept = y.mean() - slope * mean_size
    residuals = y - intercept - slope * x
    variance = (residuals**2).sum() / degrees_of_freedom
    quantile = float(special.stdtrit(degrees_of_freedom, (1 + CONFIDENCE) / 2))
    slope_half_width = quantile * math.sqrt(variance / sum_of_squares)
    intercept_half_width = quantile * math.sqrt(
        variance * (1 / len(x) + mean_size**2 / sum_of_squares)
    )
    return MemoryGrowth(
        Interval(
            float(slope), float(slope - slope_half_width), float(slope + slope_half_width), len(x)
        ),
        Interval(
            float(intercept),
            float(intercept - intercept_half_width),
            float(intercept + intercept_half_width),
            len(x),
        ),
        float(np.abs(residuals / y).max()),
    )


def analyze_memory_per_image(
    analysis: Analysis, cells: Sequence[MeasuredCell], _: Certificates
) -> Finding:
    """Return a finding with the memory per image and the memory that all batches need."""
    values: list[Value] = []
    examples: list[tuple[float, str]] = []
    notes: list[str] = []
    for group in of_cells.comparison_groups(cells, "batch_size"):
        name = of_cells.cell_name(group[0], cells, ("batch_size",))
        peaks = [
            (cell, counted_values_by_block(QUANTITIES["peak_memory"], cell.records))
            for cell in group
        ]
        points = [
            (_batch_size(cell), 1e6 * statistics.interval_of_launches(peak_values).value)
            for cell, peak_values in peaks
            if peak_values
        ]
        fit = fit_memory_growth(*zip(*points, strict=True)) if points else None
        fields = analyses.settings_and_strategy_options(group[0])
        if fit is None:
            reason = "needs three batches"
            values.append(Value(name, PER_IMAGE, None, None, {**fields, "part": PER_IMAGE}, reason))
            continue
        for part, interval in ((PER_IMAGE, fit.slope), (FIXED_PART, fit.intercept)):
            values.append(Value(name, part, None, interval, {**fields, "part": part}))
        slope_text = format_value_with_bounds(fit.slope, "bytes")
        examples.append((fit.slope.value, f"{slope_text} ({name})"))
        notes.append(
            f"{name}: {len(points)} batches, at most {fit.max_relative_error:.1%} off the line"
        )
    return Finding(
        title=analysis.title or "Memory per image",
        sentence=f"An image needs {format_ends(examples)}."
        if examples
        else "Memory per image needs three batches.",
        over="part",
        unit="bytes",
        values=tuple(values),
        judged=(),
        plot="none",
        notes=tuple(notes),
    )


def analyze_stops_growing(
    analysis: Analysis, cells: Sequence[MeasuredCell], certificates: Certificates
) -> Finding:
    """Return a finding with the batch at which throughput stops growing.

    This is the smallest batch for which no larger batch is visibly faster. Visibly faster means:
    the gain in throughput is more than the smallest difference that the launches can detect.
    """
    values: list[Value] = []
    examples: list[tuple[float, str]] = []
    for group in of_cells.comparison_groups(cells, "batch_size"):
        name = of_cells.cell_name(group[0], cells, ("batch_size",))
        throughput = QUANTITIES["images_per_second"]
        measured = [
            cell for cell in group if len(counted_values_by_block(throughput, cell.records)) > 1
        ]
        fields = analyses.settings_and_strategy_options(group[0])
        reason = (
            None if len(measured) > 1 else "needs two batches, each with two launches that count"
        )
        for cell in measured[1:]:
            reason = reason or of_cells.incomparable_reason(cell, measured[0], certificates)
        if reason:
            values.append(Value(name, "", None, None, fields, reason))
            continue
        counts = [len(counted_values_by_block(throughput, cell.records)) for cell in measured]
        flat_cells, surely_flat_cells = (
            next(measured[n:] for n in range(len(measured)) if not is_beaten(measured[n:]))
            for is_beaten in (_is_first_batch_beaten, _may_larger_batch_be_faster)
        )
        first_batch, sure_batch = (
            float(_batch_size(flat_cells[0])),
            float(_batch_size(surely_flat_cells[0])),
        )
        note = "the largest batch measured is better than every smaller one"
        if flat_cells[1:]:
            best_larger = max(
                flat_cells[1:],
                key=lambda cell: _compare_throughput(cell, flat_cells[0]).ratio.value,
            )
            gain = _compare_throughput(best_larger, flat_cells[0])
            note = (
                f"the best larger batch, {_batch_size(best_larger)}, gives "
                f"{format_value_with_bounds(gain.ratio, 'times')} the throughput; smallest visible "
                f"difference {gain.smallest_visible_difference:.1%}"
            )
            range_text = (
                f" to {format_value_with_bounds(Interval(sure_batch, None, None, 0), 'images')}"
                if sure_batch > first_batch
                else ""
            )
            batch_text = format_number_without_unit(first_batch, "images")
            examples.append((first_batch, f"{batch_text}{range_text or ' images'} ({name})"))
        values.append(
            Value(
                name,
                "",
                None,
                Interval(first_batch, first_batch, sure_batch, min(counts)),
                fields,
                note=note,
            )
        )
    return Finding(
        title=analysis.title or "Where throughput stops growing",
        sentence=f"Throughput stops growing at {format_ends(examples)}."
        if examples
        else "Throughput does not stop growing within these batches.",
        over="",
        unit="images",
        values=tuple(values),
        judged=(),
        plot=analysis.plot,
        beside=analysis.beside,
    )


def _compare_throughput(cell: MeasuredCell, baseline: MeasuredCell) -> pairwise.Comparison:
    throughput = QUANTITIES["images_per_second"]
    return pairwise.compare(
        counted_values_by_block(throughput, cell.records),
        counted_values_by_block(throughput, baseline.records),
    )


def _is_first_batch_beaten(cells_by_batch: Sequence[MeasuredCell]) -> bool:
    """Return whether a larger batch is visibly faster than the first batch.

    A batch is visibly faster if the gain in throughput is more than the smallest visible
    difference.
    """
    for larger in cells_by_batch[1:]:
        comparison = _compare_throughput(larger, cells_by_batch[0])
        visible_difference = comparison.smallest_visible_difference
        if visible_difference is not None and comparison.ratio.value - 1 > visible_difference:
            return True
    return False


def _may_larger_batch_be_faster(cells_by_batch: Sequence[MeasuredCell]) -> bool:
    """Return whether a larger batch may be faster than the first batch by more than RELEVANT_GAIN.

    The upper bound of the interval decides. Return True if there are too few launches for a bound.
    """
    for larger in cells_by_batch[1:]:
        high = _compare_throughput(larger, cells_by_batch[0]).ratio.high
        if high is None or high > 1 + RELEVANT_GAIN:
            return True
    return False
