"""The analysis of training that diverges: launches whose loss became no number.

Such a launch is `invalid`, and none of its figures counts; that it diverged is what was found.
"""

from __future__ import annotations

from collections.abc import Sequence

from xfbench.analysis.leaderboard import Certificates
from xfbench.analysis.statistics import Interval
from xfbench.studies import analyses
from xfbench.studies import cells as of_cells
from xfbench.studies.cells import Measured
from xfbench.studies.finding import Finding, Value, judge
from xfbench.studies.form import Analysis
from xfbench.studies.wording import figure, joined, plural


def diverged(of: Analysis, cells: Sequence[Measured], _: Certificates) -> Finding:
    """Of each cell the share of its launches that diverged, and where the first one did."""
    found: list[Value] = []
    told: list[str] = []
    for one in cells:
        lost = one.diverged()
        ran = len(one.steady()) + len(lost)
        share = Interval(len(lost) / ran, None, None, ran) if ran else None
        note = ""
        if lost:
            note = f"{len(lost)} of {plural(ran, 'launch')}: {lost[0].reason}"
            told.append(f"{of_cells.name(one, cells)} ({len(lost)} of {plural(ran, 'launch')})")
        reason = None if share else "no launch of it ran to its end"
        row = Value(
            name=of_cells.name(one, cells),
            at="",
            x=None,
            interval=share,
            fields=analyses.fields(one),
            reason=reason,
            note=note,
        )
        found.append(row)
    ran_at_all = sum(one.interval is not None for one in found)
    sentence = analyses.NOTHING
    if told:
        sentence = f"{len(told)} of {plural(ran_at_all, 'configuration')} diverged: {joined(told)}."
    elif ran_at_all:
        sentence = f"None of {plural(ran_at_all, 'configuration')} diverged."
    return Finding(
        title=of.title or "What diverged",
        sentence=sentence,
        over="",
        unit="%",
        values=tuple(found),
        judged=judge(of.claim, found, lambda interval: figure(interval, "%")),
        plot="none",
        beside=of.beside,
    )
