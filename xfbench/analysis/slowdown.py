"""How much slower each is than the best of its network: one table over several networks.

Rows are the best of each framework, or of what else they are by (see `best.py`); a column is a
network with its data and its batch. What has no value says why. How a table looks is
`layout/slowdown_tables.py`'s business.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xfbench import statistics
from xfbench.analysis import best
from xfbench.analysis.leaderboard import Row, Table
from xfbench.model.strategy import Value
from xfbench.statistics import Interval

DEFAULT_BY = ("framework",)
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Entry:
    """One row in one network: how many times the best is as fast, or why that is not known.

    `row` is the configuration, the fastest of `row.configurations`; its rank is among
    its network's. The best itself is 1, without an interval.
    """

    slowdown: Interval | None
    row: Row | None
    reason: str | None

    def document(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "slowdown": self.slowdown and asdict(self.slowdown),
            "reason": self.reason,
            "configuration": self.row and self.row.document(),
        }


@dataclass(frozen=True)
class Network:
    """A column; `name` tells it from the others."""

    name: str
    workload: str
    data: str
    batch_size: int


@dataclass(frozen=True)
class Line:
    """A row: its group by its values, an entry for each network, and their geometric mean."""

    group: Mapping[str, Value | None]
    entries: tuple[Entry, ...]
    overall: Interval | None

    @property
    def name(self) -> str:
        """The group in a few words."""
        return " · ".join("–" if value is None else str(value) for value in self.group.values())


@dataclass(frozen=True)
class Slowdown:
    """One table: what is the same in all of it. Means are over the networks called `common`.

    These are the ones in which every row that has a value anywhere has one; means of fewer than two
    are not given.
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
        scaling = f"{self.scaling} scaling" if self.scaling else ""
        best_by = f"best by {', '.join(self.by)}"
        conditions = [self.precision, self.device, scaling, self.machine]
        return " · ".join(filter(None, ["slowdown against the best", *conditions, best_by]))

    def document(self) -> dict[str, Any]:
        """As `--json` prints it."""
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


def slowdowns(
    tables: Iterable[Table], by: Sequence[str] = DEFAULT_BY, *, with_ranks: bool = True
) -> list[Slowdown]:
    """One of each device, precision, scaling and kind of machine among the leaderboards.

    Rows that are shown have a rank only with `with_ranks`.
    """
    tables_by_heading: dict[tuple[str, ...], list[Table]] = defaultdict(list)
    for table in best.reduce_to_best(tables, by or DEFAULT_BY, with_ranks=with_ranks):
        tables_by_heading[table.device, table.precision, table.scaling or "", table.machine].append(
            table
        )
    return [_slowdown(group) for _, group in sorted(tables_by_heading.items())]


def _slowdown(tables: Sequence[Table]) -> Slowdown:
    rows_by_group = [
        {tuple(row.group.values()): row for row in (*table.rows, *table.unranked)}
        for table in tables
    ]
    groups = sorted({group for rows in rows_by_group for group in rows}, key=_mixed_sort_key)
    entries = {
        group: [
            _entry(table, rows.get(group))
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
    head, networks = tables[0], _networks(tables)
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
        tuple(sorted(lines, key=_sort_key)),
        tuple(networks[n].name for n in common),
    )


def _entry(table: Table, row: Row | None) -> Entry:
    if row is None:
        return Entry(None, None, NOT_MEASURED)
    if row.reason is not None:
        return Entry(None, row, row.reason)
    fastest = table.rows[0]
    if row is fastest:
        return Entry(Interval(1.0, None, None, len(row.speeds)), row, None)
    return Entry(statistics.compare(fastest.speeds, row.speeds).ratio, row, None)


def _overall_slowdown(
    tables: Sequence[Table], entries: Sequence[Entry], common: Sequence[int]
) -> Interval | None:
    pairs = [(tables[n].rows[0].speeds, row.speeds) for n in common if (row := entries[n].row)]
    return statistics.overall_ratio(pairs) if len(pairs) > 1 else None


def _networks(tables: Sequence[Table]) -> list[Network]:
    """Named by what tells them apart: the network, and its data and batch where there are more."""

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


def _sort_key(line: Line) -> tuple[Any, ...]:
    """Return a sort key: lowest slowdown first, then most networks."""
    values = [entry.slowdown.value for entry in line.entries if entry.slowdown]
    mean = line.overall.value if line.overall else math.inf
    return mean, -len(values), math.prod(values), _mixed_sort_key(tuple(line.group.values()))


def _mixed_sort_key(values: tuple[Value | None, ...]) -> tuple[tuple[bool, int, str], ...]:
    """What values of different kinds are ordered by: numbers as such, before texts."""
    return tuple(
        (value is None, value if isinstance(value, int) else 0, str(value)) for value in values
    )
