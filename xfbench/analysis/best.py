"""Reduction of leaderboards to the best row of each group.

A group has all rows of, for example, one framework, one number of threads or one kind of machine.
The best row is selected by its measured throughput. The selection prefers rows that were lucky, so
the throughput of the best row is more likely too high than too low. The rank is not overstated in
this way. To rank before another group, the best row must be faster than every row of that group
(see docs/method.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from xfbench.analysis.leaderboard import Row, Table, add_relative_speed_and_sort
from xfbench.base import errors
from xfbench.model import settings
from xfbench.model.request import SOLVER, Cell
from xfbench.model.strategy import Value, format_options
from xfbench.pairwise import rank_groups

ROW = "row"
# Fields that cannot form groups. Different networks or solvers cannot be compared by speed, and a
# row has the launches of all seeds.
_ONE_ROW = ("workload", *SOLVER, "seed")
FIELDS = (
    *(name for name in Cell.model_fields if name not in _ONE_ROW),
    *("machine", "framework_version"),
)
# For each field in the heading of a table, the attribute of `Table`.
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


def parse_group_fields(text: str) -> tuple[str, ...]:
    """Return the fields in a text such as "framework,threads". Options stand for their fields.

    The text "row" stands for no grouping and gives an empty tuple. Raises UsageError if a field is
    unknown or cannot form groups.
    """
    typed_names = [name.strip() for name in text.split(",")]
    names = dict.fromkeys(
        name if name in FIELDS else settings.find_record_field(name) for name in typed_names
    )
    if typed_names == [ROW]:
        return ()
    for name in names:
        if name in _ONE_ROW:
            reason = "networks and solvers have separate tables; --view slowdown compares them"
            reason = "a row covers all seeds" if name == "seed" else reason
            raise errors.UsageError(f"--by {name}: {reason}")
        if name not in FIELDS:
            raise errors.unknown_name_error("field", name, (ROW, *FIELDS))
    return tuple(names)


def keep_best_row_per_group(
    tables: Iterable[Table], group_fields: Sequence[str], *, with_leaderboard_ranks: bool = True
) -> list[Table]:
    """Return the tables with only the best row of each group.

    - `group_fields`: the fields that form the groups. Each combination of their values is a group.
      If empty, the tables are returned unchanged.
    - `with_leaderboard_ranks`: whether rows have a rank. Ranking compares all rows with all others.

    A field in `group_fields` is removed from the heading, and tables that differ only in that field
    are merged. Rows that xfbench did not measure are left out.

    The best row of a group is found in three steps:

    1. If any row is ranked, unranked rows are left out.
    2. If any remaining row has three or more launches that count, rows with fewer are left out.
    3. The fastest remaining row is the best.
    """
    if not group_fields:
        return list(tables)
    grouped_fields = {_IN_HEADING[name] for name in group_fields if name in _IN_HEADING}
    rows_by_table: dict[Any, dict[Any, list[Row]]] = defaultdict(lambda: defaultdict(list))
    heads: dict[Any, Table] = {}
    for table in tables:
        empty = {name: _EMPTY.get(name, "") for name in sorted(grouped_fields)}
        head = replace(table, rows=(), unranked=(), by=tuple(group_fields), **empty)
        key = _heading_key(head)
        heads[key] = head
        for row in (*table.rows, *table.unranked):
            if row.source == "measured":
                rows_by_table[key][
                    tuple(_setting_value(name, table, row) for name in group_fields)
                ].append(row)
    return [
        _build_table(heads[key], groups, with_leaderboard_ranks)
        for key, groups in sorted(rows_by_table.items())
    ]


def _build_table(head: Table, groups: dict[Any, list[Row]], with_leaderboard_ranks: bool) -> Table:
    best_rows: list[Row] = []
    ranked: dict[tuple[Value | None, ...], list[Row]] = {}
    for values, rows in groups.items():
        fastest, *slower = sorted(add_relative_speed_and_sort(rows), key=_reliability_sort_key)
        ranked[values] = [row for row in (fastest, *slower) if row.reason is None]
        best_row = replace(
            fastest,
            rank=None,
            relative_interval=None,
            group=dict(zip(head.by, values, strict=True)),
            configurations=len(rows),
            configurations_ranked=len(ranked[values]),
        )
        best_rows.append(best_row)
    best_rows = add_relative_speed_and_sort(best_rows)
    ranked_rows = [row for row in best_rows if row.reason is None]
    if with_leaderboard_ranks:
        speeds = [
            [row.speeds for row in ranked[tuple(best_row.group.values())]]
            for best_row in ranked_rows
        ]
        ranking = rank_groups(speeds)
        ranked_rows = [
            replace(row, rank=rank, relative_interval=interval)
            for row, rank, interval in zip(
                ranked_rows, ranking.ranks, ranking.relative, strict=True
            )
        ]
    return replace(
        head,
        rows=tuple(ranked_rows),
        unranked=tuple(row for row in best_rows if row.reason is not None),
    )


def _reliability_sort_key(row: Row) -> tuple[bool, bool]:
    """Return a sort key: ranked rows first, and among these, rows with enough launches first.

    Three launches are enough. Of many rows with fewer launches, one may be fastest by chance.
    """
    speed = row.images_per_second
    return row.reason is not None, speed is None or speed.label == "smoke"


def _heading_key(table: Table) -> tuple[Any, ...]:
    conditions = table.workload, table.solver, table.data, table.device, table.precision
    return (*conditions, table.scaling or "", table.batch_size, table.machine)


def _setting_value(name: str, table: Table, row: Row) -> Value | None:
    if name == "machine":
        return table.machine
    if name == "kernel":
        return row.kernel  # the observed kernel
    if name == "framework_version":
        return row.framework_version
    value = getattr(row.request, name)
    if name == "strategy_options":
        return format_options(value) or None
    if name == "data_set":
        return value and str(value.place)
    assert value is None or isinstance(value, str | int)
    return value
