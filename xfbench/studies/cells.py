"""The measured cells of a study: selection, names, and groups for comparison."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xfbench.analysis import comparison, leaderboard
from xfbench.analysis.grouping import group_by_heading_and_cell
from xfbench.analysis.leaderboard import Certificates
from xfbench.analysis.learning import has_diverged
from xfbench.execution import probing
from xfbench.host.conditions import list_record_disturbances
from xfbench.model import adapter
from xfbench.model.machines import architecture_of_record, is_part_of_architecture
from xfbench.model.record import Record, is_asynchronous
from xfbench.model.request import SOLVER, Request, describe_solver_setting
from xfbench.model.strategy import format_options
from xfbench.planning import matching
from xfbench.planning.experiment import Experiment
from xfbench.planning.study_form import SIZES, BatchSearch, Scalar, Size

# The settings that name a cell, in this order.
SETTINGS = (
    *("workload", "framework", "kernel", "device", "precision", "threads", "ranks", "nodes"),
    *("strategy", "scaling", "batch_size", "data", "format", "medium", "page_cache", "input"),
    *SOLVER,
    *("checkpoints", "memory_limit", "allocator", "probe", "machine"),
)
# For each setting: its dependent settings, which may also differ in a comparison over it.
_DEPENDENT_SETTINGS: dict[str, tuple[str, ...]] = {
    "workload": ("batch_size", "data"),
    "framework": ("kernel",),
    "machine": ("device", "kernel", "threads"),
    "ranks": ("nodes", "strategy"),
    "nodes": ("ranks", "strategy"),
}
# In comparisons over these, the cells may have other networks, adapters or environments.
_OF_SEVERAL_CODES = ("framework", "kernel", "machine", "workload", "python", "revision")
# The values that stand for settings that are not set.
_DEFAULTS = {"lars": 0, "rate_scaling": "none", "rate_warmup": 0}
_WITH_UNIT = {"threads": "thread", "ranks": "rank", "nodes": "node", "checkpoints": "checkpoint"}


@dataclass(frozen=True, eq=False)
class MeasuredCell:
    """One cell on one kind of machine.

    `records` has the records of all launches of the cell, with any seed.
    """

    records: tuple[Record, ...]

    @property
    def request(self) -> Request:
        """The request of the cell's last record."""
        request = self.records[-1].request
        assert request is not None
        return request

    @property
    def code(self) -> tuple[str, ...] | None:
        """The digests of the network, adapter and environment; None if no launch began."""
        for record in reversed(self.records):
            if record.software and record.workload:
                software = record.software
                return record.workload.digest, software.adapter_digest, software.environment_digest
        return None

    def setting(self, name: str) -> Any:
        """Return the value of a setting or a strategy option; None if the cell does not have it."""
        request = self.request
        if name == "machine":
            return architecture_of_record(self.records[-1])
        if name == "batch_size":
            return request.fixed_batch_size
        if name == "strategy":
            return request.strategy_text
        if name == "probe":
            return probing.format_probe_name(request)
        if name in ("format", "medium"):
            return getattr(request.data_set, name, None)
        if name in _DEFAULTS:
            return getattr(request, name) or _DEFAULTS[name]
        if name in Request.model_fields:
            return getattr(request, name)
        options = adapter.load(request.framework).find_or_build_strategy(request.strategy)
        return options.options_with_defaults(dict(request.strategy_options), request.device).get(
            name
        )

    def matches(self, settings: Mapping[str, Scalar]) -> bool:
        """Return whether the cell has all of `settings` (see `has_value`)."""
        return all(has_value(name, self.setting(name), value) for name, value in settings.items())

    def ok_records(self) -> list[Record]:
        """Return the records with status "ok"."""
        return [record for record in self.records if record.status == "ok"]

    @property
    def is_mostly_noisy(self) -> bool:
        """Whether other activity on the machine disturbed more than half of the ok launches."""
        ok_records = self.ok_records()
        return 2 * sum(bool(list_record_disturbances(each)) for each in ok_records) > len(
            ok_records
        )

    def diverged_records(self) -> list[Record]:
        """Return the records of launches that diverged."""
        return [record for record in self.records if has_diverged(record)]


def has_value(name: str, value: Any, expected: Scalar) -> bool:
    """Return whether the setting `name`, which has this value, has the expected value.

    Values are compared as text. Of a machine, a part of the name is enough.
    """
    if name == "machine" and value is not None:
        return is_part_of_architecture(str(expected), str(value))
    return str(value) == str(expected)


def group_cells(records: Iterable[Record]) -> list[MeasuredCell]:
    """Group the records by cell and return the cells, sorted by their settings."""
    measured_cells = [
        MeasuredCell(tuple(cell_records))
        for cells in group_by_heading_and_cell(records, include_probes=True).values()
        for cell_records in cells.values()
    ]
    return sorted(
        measured_cells, key=lambda cell: [_sort_key(cell.setting(name)) for name in SETTINGS]
    )


