"""The analysis of parallel and learning speed-up (see `analysis/learning.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xfbench import pairwise
from xfbench.analysis.leaderboard import Certificates
from xfbench.analysis.learning import (
    best_common_test_loss,
    best_test_loss,
    seconds_to_test_loss_by_block,
)
from xfbench.model.record import Record
from xfbench.planning.study_form import Analysis
from xfbench.statistics import Interval
from xfbench.studies import analyses
from xfbench.studies import cells as of_cells
from xfbench.studies.cells import MeasuredCell
from xfbench.studies.finding import Curve, Finding, Value, judge_claims_with_bounds
from xfbench.studies.quantities import QUANTITIES, counted_values_by_block
from xfbench.studies.wording import format_value_with_bounds, join_words, pluralize

_CURVE_POINTS = 12  # number of points per curve
PARALLEL, LEARNING = "parallel", "learning"


def analyze_parallel_and_learning_speedups(
    analysis: Analysis, cells: Sequence[MeasuredCell], certificates: Certificates
) -> Finding:
    """Return a finding with the parallel and the learning speed-up over one rank.

    - Parallel speed-up: images per second, divided by the images per second of one rank.
    - Learning speed-up: time that one rank needs to reach ℓ*, divided by the time that several
      ranks need. ℓ* is the lowest test loss that all runs reached.

    The curves of the finding show the learning speed-up at several test losses.
    """
    throughput = QUANTITIES["images_per_second"]
    values: list[Value] = []
    curves: list[Curve] = []
    notes: list[str] = []
    phrases: list[str] = []
    for group in of_cells.comparison_groups(cells, "ranks"):
        learning_records = {
            id(cell): [r for r in cell.ok_records() if r.learning] for cell in group
        }
        runs = [cell for cell in group if learning_records[id(cell)]]
        label = of_cells.cell_name(group[0], cells, ("ranks", "strategy"))
        diverged_count = _count_diverged(
            [record for cell in runs for record in learning_records[id(cell)]]
        )
        if diverged_count:
            notes.append(f"{label}: {pluralize(diverged_count, 'run')} diverged (non-finite loss)")
        level = best_common_test_loss(
            [
                r
                for cell in runs
                for r in learning_records[id(cell)]
                if best_test_loss(r) is not None
            ]
        )
        if not runs or runs[0].request.ranks != 1 or level is None or len(runs) < 2:
            values += [
                _build_speedup_value(
                    cell, label, "", None, "needs runs with one rank and with several"
                )
                for cell in group
            ]
            continue
        baseline = runs[0]
        notes.append(f"{label}: ℓ* is a test loss of {level:.3g}, which all runs reached")
        for cell in runs[1:]:
            reason = of_cells.incomparable_reason(cell, baseline, certificates)
            speeds = [
                counted_values_by_block(throughput, each.records) for each in (cell, baseline)
            ]
            parallel = pairwise.compare(*speeds).ratio if all(speeds) else None
            times = [
                seconds_to_test_loss_by_block(learning_records[id(each)], level)
                for each in (baseline, cell)
            ]
            learning = pairwise.compare(*times).ratio if all(times) else None
            if not learning and not reason:
                reason = "no run of this cell, or no run with one rank, has a finite loss"
            if reason:
                parallel = learning = None  # one speed-up without the other would be misleading
            values.append(_build_speedup_value(cell, label, PARALLEL, parallel, reason))
            values.append(_build_speedup_value(cell, label, LEARNING, learning, reason))
            if parallel and learning:
                ranks = of_cells.format_setting("ranks", cell.request.ranks)
                phrases.append(
                    f"{label} on {ranks} trains "
                    f"{format_value_with_bounds(parallel, 'times')} the images per second "
                    f"and learns {format_value_with_bounds(learning, 'times')} as fast"
                )
            curve = _learning_speedup_by_loss(
                learning_records[id(baseline)], learning_records[id(cell)], level
            )
            if not reason and curve:
                name = f"{label} · {of_cells.format_setting('ranks', cell.request.ranks)}"
                curves.append(Curve(name, curve))
    return Finding(
        title=analysis.title or "Parallel and learning speed-up",
        sentence=f"{join_words(phrases)}."
        if phrases
        else "There are no cells with different numbers of ranks to compare.",
        over="ranks",
        unit="times",
        values=tuple(values),
        judged=judge_claims_with_bounds(
            analysis.claim, values, lambda interval: format_value_with_bounds(interval, "times")
        ),
        plot="lines",
        beside=analysis.beside,
        curves=tuple(curves),
        x_title="test loss",
        notes=tuple(notes),
    )


def _count_diverged(records: Sequence[Record]) -> int:
    return sum(best_test_loss(record) is None for record in records)


def _learning_speedup_by_loss(
    base_records: Sequence[Record], records: Sequence[Record], lowest_loss: float
) -> tuple[tuple[float, float, float | None, float | None], ...]:
    """Return points (test loss, learning speed-up, lower bound, upper bound).

    Return up to _CURVE_POINTS points. Their test losses range from `lowest_loss` to the lowest test
    loss after the first epoch of a run.
    """
    epoch_losses = [r.learning[0].test_loss for r in (*base_records, *records) if r.learning]
    first_losses = [loss for loss in epoch_losses if loss is not None]
    if not first_losses or min(first_losses) <= lowest_loss or lowest_loss <= 0:
        return ()
    step = math.log(min(first_losses) / lowest_loss) / (_CURVE_POINTS - 1)
    points = []
    for number in range(_CURVE_POINTS):
        loss = lowest_loss * math.exp(step * number)
        base_times, cell_times = (
            seconds_to_test_loss_by_block(base_records, loss),
            seconds_to_test_loss_by_block(records, loss),
        )
        if base_times and cell_times:
            times: Interval = pairwise.compare(base_times, cell_times).ratio
            points.append((loss, times.value, times.low, times.high))
    return tuple(points)


def _build_speedup_value(
    cell: MeasuredCell, label: str, speedup_kind: str, interval: Interval | None, reason: str | None
) -> Value:
    fields: dict[str, Any] = {
        **analyses.settings_and_strategy_options(cell),
        "speedup": speedup_kind,
    }
    value = Value(
        name=f"{label} · {speedup_kind}" if speedup_kind else label,
        at=of_cells.format_setting("ranks", cell.request.ranks),
        x=float(cell.request.ranks),
        interval=interval,
        fields=fields,
        reason=reason,
        note="S, images per second"
        if speedup_kind == PARALLEL
        else "L, time to ℓ*"
        if speedup_kind
        else "",
    )
    if interval is None and reason is None:
        return replace(value, reason="no launch counts")
    return value
