"""The analysis of parallel speed-up against learning speed-up (`analysis/learning.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xfbench.analysis import statistics
from xfbench.analysis.leaderboard import Certificates
from xfbench.analysis.learning import best_loss, common_loss, times_to_loss
from xfbench.analysis.statistics import Interval
from xfbench.records.record import Record
from xfbench.studies import analyses
from xfbench.studies import cells as of_cells
from xfbench.studies.cells import Measured
from xfbench.studies.finding import Curve, Finding, Value, judge
from xfbench.studies.form import Analysis
from xfbench.studies.quantities import QUANTITIES, launches
from xfbench.studies.wording import figure, joined, plural

_LEVELS = 12  # points of the curve over the loss
PARALLEL, LEARNING = "parallel", "learning"


def learning_speedup(
    of: Analysis, cells: Sequence[Measured], certificates: Certificates
) -> Finding:
    """Both speed-ups of each number of ranks against one, and the learning one over the loss."""
    what = QUANTITIES["images_per_second"]
    found: list[Value] = []
    curves: list[Curve] = []
    notes: list[str] = []
    told: list[str] = []
    for group in of_cells.alike(cells, "ranks"):
        trained = {id(one): [r for r in one.steady() if r.learning] for one in group}
        runs = [one for one in group if trained[id(one)]]
        label = of_cells.name(group[0], cells, ("ranks", "strategy"))
        lost = _diverged([record for one in runs for record in trained[id(one)]])
        if lost:
            notes.append(f"{label}: {plural(lost, 'run')} diverged: their loss is no number")
        level = common_loss(
            [r for one in runs for r in trained[id(one)] if best_loss(r) is not None]
        )
        if not runs or runs[0].request.ranks != 1 or level is None or len(runs) < 2:
            found += [_row(one, label, "", None, "one rank and more are needed") for one in group]
            continue
        base = runs[0]
        notes.append(f"{label}: ℓ* is a test loss of {level:.3g}, which every run reached")
        for one in runs[1:]:
            reason = of_cells.comparable(one, base, certificates)
            speeds = [launches(what, each.records) for each in (one, base)]
            parallel = statistics.compare(*speeds).ratio if all(speeds) else None
            times = [times_to_loss(trained[id(each)], level) for each in (base, one)]
            learning = statistics.compare(*times).ratio if all(times) else None
            if not learning and not reason:
                reason = "no run of it, or of one rank, has a loss that is a number"
            if reason:
                parallel = learning = None  # one without the other would say too much
            found.append(_row(one, label, PARALLEL, parallel, reason))
            found.append(_row(one, label, LEARNING, learning, reason))
            if parallel and learning:
                ranks = of_cells.worded("ranks", one.request.ranks)
                told.append(
                    f"{label} on {ranks} does {figure(parallel, 'times')} the images a second, "
                    f"and learns {figure(learning, 'times')} as fast"
                )
            curve = _curve(trained[id(base)], trained[id(one)], level)
            if not reason and curve:
                name = f"{label} · {of_cells.worded('ranks', one.request.ranks)}"
                curves.append(Curve(name, curve))
    return Finding(
        title=of.title or "Parallel and learning speed-up",
        sentence=f"{joined(told)}." if told else "There are no two numbers of ranks to compare.",
        over="ranks",
        unit="times",
        values=tuple(found),
        judged=judge(of.claim, found, lambda interval: figure(interval, "times")),
        plot="lines",
        beside=of.beside,
        curves=tuple(curves),
        x_title="test loss",
        notes=tuple(notes),
    )


def _diverged(records: Sequence[Record]) -> int:
    return sum(best_loss(record) is None for record in records)


def _curve(
    base: Sequence[Record], own: Sequence[Record], level: float
) -> tuple[tuple[float, float, float | None, float | None], ...]:
    """L over the loss, from what all had after their first epoch down to the common best."""
    first = [r.learning[0].test_loss for r in (*base, *own) if r.learning]
    known = [loss for loss in first if loss is not None]
    if not known or min(known) <= level or level <= 0:
        return ()
    step = math.log(min(known) / level) / (_LEVELS - 1)
    points = []
    for number in range(_LEVELS):
        loss = level * math.exp(step * number)
        one, many = times_to_loss(base, loss), times_to_loss(own, loss)
        if one and many:
            times: Interval = statistics.compare(one, many).ratio
            points.append((loss, times.value, times.low, times.high))
    return tuple(points)


def _row(
    one: Measured, label: str, kind: str, interval: Interval | None, reason: str | None
) -> Value:
    fields: dict[str, Any] = {**analyses.fields(one), "speedup": kind}
    row = Value(
        name=f"{label} · {kind}" if kind else label,
        at=of_cells.worded("ranks", one.request.ranks),
        x=float(one.request.ranks),
        interval=interval,
        fields=fields,
        reason=reason,
        note="S, images per second" if kind == PARALLEL else "L, time to ℓ*" if kind else "",
    )
    if interval is None and reason is None:
        return replace(row, reason="nothing counts of it")
    return row