def select_records(study: Experiment, size: Size, records: Iterable[Record]) -> list[Record]:
    """Return the measured records whose cell is in a matrix of the study at this size.

    Records from all machines are included.
    """
    matrices, catalog = study.matrices_of_size(size), matching.Catalog()
    return [
        record
        for record in records
        if record.source == "measured"
        and record.request
        and any(matching.is_in_matrix(matrix, record.request, catalog) for matrix in matrices)
    ]


def drop_search_trials(
    study: Experiment, size: Size, cells: Iterable[MeasuredCell]
) -> list[MeasuredCell]:
    """Return the cells without those that a batch search reached only by bisection.

    Such a cell has a trial that locates the memory limit, but not the launches for other analyses.
    """
    matrices, catalog = study.matrices_of_size(size), matching.Catalog()
    return [
        cell
        for cell in cells
        if any(
            not isinstance(m.batch_size, BatchSearch)
            or m.batch_size.is_start_times_power_of_two(cell.request.fixed_batch_size)
            for m in matrices
            if matching.is_in_matrix(m, cell.request, catalog)
        )
    ]


def most_measured_size(study: Experiment, records: Sequence[Record]) -> Size | None:
    """Return the size at which the study has the most ok records.

    If several sizes have equally many ok records, return the smallest of these sizes. Return None
    if no record of the study is ok.
    """
    ok_records = [record for record in records if record.status == "ok"]
    counts = {size: len(select_records(study, size, ok_records)) for size in study.sizes}
    best_size = max(counts, key=lambda size: (counts[size], -SIZES.index(size)))
    return best_size if counts[best_size] else None


def comparison_groups(
    cells: Sequence[MeasuredCell], over: str, also_free: Collection[str] = ()
) -> list[list[MeasuredCell]]:
    """Return groups of cells. The cells of a group differ only in `over` and dependent settings.

    - `over`: the name of a setting or of a strategy option. Each group is sorted by `over`.
    - `also_free`: further settings in which the cells of a group may differ.

    Some settings depend on `over`. For example, each framework has its own kernels. If `over` is
    "framework", the cells of a group may therefore also differ in the kernel. _DEPENDENT_SETTINGS
    lists the dependent settings.

    If `over` is "ranks" or "nodes", each strategy has its own group. Each of these groups also
    contains the cells with one rank, for which the strategy does not matter.

    Unless `over` is in _OF_SEVERAL_CODES, the cells of a group also have the same network, adapter
    and environment. Records of another version or of somebody else are then never the baseline.
    """
    free = {over, *_DEPENDENT_SETTINGS.get(over, ()), *also_free}
    fixed = [name for name in SETTINGS if name not in free]
    groups: dict[tuple[Any, ...], list[MeasuredCell]] = defaultdict(list)
    for cell in cells:
        groups[tuple(_setting_text_without_option(cell, name, over) for name in fixed)].append(cell)
    comparisons = []
    same_settings: Iterable[list[MeasuredCell]] = groups.values()
    if over not in _OF_SEVERAL_CODES:
        same_settings = _split_by_code(same_settings)
    for group in same_settings:
        group.sort(key=lambda cell: _sort_key(cell.setting(over)))
        if over not in ("ranks", "nodes"):
            comparisons.append(group)
            continue
        single_rank = [cell for cell in group if cell.request.ranks == 1]
        by_strategy: dict[str, list[MeasuredCell]] = defaultdict(list)
        for cell in group:
            if cell not in single_rank:
                by_strategy[cell.setting("strategy")].append(cell)
        comparisons += [[*single_rank, *multi_rank] for multi_rank in by_strategy.values()] or [
            single_rank
        ]
    return comparisons


def _split_by_code(groups: Iterable[list[MeasuredCell]]) -> Iterator[list[MeasuredCell]]:
    """Yield the cells of each group by their code. Cells without a launch join the newest code."""
    for group in groups:
        by_code: dict[tuple[str, ...], list[MeasuredCell]] = defaultdict(list)
        for cell in sorted(group, key=lambda cell: cell.records[-1].created):
            if cell.code:
                by_code[cell.code].append(cell)
        without_launch = [cell for cell in group if not cell.code]
        *earlier, newest = by_code.values() or [[]]
        yield from earlier
        yield newest + without_launch


def _setting_text_without_option(cell: MeasuredCell, name: str, omitted_option: str) -> str:
    """Return the value of the setting `name` as text.

    The text of the strategy includes the strategy options, except for `omitted_option`.
    """
    if name == "strategy" and omitted_option not in SETTINGS:
        other_options = [
            pair for pair in cell.request.strategy_options if pair[0] != omitted_option
        ]
        return f"{cell.request.strategy} {format_options(other_options)}"
    return str(cell.setting(name))


