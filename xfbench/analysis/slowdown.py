"""Tables over several networks: how much slower each group is than the fastest in each network.

A line is one group, for example all rows of a framework (see `best.py`). A column is a network with
its solver, data and batch size. An entry shows the slowdown of the group's best row in the network,
or the reason why there is no slowdown.
`xfbench/rendering/slowdown_tables.py` renders the tables.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xfbench import pairwise
from xfbench.analysis import best
from xfbench.analysis.leaderboard import Row, Table
from xfbench.model.strategy import Value
from xfbench.statistics import Interval

DEFAULT_BY = ("framework",)
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Entry:
    """The entry of one group in one network.

    - `slowdown`: throughput of the network's fastest group divided by that of this group. It is 1
      without an interval for the fastest group, and None if the group is not ranked.
    - `row`: the best row of the group in this network; None if the group was not measured there.
    - `reason`: why there is no slowdown; None if there is one.
    """

    slowdown: Interval | None
    row: Row | None
    reason: str | None

    def document(self) -> dict[str, Any]:
        """Return the entry as `--json` prints it."""
        return {
            "slowdown": self.slowdown and asdict(self.slowdown),
            "reason": self.reason,
            "configuration": self.row and self.row.document(),
        }


@dataclass(frozen=True)
class Network:
    """A column of the table: a network with its solver, data and batch size.

    `name`: heading of the column. No other column has the same.
    """

    name: str
    workload: str
    data: str
    batch_size: int


@dataclass(frozen=True)
class Line:
    """A line of the table: one group in all networks.

    - `group`: the values of the group's fields.
    - `entries`: one entry for each network, in the order of `Slowdown.networks`.
    - `overall`: geometric mean of the group's slowdowns in the networks of `Slowdown.common`, with
      its interval. It is None if the group has no slowdown, or `Slowdown.common` has fewer than
      two networks.
    """

    group: Mapping[str, Value | None]
    entries: tuple[Entry, ...]
    overall: Interval | None

    @property
    def name(self) -> str:
        """Return the group's values as one text, for example "torch · 8"."""
        return " · ".join("–" if value is None else str(value) for value in self.group.values())


@dataclass(frozen=True)
class Slowdown:
    """One table: the conditions that all lines share, its networks (columns) and its lines.

    - `by`: the fields that form the groups.
    - `lines`: lowest overall slowdown first.
    - `common`: names of the common networks. A network is common if it has a slowdown for every
      line that has any slowdown.
    """

    device: str
    precision: str
    scaling: str | None
    machine: str
    by: tuple[str, ...]
    networks: tuple[Network, ...]
    lines: tuple[Line, ...]
    common: tuple[str, ...]

    @property
    def title(self) -> str:
        """Return the conditions as one line."""
        scaling = f"{self.scaling} scaling" if self.scaling else ""
        best_by = f"best by {', '.join(self.by)}"
        conditions = [self.precision, self.device, scaling, self.machine]
        return " · ".join(filter(None, ["slowdown against the best", *conditions, best_by]))

    def document(self) -> dict[str, Any]:
        """Return the table as `--json` prints it."""
        head = {name: getattr(self, name) for name in ("device", "precision", "scaling", "machine")}
        return {
            **{name: value or None for name, value in head.items()},
            "by": list(self.by),
            "networks": [asdict(network) for network in self.networks],
            "common": list(self.common),
            "rows": [
                {
                    "group": dict(line.group),
                    "networks": [
                        {"network": network.name, **entry.document()}
                        for network, entry in zip(self.networks, line.entries, strict=True)
                    ],
                    "overall": line.overall and asdict(line.overall),
                }
                for line in self.lines
            ],
        }


