"""Tables over several networks: how much slower each group is than a reference.

A line is one group, for example all rows of a framework (see `best.py`). A column is a network with
its solver, data and batch size. An entry shows the slowdown of the group's best row in the network,
or the reason why there is no slowdown.

The reference is one of the groups. It is chosen before the launches, or by a rule that does not
look at their speeds. With the reference `BEST`, each network has its own: the best group, which is
not known (see `best_comparison.py`).
`xfbench/rendering/slowdown_tables.py` renders the tables.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xfbench import pairwise
from xfbench.analysis import best, best_comparison, means
from xfbench.analysis.leaderboard import Row, Table
from xfbench.base import errors
from xfbench.model.strategy import Value
from xfbench.statistics import CONFIDENCE, Interval

DEFAULT_BY = ("framework",)
BEST = "best"
NOT_MEASURED, NO_REFERENCE = "not measured", "no reference"
_PREFERRED_REFERENCE = "torch"  # among frameworks that have a figure in equally many networks

Group = tuple[Value | None, ...]  # the values of the fields that form the groups
_Slowdowns = dict[Group, dict[int, Interval]]  # by group and number of the network
_Averages = tuple[Interval | None, Interval | None]  # `Line.overall` and `Line.total_time`


@dataclass(frozen=True)
class Entry:
    """The entry of one group in one network.

    - `slowdown`: throughput of the reference divided by that of this group. It is 1 without an
      interval for the reference itself, and None if one of both is not ranked.
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
    - `averaged`: names of the networks of the means: those of `Slowdown.common` in which the group
      has a slowdown.
    - `overall`: geometric mean of the slowdowns in these networks, with its interval.
    - `total_time`: time of the group divided by that of the reference, if every one of these
      networks trains the same number of images. It is None if the reference is `BEST`.

    The means are None if there are fewer than two such networks.
    """

    group: Mapping[str, Value | None]
    entries: tuple[Entry, ...]
    averaged: tuple[str, ...]
    overall: Interval | None
    total_time: Interval | None

    @property
    def name(self) -> str:
        """Return the group's values as one text, for example "torch · 8"."""
        return _group_name(tuple(self.group.values()))


@dataclass(frozen=True)
class Slowdown:
    """One table: the conditions that all lines share, its networks (columns) and its lines.

    All intervals of a table hold together with 95 %.

    - `by`: the fields that form the groups.
    - `reference`: name of the line with the reference, or `BEST`.
    - `lines`: lines with means over all common networks first, lowest mean first. Other means are
      over fewer networks, so they cannot be compared with these. Their lines follow, sorted by
      their networks.
    - `common`: names of the networks in which the reference and another group have a figure. If the
      reference is `BEST`: of the networks in which two groups have a figure.
    """

    device: str
    precision: str
    scaling: str | None
    machine: str
    by: tuple[str, ...]
    reference: str
    networks: tuple[Network, ...]
    lines: tuple[Line, ...]
    common: tuple[str, ...]

    @property
    def title(self) -> str:
        """Return the conditions as one line."""
        scaling = f"{self.scaling} scaling" if self.scaling else ""
        best_by = f"best by {', '.join(self.by)}"
        reference = "the best" if self.reference == BEST else self.reference
        conditions = [self.precision, self.device, scaling, self.machine]
        return " · ".join(filter(None, [f"slowdown against {reference}", *conditions, best_by]))

    def document(self) -> dict[str, Any]:
        """Return the table as `--json` prints it."""
        head = {name: getattr(self, name) for name in ("device", "precision", "scaling", "machine")}
        return {
            **{name: value or None for name, value in head.items()},
            "by": list(self.by),
            "reference": self.reference,
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
                    "overall_networks": list(line.averaged),
                    "total_time": line.total_time and asdict(line.total_time),
                }
                for line in self.lines
            ],
        }