def cell_name(
    cell: MeasuredCell, among: Sequence[MeasuredCell], omitted: Sequence[str] = ()
) -> str:
    """Return the cell's name: workload, framework, and the settings that vary among the cells.

    - `among`: the cells that the name must distinguish.
    - `omitted`: settings that the name leaves out.

    The name also leaves out settings that are not set or have their default value. If other cells
    of `among` have the same settings, the name has the time of the cell's last launch.
    """
    required = [field for field in ("workload", "framework") if field not in omitted]
    varying = _varying_settings(tuple(among))
    parts = []
    for field in SETTINGS:
        value = cell.setting(field)
        if value == _DEFAULTS.get(field):  # None equals None if the cell does not have it
            continue
        if field in omitted or (field not in required and field not in varying):
            continue
        if field == "strategy" and cell.request.ranks == 1:
            continue
        parts.append(format_setting(field, value))
    if _count_cells_by_settings(tuple(among))[_all_settings(cell)] > 1:
        parts.append(f"launches of {cell.records[-1].created[:16].replace('T', ' ')}")
    return " · ".join(parts)


def _all_settings(cell: MeasuredCell) -> tuple[str, ...]:
    return tuple(str(cell.setting(field)) for field in SETTINGS)


@functools.lru_cache(maxsize=1)
def _count_cells_by_settings(among: tuple[MeasuredCell, ...]) -> Counter[tuple[str, ...]]:
    return Counter(map(_all_settings, among))


@functools.lru_cache(maxsize=1)
def _varying_settings(among: tuple[MeasuredCell, ...]) -> set[str]:
    return {field for field in SETTINGS if len({str(cell.setting(field)) for cell in among}) > 1}


@functools.lru_cache(maxsize=1)
def settings_fixed_by_machine(cells: tuple[MeasuredCell, ...]) -> tuple[str, ...]:
    """Return which of the settings that depend on the machine have one value on each machine.

    Names in a comparison of machines need not repeat them.
    """
    values: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    names = _DEPENDENT_SETTINGS["machine"]
    for cell in cells:
        key = [cell.setting(name) for name in ("workload", "framework", "machine")]
        for name in names:
            values[name, *key].add(str(cell.setting(name)))
    return tuple(
        name
        for name in names
        if all(len(group) == 1 for key, group in values.items() if key[0] == name)
    )


def format_setting(field: str, value: Any) -> str:
    """Return the value of the setting `field` in words, such as "2 threads"."""
    if unit := _WITH_UNIT.get(field):
        return f"{value} {unit}{'' if value == 1 else 's'}"
    if field in SOLVER:
        return describe_solver_setting(field, value)
    if field == "batch_size":
        return f"batch {value}"
    if field == "page_cache":
        return f"{value} cache"
    if field == "memory_limit":
        return f"at most {value / 1e9:.3g} GB"
    return str(value) if field in SETTINGS else f"{field} {value}"


def incomparable_reason(a: MeasuredCell, b: MeasuredCell, certificates: Certificates) -> str | None:
    """Return why two cells may train different networks.

    Return None if both cells train the same network. On different machines, also cells with the
    same code need certificates, because a certificate covers one kind of machine.

    Asynchronous ranks have no certificate, because their weights differ from run to run. They are
    compared with the same network and code on any number of ranks.
    """
    ok_records = [*a.ok_records(), *b.ok_records()]
    if a.setting("machine") != b.setting("machine"):
        reasons = (leaderboard.unranked_reason(record, certificates) for record in ok_records)
        return next(filter(None, reasons), None)
    if any(map(is_asynchronous, ok_records)) and comparison.have_same_code(
        ok_records[0], ok_records[-1], same_ranks=False
    ):
        wrong = (leaderboard.wrong_batch_reason(record, certificates) for record in ok_records)
        return next(filter(None, wrong), None)
    return comparison.incomparable_reason(a.ok_records(), b.ok_records(), certificates)


def unverified_reasons_by_id(
    group: Sequence[MeasuredCell], certificates: Certificates
) -> dict[int, str]:
    """Return the unverified cells of a group, each with the reason why it must not be compared.

    The keys of the result are `id(cell)`. Cells without an ok launch are left out.

    If all cells have the same machine, code, framework, kernel, device, precision and strategy,
    they train the same network and need no certificate. Then the result has only cells for whose
    timed batch a certificate says "different".
    """
    ok_cells = [cell for cell in group if cell.ok_records()]
    need_certificates = any(incomparable_reason(cell, ok_cells[0], {}) for cell in ok_cells)
    find = leaderboard.unranked_reason if need_certificates else leaderboard.wrong_batch_reason
    reasons = {
        id(cell): next(filter(None, (find(each, certificates) for each in cell.ok_records())), None)
        for cell in ok_cells
    }
    return {cell_id: reason for cell_id, reason in reasons.items() if reason}


def _sort_key(value: Any) -> tuple[bool, float, str]:
    """Return a sort key: numbers come first in numerical order, then other values as text."""
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, str(value)
