"""The analysis of parallel and learning speed-up (see `analysis/learning.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xfbench import pairwise
from xfbench.analysis.leaderboard import Certificates
from xfbench.analysis.learning import (
    RunsToTarget,
    default_target_loss,
    has_diverged,
    is_learning_run,
    learning_speedup,
    runs_to_test_loss,
)
from xfbench.base.wording import pluralize
from xfbench.model.record import Record
from xfbench.planning.study_form import Analysis
from xfbench.statistics import Interval
from xfbench.studies import analyses
from xfbench.studies import cells as of_cells
from xfbench.studies.cells import MeasuredCell
from xfbench.studies.finding import Curve, Finding, Value, judge_claims_with_bounds
from xfbench.studies.quantities import QUANTITIES, counted_values_by_block
from xfbench.studies.wording import format_ends, format_value_with_bounds, join_words

_CURVE_POINTS = 12  # number of points per curve
PARALLEL, LEARNING = "parallel", "learning"


def analyze_parallel_and_learning_speedups(
    analysis: Analysis, cells: Sequence[MeasuredCell], certificates: Certificates
) -> Finding:
    """Return a finding with the parallel and the learning speed-up over one rank.

    - Parallel speed-up: images per second, divided by the images per second of one rank.
    - Learning speed-up: time that one rank needs to reach the target loss, divided by the time that
      several ranks need. `analysis.target` or the workload sets the target.

    The curves of the finding show the learning speed-up at the target and at larger test losses.
    """
    throughput = QUANTITIES["images_per_second"]
    values: list[Value] = []
    curves: list[Curve] = []
    notes: list[str] = []
    parallel_examples: list[tuple[float, str]] = []
    learning_examples: list[tuple[float, str]] = []
    for group in of_cells.comparison_groups(cells, "ranks"):
        records_of_cell = {
            id(cell): [record for record in cell.records if is_learning_run(record)]
            for cell in group
        }
        runs = [cell for cell in group if records_of_cell[id(cell)]]
        label = of_cells.cell_name(group[0], cells, ("ranks", "strategy"))
        diverged_count = sum(
            has_diverged(record) for cell in runs for record in records_of_cell[id(cell)]
        )
        if diverged_count:
            notes.append(f"{label}: {pluralize(diverged_count, 'run')} diverged (non-finite loss)")
        target = _target_loss(analysis, group[0].request.workload)
        missing = ""
        if not runs or runs[0].request.ranks != 1 or len(runs) < 2:
            missing = "needs runs with one rank and with several"
        elif target is None:
            missing = "there is no target loss: set `target` of the analysis in the study's file"
        if missing or target is None:
            values += [_build_speedup_value(cell, label, "", None, missing) for cell in group]
            continue
        baseline = runs[0]
        times = {id(cell): runs_to_test_loss(records_of_cell[id(cell)], target) for cell in runs}
        shares = join_words(
            [
                f"{times[id(cell)].share} on {of_cells.format_setting('ranks', cell.request.ranks)}"
                for cell in runs
            ]
        )
        notes.append(f"{label}: Target test loss {target:.3g}. Reached by {shares}")
        for cell in runs[1:]:
            reason = of_cells.incomparable_reason(cell, baseline, certificates)
            speeds = [
                counted_values_by_block(throughput, each.records) for each in (cell, baseline)
            ]
            parallel = pairwise.compare(*speeds).ratio if all(speeds) else None
            learning = learning_speedup(times[id(baseline)], times[id(cell)])
            if not learning and not reason:
                reason = _no_speedup_reason(times[id(baseline)], times[id(cell)])
            if reason:
                parallel = learning = None  # one speed-up without the other would be misleading
            values.append(_build_speedup_value(cell, label, PARALLEL, parallel, reason))
            values.append(
                _build_speedup_value(
                    cell, label, LEARNING, learning, reason, (times[id(baseline)], times[id(cell)])
                )
            )
            if parallel and learning:
                name = f"{label} on {of_cells.format_setting('ranks', cell.request.ranks)}"
                for examples, ratio in (
                    (parallel_examples, parallel),
                    (learning_examples, learning),
                ):
                    text = f"{format_value_with_bounds(ratio, 'times')} ({name})"
                    examples.append((ratio.value, text))
            curve = _learning_speedup_by_loss(
                records_of_cell[id(baseline)], records_of_cell[id(cell)], target
            )
            if not reason and curve:
                name = f"{label} · {of_cells.format_setting('ranks', cell.request.ranks)}"
                curves.append(Curve(name, curve))
    return Finding(
        title=analysis.title or "Parallel and learning speed-up",
        sentence=f"The parallel speed-up is {format_ends(parallel_examples)}. "
        f"The learning speed-up is {format_ends(learning_examples)}."
        if parallel_examples
        else _sentence_without_speedup(values),
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


def _target_loss(analysis: Analysis, workload: str) -> float | None:
    """Return the target of the analysis, or else of the workload; None if neither has one."""
    target = analysis.target
    if isinstance(target, dict):
        target = target.get(workload)
    return default_target_loss(workload) if target is None else target


def _sentence_without_speedup(values: Sequence[Value]) -> str:
    reasons = [value.reason for value in values if value.fields["speedup"] == LEARNING]
    if reasons:
        return f"No learning speed-up is known: {reasons[0]}."
    return "There are no cells with different numbers of ranks to compare."


def _no_speedup_reason(one_rank: RunsToTarget, several_ranks: RunsToTarget) -> str:
    """Return why there is no learning speed-up: too few runs reached the target."""
    too_few = [
        f"only {runs.share} {place}"
        for runs, place in ((one_rank, "with one rank"), (several_ranks, "of this cell"))
        if runs.median_seconds is None
    ]
    return f"{join_words(too_few)} reached the target, no more than half"


def _learning_speedup_by_loss(
    base_records: Sequence[Record], records: Sequence[Record], target_loss: float
) -> tuple[tuple[float, float, float | None, float | None], ...]:
    """Return points (test loss, learning speed-up, lower bound, upper bound).

    Return up to _CURVE_POINTS points. Their test losses range from `target_loss` to just below the
    lowest test loss after the first epoch of a run: within the first epoch, times are not known.
    """
    epoch_losses = [r.learning[0].test_loss for r in (*base_records, *records) if r.learning]
    first_losses = [loss for loss in epoch_losses if loss is not None]
    if not first_losses or min(first_losses) <= target_loss:
        return ()
    step = math.log(min(first_losses) / target_loss) / _CURVE_POINTS
    points = []
    for number in range(_CURVE_POINTS):
        loss = target_loss * math.exp(step * number)
        speedup = learning_speedup(
            runs_to_test_loss(base_records, loss), runs_to_test_loss(records, loss)
        )
        if speedup:
            points.append((loss, speedup.value, speedup.low, speedup.high))
    return tuple(points)


def _build_speedup_value(
    cell: MeasuredCell,
    label: str,
    speedup_kind: str,
    interval: Interval | None,
    reason: str | None,
    runs: Sequence[RunsToTarget] = (),
) -> Value:
    """Return the value of one speed-up.

    `runs`: of a learning speed-up, the runs with one rank and those of the cell.
    """
    fields: dict[str, Any] = {
        **analyses.settings_and_strategy_options(cell),
        "speedup": speedup_kind,
    }
    note = "S, throughput" if speedup_kind == PARALLEL else ""
    if runs:
        note = "L, time to target"
        if any(side.reached < len(side.times) for side in runs):
            note += f" ({' and '.join(side.share for side in runs)} reached it)"
    value = Value(
        name=f"{label} · {speedup_kind}" if speedup_kind else label,
        at=of_cells.format_setting("ranks", cell.request.ranks),
        x=float(cell.request.ranks),
        interval=interval,
        fields=fields,
        reason=reason,
        note=note,
    )
    if interval is None and reason is None:
        return replace(value, reason="no launch counts")
    return value
