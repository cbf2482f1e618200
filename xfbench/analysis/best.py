"""The best of each: a leaderboard's rows reduced to the fastest of every group.

Of each framework at its best setting, of each number of threads, of each kind of machine. The
fastest of many was chosen by the launches that say how fast it is, so that its throughput is
more likely too high than too low; its rank is not surer than it should be, since it must
be faster than everything of another group (see docs/method.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from xfbench.analysis.leaderboard import Row, Table, in_order
from xfbench.analysis.statistics import group_ranks
from xfbench.base import errors
from xfbench.request import SOLVER, Cell
from xfbench.strategy import Value, words

ROW = "row"
# Of two networks, or two ways to train one, nothing compares; a row is of all seeds.
_ONE_ROW = ("workload", *SOLVER, "seed")
FIELDS = (
    *(name for name in Cell.model_fields if name not in _ONE_ROW),
    *("machine", "framework_version"),
)
# What is said in a table's heading, where rows are not by it.
_IN_HEADING = {
    "data": "data",
    "data_set": "data",
    "device": "device",
    "precision": "precision",
    "scaling": "scaling",
    "global_batch_size": "batch_size",
    "batch_size_per_rank": "batch_size",
    "machine": "machine",
}
_EMPTY: dict[str, Any] = {"batch_size": 0, "scaling": None}


def parse(text: str) -> tuple[str, ...]:
    """Fields from "framework,threads"; none from "row". Raises UsageError on an unknown one."""
    names = dict.fromkeys(name.strip() for name in text.split(","))
    if list(names) == [ROW]:
        return ()
    for name in names:
        if name in _ONE_ROW:
            why = "networks are compared by --columns slowdown"
            why = "a row is of all seeds" if name == "seed" else why
            raise errors.UsageError(f"--by {name}: {why}")
        if name not in FIELDS:
            raise errors.unknown_name_error("field", name, (ROW, *FIELDS))
    return tuple(names)


def of_each(tables: Iterable[Table], by: Sequence[str], *, places: bool = True) -> list[Table]:
    """The tables with one row for each combination of the fields' values: the best of those alike.

    The best is the fastest that is ranked and has launches enough to be indicative, else the
    fastest that is ranked, else the fastest. A field of the heading that rows
    are by is no longer in it, and tables that were apart by it alone are one. Without `places`
    no row has a rank, which takes comparing everything with everything. What was not measured
    by xfbench is no one's best.
    """
    if not by:
        return list(tables)
    apart = {_IN_HEADING[name] for name in by if name in _IN_HEADING}
    joined: dict[Any, dict[Any, list[Row]]] = defaultdict(lambda: defaultdict(list))
    heads: dict[Any, Table] = {}
    for table in tables:
        empty = {name: _EMPTY.get(name, "") for name in sorted(apart)}
        head = replace(table, rows=(), unranked=(), by=tuple(by), **empty)
        key = _key(head)
        heads[key] = head
        for row in (*table.rows, *table.unranked):
            if row.source == "measured":
                joined[key][tuple(_value(name, table, row) for name in by)].append(row)
    return [_table(heads[key], groups, places) for key, groups in sorted(joined.items())]


def _table(head: Table, groups: dict[Any, list[Row]], places: bool) -> Table:
    best: list[Row] = []
    ranked: dict[tuple[Value | None, ...], list[Row]] = {}
    for values, rows in groups.items():
        first, *rest = sorted(in_order(rows), key=_last)
        ranked[values] = [row for row in (first, *rest) if row.reason is None]
        shown = replace(
            first,
            rank=None,
            group=dict(zip(head.by, values, strict=True)),
            configurations=len(rows),
            configurations_ranked=len(ranked[values]),
        )
        best.append(shown)
    best = in_order(best)
    found = [row for row in best if row.reason is None]
    if places:
        speeds = [[row.speeds for row in ranked[tuple(one.group.values())]] for one in found]
        ranks = group_ranks(speeds)
        found = [replace(row, rank=place) for row, place in zip(found, ranks, strict=True)]
    return replace(
        head, rows=tuple(found), unranked=tuple(row for row in best if row.reason is not None)
    )


def _last(row: Row) -> tuple[bool, bool]:
    """What comes after the others: of many that were tried once, one was lucky."""
    speed = row.images_per_second
    return row.reason is not None, speed is None or speed.label == "smoke"


def _key(table: Table) -> tuple[Any, ...]:
    where = table.workload, table.solver, table.data, table.device, table.precision
    return (*where, table.scaling or "", table.batch_size, table.machine)


def _value(name: str, table: Table, row: Row) -> Value | None:
    if name == "machine":
        return table.machine
    if name == "kernel":
        return row.kernel  # the one that was observed
    if name == "framework_version":
        return row.framework_version
    value = getattr(row.request, name)
    if name == "strategy_options":
        return words(value) or None
    if name == "data_set":
        return value and str(value.place)
    assert value is None or isinstance(value, str | int)
    return value
