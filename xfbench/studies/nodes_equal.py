"""How many nodes of one kind of machine are as fast as one node of another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xfbench import pairwise
from xfbench.analysis.leaderboard import Certificates
from xfbench.planning.study_form import Analysis
from xfbench.statistics import Interval, Launches, interval_of_launches
from xfbench.studies import cells as of_cells
from xfbench.studies import machine_comparison
from xfbench.studies.analyses import settings_and_strategy_options
from xfbench.studies.cells import MeasuredCell
from xfbench.studies.finding import Finding, Value, judge_claims_with_bounds
from xfbench.studies.quantities import Quantity, find_quantity, score_launches
from xfbench.studies.wording import (
    format_bounds_without_unit,
    format_number_without_unit,
    format_value_with_bounds,
)

_FREE_SETTINGS = ("nodes", "ranks", "strategy", "scaling")
_OMITTED = ("machine", "device", "kernel", "threads", *_FREE_SETTINGS)
_HEADERS = ("configuration", "machine", "nodes", "uncertainty", "as fast as one node of")
_NOTHING = "There are no machines to compare."
_MAX_EXAMPLES = 3

CellsByNodes = Mapping[int, MeasuredCell]


@dataclass(frozen=True)
class _Row:
    """The comparison of a machine, on each of its numbers of nodes, with one node of another.

    - `cells`: the cells of the machine by their number of nodes.
    - `baseline`: the cell of the other machine on one node.
    """

    configuration: str
    machine: str
    cells: CellsByNodes
    baseline: MeasuredCell


def analyze_nodes_equal(
    analysis: Analysis, cells: Sequence[MeasuredCell], certificates: Certificates
) -> Finding:
    """Return a finding with the number of nodes of each machine that are as fast as one of another.

    `analysis.against` chooses the other machine: a part of its name, or "best" for the fastest
    node. Its values are times relative to that node. Cells have one rank on each node, and the same
    global batch on all numbers of nodes (strong scaling).
    """
    quantity = find_quantity(analysis)
    rows = _build_rows(analysis, cells, quantity, certificates)
    values: list[Value] = []
    lines: list[tuple[str, ...]] = []
    answers: list[str] = []
    for row, outcomes in zip(rows, _compare_rows(rows, quantity, certificates), strict=True):
        values += [_build_value(row, nodes, outcome) for nodes, outcome in outcomes.items()]
        times = {n: outcome for n, outcome in outcomes.items() if isinstance(outcome, Interval)}
        if times:
            number, uncertainty = _count_nodes(times)
            target = str(row.baseline.setting("machine"))
            lines.append((row.configuration, row.machine, number, uncertainty, target))
            answers.append(f"{row.machine}, against {target} ({row.configuration}): {number}")
    plain_analysis, verdicts = machine_comparison.judge_claims_against_machines(
        analysis, cells, certificates, analyze_nodes_equal
    )
    return Finding(
        title=analysis.title or "Nodes that are as fast as one node of another machine",
        sentence=_describe_answers(answers, values),
        over="nodes",
        unit="times",
        values=tuple(values),
        judged=(
            *verdicts,
            *judge_claims_with_bounds(
                plain_analysis.claim,
                values,
                lambda interval: format_value_with_bounds(interval, "times"),
                are_joint=True,
            ),
        ),
        plot=analysis.plot,
        beside=analysis.beside,
        notes=tuple(machine_comparison.describe_missing_intervals(values)),
        table=(_HEADERS, *lines) if lines else (),
    )


def _build_rows(
    analysis: Analysis,
    cells: Sequence[MeasuredCell],
    quantity: Quantity,
    certificates: Certificates,
) -> list[_Row]:
    one_rank_per_node = [
        cell
        for cell in cells
        if cell.request.ranks == cell.request.nodes
        and cell.request.scaling in (None, "strong")
        and _scores(cell, quantity)
    ]
    rows = []
    for group in of_cells.comparison_groups(one_rank_per_node, "machine", _FREE_SETTINGS):
        cells_by_machine: dict[str, dict[int, MeasuredCell]] = defaultdict(dict)
        for cell in machine_comparison.choose_best_cells(
            group, quantity, certificates, ("machine", "nodes")
        ):
            cells_by_machine[str(cell.setting("machine"))][cell.request.nodes] = cell
        candidates = [by_nodes[1] for by_nodes in cells_by_machine.values() if 1 in by_nodes]
        if analysis.against != "best":
            expected = {"machine": str(analysis.against)}
            candidates = [cell for cell in candidates if cell.matches(expected)]
        if not candidates:
            continue
        baseline = max(candidates, key=lambda cell: _score(cell, quantity))
        name = of_cells.cell_name(baseline, cells, _OMITTED)
        rows += [
            _Row(name, machine, dict(sorted(by_nodes.items())), baseline)
            for machine, by_nodes in cells_by_machine.items()
            if machine != baseline.setting("machine")
        ]
    return rows


def _compare_rows(
    rows: Sequence[_Row], quantity: Quantity, certificates: Certificates
) -> list[dict[int, Interval | str]]:
    """Return the times relative to the baseline of each row, by number of nodes.

    If two cells cannot be compared, the reason is in place of the time. The intervals of all rows
    hold together.
    """
    pairs = [(cell, row.baseline) for row in rows for cell in row.cells.values()]
    reasons = [of_cells.incomparable_reason(*pair, certificates) for pair in pairs]
    comparisons = iter(
        pairwise.compare_all(
            [
                (_scores(baseline, quantity), _scores(cell, quantity))
                for (cell, baseline), reason in zip(pairs, reasons, strict=True)
                if not reason
            ]
        )
    )
    outcomes = iter([reason or next(comparisons).ratio for reason in reasons])
    return [{nodes: next(outcomes) for nodes in row.cells} for row in rows]


def _scores(cell: MeasuredCell, quantity: Quantity) -> Launches:
    launches = machine_comparison.launches_to_compare(quantity, cell.records, "machine")
    return score_launches(launches, quantity)


def _score(cell: MeasuredCell, quantity: Quantity) -> float:
    return interval_of_launches(_scores(cell, quantity)).value


def _build_value(row: _Row, nodes: int, outcome: Interval | str) -> Value:
    return Value(
        name=f"{row.configuration} · {row.machine}",
        at=of_cells.format_setting("nodes", nodes),
        x=float(nodes),
        interval=outcome if isinstance(outcome, Interval) else None,
        fields=settings_and_strategy_options(row.cells[nodes]),
        reason=outcome if isinstance(outcome, str) else None,
        note=f"against one node of {row.baseline.setting('machine')}",
    )


def _count_nodes(times: Mapping[int, Interval]) -> tuple[str, str]:
    """Return the number of nodes that are as fast as the other node, and its uncertainty.

    `times` has the time relative to the other node for each number of nodes. The number is the
    least that was measured and is not slower. If only one node was measured, it is the ratio, as if
    scaling were perfect.
    """
    if [*times] == [1]:
        bounds = format_bounds_without_unit(times[1], "times").replace(" – ", " and ")
        uncertainty = "no interval" if bounds == "–" else f"between {bounds}"
        number = format_number_without_unit(times[1].value, "times")
        return f"about {number}, if scaling were perfect", uncertainty
    most = max(times)

    def least(is_enough: Sequence[int]) -> str:
        return str(min(is_enough)) if is_enough else f"more than {most}"

    number = least([nodes for nodes, time in times.items() if time.value <= 1])
    bounded = {nodes: time for nodes, time in times.items() if time.low is not None}
    if len(bounded) < len(times):
        return number, "no interval"
    low = least([nodes for nodes, time in times.items() if time.low is not None and time.low <= 1])
    high = least(
        [nodes for nodes, time in times.items() if time.high is not None and time.high <= 1]
    )
    return number, low if low == high else f"between {low} and {high}"


def _describe_answers(answers: Sequence[str], values: Sequence[Value]) -> str:
    if not answers:
        return next((f"{value.reason}." for value in values if value.reason), _NOTHING)
    more = len(answers) - _MAX_EXAMPLES
    ending = f" The table has {more} more." if more > 0 else ""
    return f"Nodes that are as fast as one node: {'; '.join(answers[:_MAX_EXAMPLES])}.{ending}"
