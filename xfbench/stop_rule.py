"""When the launches of a leaderboard's cells end: what their earlier launches decide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from xfbench import pairwise, statistics
from xfbench.model.plan import Plan
from xfbench.model.record import Record
from xfbench.model.request import Cell, Protocol


def leave_out_decided(plan: Plan, records: Sequence[Record]) -> Plan:
    """Return the plan without the requests of leaderboards that need no more launches.

    `records`: the records of earlier launches of the plan's cells.
    """
    protocols = dict(plan.protocols)
    records_by_cell: dict[Cell, list[Record]] = {}
    for request in plan.requests:
        records_by_cell.setdefault(request.cell(), [])
    for record in records:
        if record.request and record.request.cell() in records_by_cell:
            records_by_cell[record.request.cell()].append(record)
    tables: dict[object, dict[Cell, Sequence[Record]]] = defaultdict(dict)
    for cell, of_cell in records_by_cell.items():
        tables[cell.table_key][cell] = of_cell
    open_tables = {
        key
        for key, cells in tables.items()
        if not all(is_precise(of_cell, protocols.get(cell)) for cell, of_cell in cells.items())
        and judge_order(cells, protocols, is_first=True) == "open"
    }
    requests = tuple(
        request for request in plan.requests if request.cell().table_key in open_tables
    )
    return plan.model_copy(update={"requests": requests})


def is_precise(records: Sequence[Record], protocol: Protocol | None) -> bool:
    """Return whether a cell with these records has reached the precision in its protocol.

    A protocol that asks for the order only has no precision to reach.
    """
    if protocol is None or protocol.precision is None or protocol.ranked:
        return False
    if len(records) < protocol.least:
        return False
    speeds = statistics.counted_speeds_by_block(records)
    if not speeds:
        return True  # more launches of a cell that always fails say nothing new
    return len(speeds) >= protocol.least and statistics.is_precise(speeds, protocol.precision)


def judge_order(
    records: Mapping[Cell, Sequence[Record]],
    protocols: Mapping[Cell, Protocol],
    *,
    is_first: bool,
) -> Literal["known", "hidden", "open"]:
    """Return what is known of the order of a leaderboard's cells (see `pairwise.judge_order`).

    It is "open" if the protocols do not ask for the order, or between two looks. Cells without a
    launch that counts are left out, if each has enough launches. `is_first` is whether the session
    has not launched the cells yet: then earlier launches are looked at whatever their number. The
    order does not become "known" between two looks, because its error is divided among the looks.
    """
    cell_protocols = [protocols.get(cell) for cell in records]
    ranked = [protocol for protocol in cell_protocols if protocol and protocol.ranked]
    if not ranked or len(ranked) < len(cell_protocols):
        return "open"
    least, most = (max(getattr(each, name) for each in ranked) for name in ("least", "most"))
    looks = pairwise.list_looks(least, most)
    speeds = [statistics.counted_speeds_by_block(each) for each in records.values()]
    counts = {len(of_cell) for of_cell in speeds if of_cell}
    launches = min(map(len, records.values()))
    if not (launches in looks or is_first) or min(counts, default=0) < least:
        return "open"
    order = pairwise.judge_order(
        [of_cell for of_cell in speeds if of_cell],
        min(protocol.precision or 0.0 for protocol in ranked),
        most=most,
        looks=len(looks),
    )
    return "open" if order == "known" and launches not in looks else order