def build_slowdown_tables(
    tables: Iterable[Table],
    group_fields: Sequence[str] = DEFAULT_BY,
    reference: str | None = None,
    *,
    with_leaderboard_ranks: bool = True,
) -> list[Slowdown]:
    """Return one slowdown table for each device, precision, scaling and kind of machine.

    - `tables`: the leaderboards of the networks.
    - `group_fields`: the fields that form the groups; if empty, `DEFAULT_BY`.
    - `reference`: the values of the reference's fields, separated by commas, or `BEST`. None: in
      each table the group that has a figure in most networks; of several, one with PyTorch, or else
      the first.
    - `with_leaderboard_ranks`: whether the rows in entries have a rank. Without ranks it is faster.

    Raises UsageError if no group is the reference.
    """
    tables_by_heading: dict[tuple[str, ...], list[Table]] = defaultdict(list)
    for table in best.keep_best_row_per_group(
        tables, group_fields or DEFAULT_BY, with_leaderboard_ranks=with_leaderboard_ranks
    ):
        tables_by_heading[table.device, table.precision, table.scaling or "", table.machine].append(
            table
        )
    if reference not in (None, BEST):
        _check_reference(reference, tables_by_heading.values())
    return [
        _build_slowdown_table(group, reference) for _, group in sorted(tables_by_heading.items())
    ]


def _check_reference(reference: str, table_groups: Iterable[Sequence[Table]]) -> None:
    """Raise UsageError if no row of the tables belongs to the reference."""
    names = {
        _reference_text(tuple(row.group.values()))
        for tables in table_groups
        for table in tables
        for row in (*table.rows, *table.unranked)
    }
    if names and reference not in names:
        raise errors.unknown_name_error("reference", reference, (BEST, *sorted(names)))


def _build_slowdown_table(tables: Sequence[Table], reference: str | None) -> Slowdown:
    rows_by_network = [
        {tuple(row.group.values()): row for row in (*table.rows, *table.unranked)}
        for table in tables
    ]
    groups = sorted({group for rows in rows_by_network for group in rows}, key=_mixed_sort_key)
    ranked = [
        {group: row for group, row in rows.items() if row.reason is None}
        for rows in rows_by_network
    ]
    head, networks = tables[0], _name_networks(tables)
    if reference == BEST:
        name = BEST
        slowdowns, common, averages = _compare_with_best(groups, ranked)
    else:
        reference_group = _choose_reference(reference, groups, ranked, head.by)
        name = _group_name(reference_group) if reference_group else str(reference)
        slowdowns, common, averages = _compare_with_reference(reference_group, groups, ranked)
    lines = [
        Line(
            dict(zip(head.by, group, strict=True)),
            tuple(
                _build_entry(rows.get(group), slowdowns[group].get(n), name)
                for n, rows in enumerate(rows_by_network)
            ),
            tuple(networks[n].name for n in common if n in slowdowns[group]),
            *averages[group],
        )
        for group in groups
    ]
    return Slowdown(
        head.device,
        head.precision,
        head.scaling,
        head.machine,
        head.by,
        name,
        tuple(networks),
        tuple(sorted(lines, key=lambda line: _sort_key(line, len(common)))),
        tuple(networks[n].name for n in common),
    )


def _choose_reference(
    reference: str | None,
    groups: Sequence[Group],
    ranked: Sequence[Mapping[Group, Row]],
    fields: Sequence[str],
) -> Group | None:
    """Return the reference group. None if `reference` names a group that the table does not have.

    The rule for `reference` None must not look at speeds: the fastest group is also the luckiest.
    """
    if reference is not None:
        return next((group for group in groups if _reference_text(group) == reference), None)

    def preference(group: Group) -> tuple[int, bool]:
        values = dict(zip(fields, group, strict=True))
        count = sum(group in rows for rows in ranked)
        return -count, values.get("framework") != _PREFERRED_REFERENCE

    return min(groups, key=preference)  # of equal ones, the first in the order of `groups`