def build_slowdown_tables(
    tables: Iterable[Table],
    group_fields: Sequence[str] = DEFAULT_BY,
    *,
    with_leaderboard_ranks: bool = True,
) -> list[Slowdown]:
    """Return one slowdown table for each device, precision, scaling and kind of machine.

    - `tables`: the leaderboards of the networks.
    - `group_fields`: the fields that form the groups; if empty, `DEFAULT_BY`.
    - `with_leaderboard_ranks`: whether the rows in entries have a rank. Without ranks it is faster.
    """
    tables_by_heading: dict[tuple[str, ...], list[Table]] = defaultdict(list)
    for table in best.keep_best_row_per_group(
        tables, group_fields or DEFAULT_BY, with_leaderboard_ranks=with_leaderboard_ranks
    ):
        tables_by_heading[table.device, table.precision, table.scaling or "", table.machine].append(
            table
        )
    return [_build_slowdown_table(group) for _, group in sorted(tables_by_heading.items())]


def _build_slowdown_table(tables: Sequence[Table]) -> Slowdown:
    rows_by_group = [
        {tuple(row.group.values()): row for row in (*table.rows, *table.unranked)}
        for table in tables
    ]
    groups = sorted({group for rows in rows_by_group for group in rows}, key=_mixed_sort_key)
    entries = {
        group: [
            _build_entry(table, rows.get(group))
            for table, rows in zip(tables, rows_by_group, strict=True)
        ]
        for group in groups
    }
    measured_entries = [
        group_entries
        for group_entries in entries.values()
        if any(entry.slowdown for entry in group_entries)
    ]
    common = [
        n
        for n in range(len(tables))
        if measured_entries and all(group_entries[n].slowdown for group_entries in measured_entries)
    ]
    head, networks = tables[0], _name_networks(tables)
    lines = [
        Line(
            dict(zip(head.by, group, strict=True)),
            tuple(group_entries),
            _overall_slowdown(tables, group_entries, common)
            if group_entries in measured_entries
            else None,
        )
        for group, group_entries in entries.items()
    ]
    return Slowdown(
        head.device,
        head.precision,
        head.scaling,
        head.machine,
        head.by,
        tuple(networks),
        tuple(sorted(lines, key=_lowest_slowdown_first_key)),
        tuple(networks[n].name for n in common),
    )


def _build_entry(table: Table, row: Row | None) -> Entry:
    if row is None:
        return Entry(None, None, NOT_MEASURED)
    if row.reason is not None:
        return Entry(None, row, row.reason)
    fastest = table.rows[0]
    if row is fastest:
        return Entry(Interval(1.0, None, None, len(row.speeds)), row, None)
    return Entry(pairwise.compare(fastest.speeds, row.speeds).ratio, row, None)


def _overall_slowdown(
    tables: Sequence[Table], entries: Sequence[Entry], common_indices: Sequence[int]
) -> Interval | None:
    pairs = [
        (tables[n].rows[0].speeds, row.speeds) for n in common_indices if (row := entries[n].row)
    ]
    return pairwise.overall_ratio(pairs) if len(pairs) > 1 else None


def _name_networks(tables: Sequence[Table]) -> list[Network]:
    """Return each table's network, named by workload and changed solver settings.

    If a workload has several data sets or batch sizes, the name also contains them.
    """

    def network_name(table: Table) -> str:
        same_workload = [candidate for candidate in tables if candidate.workload == table.workload]
        parts = [table.workload, *filter(None, [table.solver])]
        parts += [table.data] if len({candidate.data for candidate in same_workload}) > 1 else []
        if len({candidate.batch_size for candidate in same_workload}) > 1:
            parts.append(f"batch {table.batch_size}")
        return " · ".join(parts)

    return [
        Network(network_name(table), table.workload, table.data, table.batch_size)
        for table in tables
    ]


def _lowest_slowdown_first_key(line: Line) -> tuple[Any, ...]:
    """Return a sort key: lowest overall slowdown first, then most networks with a slowdown."""
    values = [entry.slowdown.value for entry in line.entries if entry.slowdown]
    mean = line.overall.value if line.overall else math.inf
    return mean, -len(values), math.prod(values), _mixed_sort_key(tuple(line.group.values()))


def _mixed_sort_key(values: tuple[Value | None, ...]) -> tuple[tuple[bool, int, str], ...]:
    """Return a sort key for values of different types: texts, then numbers by size, then None."""
    return tuple(
        (value is None, value if isinstance(value, int) else 0, str(value)) for value in values
    )
