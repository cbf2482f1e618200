"""The analysis of training that diverges: launches with a non-finite loss.

Such a launch has the status "invalid". Other analyses ignore what it measured. This analysis counts
the launch as diverged.
"""

from __future__ import annotations

from collections.abc import Sequence

from xfbench.analysis.leaderboard import Certificates
from xfbench.base.wording import pluralize
from xfbench.planning.study_form import Analysis
from xfbench.statistics import share_interval
from xfbench.studies import analyses
from xfbench.studies import cells as of_cells
from xfbench.studies.cells import MeasuredCell
from xfbench.studies.finding import Finding, Value, judge_claims_with_bounds
from xfbench.studies.wording import format_value_with_bounds, join_words


def analyze_diverged_share(
    analysis: Analysis, cells: Sequence[MeasuredCell], _: Certificates
) -> Finding:
    """Return a finding with the share of each cell's finished launches that diverged.

    A launch is finished if it is ok or diverged. If launches of a cell diverged, its note states
    the reason in the record of the first of them. This reason has the number of the update.
    """
    values: list[Value] = []
    phrases: list[str] = []
    for cell in cells:
        diverged = cell.diverged_records()
        finished = len(cell.ok_records()) + len(diverged)
        share = share_interval(len(diverged), finished) if finished else None
        note = ""
        if diverged:
            note = f"{len(diverged)} of {pluralize(finished, 'launch')}: {diverged[0].reason}"
            phrases.append(
                f"{of_cells.cell_name(cell, cells)} "
                f"({len(diverged)} of {pluralize(finished, 'launch')})"
            )
        reason = None if share else "no launch finished"
        value = Value(
            name=of_cells.cell_name(cell, cells),
            at="",
            x=None,
            interval=share,
            fields=analyses.settings_and_strategy_options(cell),
            reason=reason,
            note=note,
        )
        values.append(value)
    finished_count = sum(value.interval is not None for value in values)
    sentence = analyses.NOTHING
    if phrases:
        sentence = (
            f"{len(phrases)} of {pluralize(finished_count, 'configuration')} diverged: "
            f"{join_words(phrases)}."
        )
    elif finished_count:
        sentence = f"None of {pluralize(finished_count, 'configuration')} diverged."
    return Finding(
        title=analysis.title or "What diverged",
        sentence=sentence,
        over="",
        unit="%",
        values=tuple(values),
        judged=judge_claims_with_bounds(
            analysis.claim, values, lambda interval: format_value_with_bounds(interval, "%")
        ),
        plot="none",
        beside=analysis.beside,
    )