def _compare_with_reference(
    reference: Group | None, groups: Sequence[Group], ranked: Sequence[Mapping[Group, Row]]
) -> tuple[_Slowdowns, list[int], dict[Group, _Averages]]:
    """Return the slowdowns of each group, the numbers of the common networks, and the means.

    `ranked` has the ranked rows of each network, by group.
    """
    slowdowns: _Slowdowns = {group: {} for group in groups}
    averages: dict[Group, _Averages] = dict.fromkeys(groups, (None, None))
    if reference is None:
        return slowdowns, [], averages
    speeds = {n: rows[reference].speeds for n, rows in enumerate(ranked) if reference in rows}
    common = [n for n in speeds if len(ranked[n]) > 1]
    pairs = {
        group: {n: (ranked[n][group].speeds, speeds[n]) for n in speeds if group in ranked[n]}
        for group in groups
        if group != reference
    }
    averaged = {
        group: numbers
        for group, pairs_of_group in pairs.items()
        if len(numbers := [n for n in common if n in pairs_of_group]) > 1
    }
    # Bonferroni's correction: one interval for each slowdown and two for each line with means.
    interval_count = sum(map(len, pairs.values())) + 2 * len(averaged)
    confidence = 1 - (1 - CONFIDENCE) / max(1, interval_count)
    keys = [(group, n) for group, pairs_of_group in pairs.items() for n in pairs_of_group]
    comparisons = pairwise.compare_all(
        [pairs[group][n][::-1] for group, n in keys], interval_count=interval_count
    )
    for (group, n), comparison in zip(keys, comparisons, strict=True):
        slowdowns[group][n] = comparison.ratio
    for group, numbers in averaged.items():
        averages[group] = (
            means.geometric_mean([slowdowns[group][n] for n in numbers]),
            means.total_time_ratio([pairs[group][n] for n in numbers], confidence),
        )
    slowdowns[reference] = {n: Interval(1.0, None, None, len(speeds[n])) for n in speeds}
    if len(common) > 1:
        ratio_to_itself = Interval(1.0, None, None, min(len(speeds[n]) for n in common))
        averages[reference] = ratio_to_itself, ratio_to_itself
    return slowdowns, common, averages


def _compare_with_best(
    groups: Sequence[Group], ranked: Sequence[Mapping[Group, Row]]
) -> tuple[_Slowdowns, list[int], dict[Group, _Averages]]:
    """Return what `_compare_with_reference` returns, with the best group of each network."""
    slowdowns: _Slowdowns = {group: {} for group in groups}
    averages: dict[Group, _Averages] = dict.fromkeys(groups, (None, None))
    by_network = best_comparison.slowdowns_against_best(
        [[row.speeds for row in rows.values()] for rows in ranked]
    )
    for n, (rows, intervals) in enumerate(zip(ranked, by_network, strict=True)):
        for group, interval in zip(rows, intervals, strict=True):
            slowdowns[group][n] = interval
    common = [n for n, rows in enumerate(ranked) if len(rows) > 1]
    for group in groups:
        of_common = [slowdowns[group][n] for n in common if n in slowdowns[group]]
        if len(of_common) > 1:
            averages[group] = means.geometric_mean_of_joint(of_common), None
    return slowdowns, common, averages


def _build_entry(row: Row | None, slowdown: Interval | None, reference: str) -> Entry:
    if row is None:
        return Entry(None, None, NOT_MEASURED)
    if row.reason is not None:
        return Entry(None, row, row.reason)
    if slowdown is None:
        return Entry(None, row, f"{NO_REFERENCE}: {reference} has no ranked row")
    return Entry(slowdown, row, None)


def _group_name(group: Group) -> str:
    return " · ".join(map(_value_text, group))


def _reference_text(group: Group) -> str:
    """Return the group as `--reference` names it."""
    return ",".join(map(_value_text, group))


def _value_text(value: Value | None) -> str:
    return "–" if value is None else str(value)


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


def _sort_key(line: Line, common_count: int) -> tuple[Any, ...]:
    """Return a sort key for the order that `Slowdown.lines` describes.

    Lines without a mean come last: first those with the most slowdowns, then the lowest.
    """
    values = [entry.slowdown.value for entry in line.entries if entry.slowdown]
    group_key = _mixed_sort_key(tuple(line.group.values()))
    if line.overall is None:
        return 1, -len(values), (), math.prod(values), group_key
    missing = common_count - len(line.averaged)
    networks = line.averaged if missing else ()
    return 0, missing, networks, line.overall.value, group_key


def _mixed_sort_key(values: Group) -> tuple[tuple[bool, int, str], ...]:
    """Return a sort key for values of different types: texts, then numbers by size, then None."""
    return tuple(
        (value is None, value if isinstance(value, int) else 0, str(value)) for value in values
    )
