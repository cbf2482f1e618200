"""Comparison of two sides, A and B, cell by cell.

A side is a filter over records, a results folder, or both. A cell of A is compared only with cells
of B that are equal in every field that no filter names. So a difference comes from the named
fields.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from xfbench import pairwise, statistics
from xfbench.analysis import grouping, means
from xfbench.analysis.leaderboard import (
    Certificates,
    describe_idle_threads,
    has_too_many_failures,
    mean_cpus_busy,
    unranked_reason,
    wrong_batch_reason,
)
from xfbench.base import errors
from xfbench.base.terminal_text import say
from xfbench.base.wording import pluralize
from xfbench.environments import allocators
from xfbench.host.conditions import list_record_disturbances
from xfbench.model import adapter, certificate, settings
from xfbench.model.machines import machine_class_of_record
from xfbench.model.provenance import drop_untrusted_or_impossible_fields
from xfbench.model.record import Record
from xfbench.model.request import SOLVER, Cell, describe_solver_setting
from xfbench.model.strategy import format_options
from xfbench.pairwise import Comparison
from xfbench.statistics import Block, Interval, Launches
from xfbench.store import index, selection
from xfbench.store.results_folder import Store, WarningHandler, open_existing_store

_REQUEST_FIELDS = tuple(Cell.model_fields)
FIELDS = (*_REQUEST_FIELDS, "machine", "revision", "results")
_BATCH_SIZE_FIELDS = ("global_batch_size", "batch_size_per_rank")
_MULTI_RANK_FIELDS = ("strategy", "strategy_options", "launcher", *_BATCH_SIZE_FIELDS)
# For each field, the fields that depend on it. If a filter names the field, these may differ too.
_DEPENDENT_FIELDS = {
    "framework": ("kernel", "environment"),
    "strategy": ("strategy_options",),
    "ranks": ("nodes", *_MULTI_RANK_FIELDS),
    "nodes": ("ranks", *_MULTI_RANK_FIELDS),
    "global_batch_size": ("batch_size_per_rank",),
    "batch_size_per_rank": ("global_batch_size",),
    "results": ("machine",),
}
_LENGTH_FIELDS = ("steps", "epochs", "warmup", "window", "min_seconds", "min_warmup_seconds")
# Fields that may always differ. A profile comes after the timed steps, so it changes no speed.
_IGNORED_FIELDS = (*_LENGTH_FIELDS, "seed", "site", "profile")
_UNNAMED_FIELDS = ("environment", "workload", "revision", *_IGNORED_FIELDS)
_SEPARATELY_NAMED_FIELDS = ("workload", "framework", "kernel", "revision")
# Fields that do not distinguish cells: a cell has all seeds, and the batch of a rank follows from
# the global batch and the number of ranks.
_NOT_DISTINGUISHING_FIELDS = ("seed", "batch_size_per_rank", "profile")
# Fields of all compared cells that a reader wants to know if the names do not contain them.
_COMMON_FIELDS = ("device", "precision", "data", "global_batch_size", "threads", "ranks")
# Functions that return texts of values that do not say what they are.
_VALUE_TEXTS: dict[str, Callable[[Any], str]] = {
    **grouping.HIDDEN_FIELDS,
    "threads": partial(pluralize, noun="thread"),
    "checkpoints": partial(pluralize, noun="checkpoint"),
    "ranks": partial(pluralize, noun="rank"),
    "global_batch_size": "batch {}".format,
    "batch_size_per_rank": "batch {} per rank".format,
    "memory_limit": "memory limit {} bytes".format,
    "profile": "profile {}".format,
    "data_set": "data set {0.format} {0.digest:.15}".format,
    "input": "{} reader".format,
    "page_cache": "page cache {}".format,
    "seed": "seed {}".format,
}
# Fields by which the index can filter, because they are text in every record.
_INDEXED_FIELDS = ("framework", "workload", "kernel", "device", "precision", "strategy", "data")
_SEARCHED_FIELDS = ("machine", "revision")  # a filter has a part of their text
_PAIRS_PER_VERDICT = 5  # pairs of launches for one verdict of A/A

Verdict = Literal["faster", "slower", "not_distinguishable"]


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    - `folder`: the results folder.
    - `field_values`: values that fields of the side's records must have, by field. A value of
      "data_set" is the format or the digest of a data set.
    - `conditions`: further conditions that the records must meet. They do not appear in names.
    """

    folder: Path
    field_values: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[selection.Condition, ...] = ()

    @classmethod
    def parse(
        cls,
        filter_or_folder: str | None,
        default_folder: Path,
        conditions: tuple[selection.Condition, ...] = (),
    ) -> Side:
        """Return the side that the user describes.

        - `filter_or_folder`: a filter such as "framework=torch,threads=2", or the path of a results
          folder. None selects all records.
        - `default_folder`: the results folder if `filter_or_folder` names none.
        - `conditions`: further conditions that the side's records must meet.

        Raises UsageError if a field is unknown or the folder has no results.
        """
        field_values: dict[str, str] = {}
        if filter_or_folder and "=" not in filter_or_folder:
            if not Path(filter_or_folder).exists():
                raise errors.UsageError(
                    f"{filter_or_folder}: neither a results folder nor a filter such as "
                    f"framework={filter_or_folder}"
                )
            field_values["results"] = filter_or_folder
        elif filter_or_folder:
            for pair in filter_or_folder.split(","):
                name, _, value = map(str.strip, pair.partition("="))
                name = name if name in FIELDS else settings.find_record_field(name)
                if name not in FIELDS:
                    raise errors.unknown_name_error("field", name, FIELDS)
                field_values[name] = value
        results_folder = Path(field_values.get("results", default_folder))
        return cls(open_existing_store(results_folder).folder, field_values, conditions)

    def matches_field_values(self, record: Record) -> bool:
        """Return whether the record has the values in `field_values`.

        The folder and `conditions` are not checked.
        """
        return record.request is not None and all(
            _has_field_value(name, value, record)
            for name, value in self.field_values.items()
            if name != "results"
        )

    def describe_filter(self) -> str:
        """Return the filter as the user writes it, or the folder if there is no filter."""
        filters = ",".join(f"{name}={value}" for name, value in self.field_values.items())
        return filters or str(self.folder)

    def records(self, complain: WarningHandler) -> Iterator[Record]:
        """Yield the records of this side, oldest first.

        `complain` receives one line for each damaged or invalid record.
        """
        conditions = [*self.conditions, *self._indexed_conditions()]
        with index.open_index(Store(self.folder), complain) as results_index:
            for _, record in results_index.select(conditions):
                if self.matches_field_values(record):
                    effective_record = drop_untrusted_or_impossible_fields(record)
                    if effective_record.status != record.status:
                        complain(f"{record.id}: {effective_record.reason}: not counted")
                    yield effective_record
        for line in results_index.damaged:
            complain(line)

    def describe_mismatch(self, complain: WarningHandler) -> str:
        """Return why no launch of this side is ok: a condition that no record meets, or else.

        `complain` receives one line for each damaged or invalid record.
        """
        conditions = [*self.conditions, *self._indexed_conditions()]
        with index.open_index(Store(self.folder), complain) as results_index:
            mismatch = results_index.describe_mismatch(conditions)
            if not results_index.count_preselected(conditions):
                return mismatch
        filters = {name: value for name, value in self.field_values.items() if name != "results"}
        everything = replace(self, field_values={})
        records = [record for record in everything.records(complain) if record.request]
        if not records:
            return mismatch
        if matches := [record for record in records if self.matches_field_values(record)]:
            last = matches[-1]
            count = pluralize(len(matches), "launch")
            return f"{count}, the last of which has the status {last.status}"
        return selection.describe_mismatch_of_documents(
            [
                selection.Condition(name, "~" if name in _SEARCHED_FIELDS else "=", value, None)
                for name, value in filters.items()
            ],
            [{name: _filter_values(record, name) for name in filters} for record in records],
        )

    def _indexed_conditions(self) -> list[selection.Condition]:
        """Return the conditions on the fields by which the index can filter."""
        return [
            selection.equal_condition(f"request.{name}", value)
            for name, value in self.field_values.items()
            if name in _INDEXED_FIELDS
        ]


@dataclass(frozen=True)
class CellComparison:
    """The comparison of a cell of A with a cell of B.

    - `a`, `b`: names of the two cells.
    - `figures`: the ratio of the speed of A to the speed of B, with its interval and test.
    - `verdict`: whether A is "faster", "slower" or "not_distinguishable", by the interval; None if
      there is no verdict. The intervals of one `compare` hold together with 95 % (Bonferroni).
    - `reason`: why there is no verdict, for example because the cells are not known to train the
      same network; None if there is a verdict.
    - `launches`, `noisy`: number of the launches of both cells, and of those that other activity
      on the machine disturbed.
    - `unpaired`: number of launches that do not count because they have no partner. 0 if launches
      are not compared in pairs.
    - `speeds`: the images per second of A and of B, as the leaderboard has them; None if not known.
    """

    a: str
    b: str
    figures: Comparison
    verdict: Verdict | None
    reason: str | None = None
    launches: int = 0
    noisy: int = 0
    unpaired: int = 0
    speeds: tuple[float, float] | None = None

    @property
    def is_mostly_noisy(self) -> bool:
        """Whether more than half of the launches were disturbed."""
        return 2 * self.noisy > self.launches

    def document(self) -> dict[str, Any]:
        """Return the comparison as `compare --json` prints it."""
        figures = self.figures
        return {
            "a": self.a,
            "b": self.b,
            "ratio": {
                "value": figures.ratio.value,
                "low": figures.ratio.low,
                "high": figures.ratio.high,
            },
            "verdict": self.verdict,
            "smallest_visible_difference": figures.smallest_visible_difference,
            "launches": figures.ratio.launches,
            "p": figures.p,
            "paired": figures.paired,
            "over_sessions": figures.is_over_sessions,
            "reason": self.reason,
            "noisy_launches": self.noisy,
            "unpaired_launches": self.unpaired,
            "images_per_second": self.speeds and dict(zip("ab", self.speeds, strict=True)),
        }


@dataclass(frozen=True)
class SideComparison:
    """The comparison of all cells of A with those of B.

    - `mean`: geometric mean of the ratios that have a verdict, with its interval; None if fewer
      than two have one, or if a cell is in several of them, because they depend on each other.
    - `gaps`: a line for each cell that could not be compared, or whose launches failed.
    - `software_of_a`, `software_of_b`: frameworks with their versions, and the machine, of the
      compared cells. For example, "torch 2.13.0+cpu on 2 cores AMD EPYC (zen)".
    - `uncompared_kernels`: kernels that are in no pair, by framework, if A and B have different
      frameworks and no filter names a kernel. One of them may be faster than those compared.
    - `launches`, `noisy`: number of the launches of both sides that were compared, and of those
      that other activity on the machine disturbed.
    - `filters`: the filter or the folder of A and of B.
    - `common_settings`: important settings that all compared cells share, in words.
    - `idle_threads`: texts about compared cells whose threads were mostly idle.
    """

    comparisons: list[CellComparison]
    mean: Interval | None
    gaps: list[str]
    software_of_a: list[str]
    software_of_b: list[str]
    uncompared_kernels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    launches: int = 0
    noisy: int = 0
    filters: tuple[str, str] = ("", "")
    common_settings: Sequence[str] = ()
    idle_threads: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """Return the comparison as `compare --json` prints it."""
        mean = self.mean
        return {
            "comparisons": [comparison.document() for comparison in self.comparisons],
            "geometric_mean": mean and mean.value,
            "geometric_mean_interval": mean and {"low": mean.low, "high": mean.high},
            "gaps": self.gaps,
            "software": {"a": self.software_of_a, "b": self.software_of_b},
            "uncompared_kernels": self.uncompared_kernels,
            "launches": self.launches,
            "noisy": self.noisy,
            "filters": {"a": self.filters[0], "b": self.filters[1]},
            "common_settings": [*self.common_settings],
            "idle_threads": [*self.idle_threads],
        }


@dataclass(eq=False)
class _Cell:
    """The launches of one cell, with all seeds, on one kind of machine.

    - `records`: records of the ok launches.
    - `failures`: records of the other launches.
    """

    records: list[Record] = field(default_factory=list)
    failures: list[Record] = field(default_factory=list)

    @cached_property
    def launches(self) -> Launches:
        """The speeds of the launches that count. Read it after all records were added."""
        return statistics.counted_speeds_by_block(self.records)

    @property
    def speed(self) -> float:
        """The images per second of the launches that count, of which there is at least one."""
        return statistics.interval_of_launches(self.launches).value

    @property
    def noisy(self) -> int:
        """The number of ok launches that other activity on the machine disturbed."""
        return _count_noisy(self.records)

    @property
    def idle_threads(self) -> str:
        """Return `leaderboard.describe_idle_threads` of the launches."""
        request = self.last_record.request
        assert request is not None
        return describe_idle_threads(request, mean_cpus_busy(self.records))

    @property
    def last_record(self) -> Record:
        return (self.records or self.failures)[-1]

    @property
    def label(self) -> str:
        request = self.last_record.request
        assert request is not None
        return request.label()

    @property
    def failure(self) -> str | None:
        """Return what is wrong with the launches, or None if few or none have failed."""
        total = len(self.records) + len(self.failures)
        if not has_too_many_failures(len(self.failures), total):
            return None if self.launches else "no launch has timed steps"
        last = self.failures[-1]
        return f"{len(self.failures)} of {total} launches {last.status}: {last.reason}"


def compare(a: Side, b: Side) -> SideComparison:
    """Compare each cell of A with each cell of B that differs only in the free fields.

    These fields are free:

    - Fields that the filter of A or B names, except the workload.
    - Fields that depend on a named field. For example, the kernel depends on the framework.
    - The machine, if A and B have different results folders.
    - The length of a launch, the seed and the site. If a cell has a partner with launches of the
      same length, it is compared only with that one.

    All other fields must be equal. Raises NoMatchError if a side has no ok launch.
    """
    named_fields = (
        {*a.field_values, *b.field_values}
        if a.folder == b.folder
        else {*a.field_values, *b.field_values, "results"}
    )
    free_fields = {
        *named_fields,
        *(dependent for name in named_fields for dependent in _DEPENDENT_FIELDS.get(name, ())),
        *_IGNORED_FIELDS,
    }
    free_fields -= {"workload"}  # speeds of two networks are not comparable
    held_fields = [name for name in (*_REQUEST_FIELDS, "machine") if name not in free_fields]
    cells_a, cells_b = _load_cells(a), _load_cells(b)
    certificates = {
        **certificate.read_certificates(a.folder),
        **certificate.read_certificates(b.folder),
    }
    pairs = _prefer_launches_of_equal_length(
        [
            (cell_a, cell_b)
            for cell_a in cells_a
            for cell_b in cells_b
            if _field_values(cell_a, held_fields) == _field_values(cell_b, held_fields)
            and {r.id for r in cell_a.records} != {r.id for r in cell_b.records}
        ]
    )
    gaps = [
        *_list_gaps("A", cells_a, {pair[0] for pair in pairs}, cells_b, held_fields),
        *_list_gaps("B", cells_b, {pair[1] for pair in pairs}, cells_a, held_fields),
    ]
    pairs = [pair for pair in pairs if all(cell.launches for cell in pair)]
    reasons = [
        _overlap_reason(cell_a, cell_b)
        or incomparable_reason(cell_a.records, cell_b.records, certificates)
        or _session_reason(cell_a.launches, cell_b.launches)
        for cell_a, cell_b in pairs
    ]
    compared = [
        (cell_a.launches, cell_b.launches)
        for (cell_a, cell_b), reason in zip(pairs, reasons, strict=True)
        if not reason
    ]
    joint_figures = iter(pairwise.compare_all(compared))
    figures = [
        pairwise.compare(cell_a.launches, cell_b.launches) if reason else next(joint_figures)
        for (cell_a, cell_b), reason in zip(pairs, reasons, strict=True)
    ]
    comparisons = [
        replace(
            _build_comparison(names, figure, reason),
            launches=sum(len(cell.records) for cell in pair),
            noisy=sum(cell.noisy for cell in pair),
            unpaired=_count_unpaired(figure, *(cell.launches for cell in pair)),
            speeds=(pair[0].speed, pair[1].speed),
        )
        for pair, names, figure, reason in zip(
            pairs, _name_pairs(pairs, a, b), figures, reasons, strict=True
        )
    ]
    mean = _compute_mean_of_independent_ratios(compared)
    software_of_a, software_of_b = (
        sorted({_describe_software(pair[side].last_record) for pair in pairs}) for side in (0, 1)
    )
    kernels = {} if "kernel" in named_fields else _find_uncompared_kernels(pairs)
    records = {record.id: record for pair in pairs for cell in pair for record in cell.records}
    return SideComparison(
        comparisons,
        mean,
        gaps,
        software_of_a,
        software_of_b,
        kernels,
        launches=len(records),
        noisy=_count_noisy(records.values()),
        filters=(a.describe_filter(), b.describe_filter()),
        common_settings=_describe_common_settings(pairs),
        idle_threads=sorted({cell.idle_threads for pair in pairs for cell in pair} - {""}),
    )


def _count_unpaired(figures: Comparison, a: Launches, b: Launches) -> int:
    """Return how many launches are left out because the other side has none of the same block."""
    is_of_pairs = figures.paired and not figures.is_over_sessions
    return len(a.keys() ^ b.keys()) if is_of_pairs else 0


def _count_noisy(records: Iterable[Record]) -> int:
    return sum(bool(list_record_disturbances(record)) for record in records)


def _describe_common_settings(pairs: Sequence[tuple[_Cell, _Cell]]) -> list[str]:
    """Return the important settings that all compared cells share, in words."""
    texts = []
    for name in _COMMON_FIELDS:
        values = [_field_values(cell, [name])[0] for pair in pairs for cell in pair]
        are_equal = values and all(value == values[0] for value in values)
        if are_equal and (name != "ranks" or values[0] != 1):
            texts.append(_VALUE_TEXTS.get(name, str)(values[0]))
    return texts


def _compute_mean_of_independent_ratios(
    compared: Sequence[tuple[Launches, Launches]],
) -> Interval | None:
    """Return the geometric mean of the ratios that have an interval.

    Return None if there are fewer than two, or if a cell is in several of them.
    """
    # The mean is one figure: its parts need no correction for many comparisons.
    all_ratios = [each.ratio for each in pairwise.compare_all(compared, interval_count=1)]
    with_interval = [
        (pair, ratio)
        for pair, ratio in zip(compared, all_ratios, strict=True)
        if ratio.low is not None
    ]
    uses = Counter(id(launches) for pair, _ in with_interval for launches in pair)
    if len(with_interval) < 2 or max(uses.values()) > 1:
        return None
    return means.geometric_mean([ratio for _, ratio in with_interval])


def _build_comparison(
    names: tuple[str, str], figures: Comparison, reason: str | None = None
) -> CellComparison:
    """Return the comparison of two cells. `reason` says why there is no verdict, or is None."""
    if figures.ratio.low is None:
        reason = reason or "too few launches for an interval: use two launches or more of each"
    return CellComparison(*names, figures, None if reason else figures.verdict, reason)


def _find_uncompared_kernels(pairs: Sequence[tuple[_Cell, _Cell]]) -> dict[str, list[str]]:
    """Return the kernels of each framework that are in no pair, if A and B differ in the framework.

    Only kernels for the devices of the pairs count. Frameworks without such kernels are left out.
    """
    compared: dict[tuple[str, str], set[str]] = {}
    for pair in pairs:
        requests = [request for cell in pair if (request := cell.last_record.request)]
        if len({request.framework for request in requests}) > 1:
            for request in requests:
                key = (request.framework, request.device)
                compared.setdefault(key, set()).add(request.kernel)
    uncompared: dict[str, dict[str, None]] = {}
    for (framework, device), kernels in compared.items():
        if framework in adapter.list_names():
            on_device = adapter.load(framework).kernels_on(device)
            missing = dict.fromkeys(kernel for kernel in on_device if kernel not in kernels)
            uncompared.setdefault(framework, {}).update(missing)
    return {framework: [*kernels] for framework, kernels in uncompared.items() if kernels}


def _describe_software(record: Record) -> str:
    """Return the framework with its version, and the kind of machine."""
    assert record.request is not None
    version = record.observed and record.observed.framework_version
    parts = (record.request.framework, version or "of unknown version", "on")
    return " ".join((*parts, machine_class_of_record(record)))


def _overlap_reason(a: _Cell, b: _Cell) -> str | None:
    """Return that A and B have launches in common, or None if they have none."""
    if {record.id for record in a.records}.isdisjoint(record.id for record in b.records):
        return None
    return "A and B have launches in common: choose filters that no launch meets both of"


def _session_reason(a: Launches, b: Launches) -> str | None:
    """Return why launches of these sessions are not comparable, or None if they are."""
    if pairwise.have_comparable_sessions(a, b):
        return None
    return (
        "launched in different sessions: launch both in one `xfbench run`, or each in "
        f"{statistics.MIN_SESSIONS} sessions or more"
    )


def _prefer_launches_of_equal_length(
    pairs: Sequence[tuple[_Cell, _Cell]],
) -> list[tuple[_Cell, _Cell]]:
    """Leave out a pair with different lengths if one of its cells has a partner of equal length."""
    fields = (*_LENGTH_FIELDS, "site")
    are_equal = [_field_values(a, fields) == _field_values(b, fields) for a, b in pairs]
    matched = {
        cell for pair, is_equal in zip(pairs, are_equal, strict=True) if is_equal for cell in pair
    }
    return [
        pair
        for pair, is_equal in zip(pairs, are_equal, strict=True)
        if is_equal or not matched.intersection(pair)
    ]


def _list_gaps(
    name: str,
    cells: Sequence[_Cell],
    compared_cells: Collection[_Cell],
    other_cells: Sequence[_Cell],
    held_fields: Sequence[str],
) -> list[str]:
    """Return a line for each cell of a side that has no partner, or whose launches failed.

    - `name`: "A" or "B".
    - `compared_cells`: the cells that have a partner.
    - `other_cells`: the cells of the other side.
    - `held_fields`: the fields in which partners must be equal.
    """
    other_name = "B" if name == "A" else "A"
    labels = dict(zip(cells, _label_cells(cells), strict=True))
    failed = [f"{name}: {labels[cell]}: {cell.failure}" for cell in cells if cell.failure]
    unmatched = [
        f"{name}: {labels[cell]}: no such cell in {other_name}"
        + _describe_lookalike(cell, other_cells, held_fields)
        for cell in cells
        if not cell.failure and cell not in compared_cells
    ]
    # Cells may differ in settings that their labels do not have.
    counts = Counter([*failed, *unmatched])
    return [line if count == 1 else f"{line} ({count} cells)" for line, count in counts.items()]


def _describe_lookalike(cell: _Cell, cells: Sequence[_Cell], held_fields: Sequence[str]) -> str:
    """Return in which fields a cell with the same label differs, or "" if there is no such cell."""
    differences = [
        [
            f"{field_name} is {actual}, not {expected}"
            for field_name in held_fields
            if (expected := _field_value(cell.last_record, field_name))
            != (actual := _field_value(lookalike.last_record, field_name))
        ]
        for lookalike in cells
        if lookalike.label == cell.label
    ]
    nearest = min(differences, key=len, default=[])
    return f", where {' and '.join(nearest)}" if nearest else ""


def _label_cells(cells: Sequence[_Cell]) -> list[str]:
    """Return a label for each cell. Cells with the same settings say in what else they differ."""
    groups: dict[str, list[_Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.label, []).append(cell)
    differences: dict[_Cell, str] = {}
    for group in groups.values():
        requests = [request for cell in group if (request := cell.last_record.request)]
        differences |= zip(group, grouping.describe_hidden_differences(requests), strict=True)
    return [" · ".join(filter(None, (cell.label, differences[cell]))) for cell in cells]


def compare_cells_with_themselves(side: Side) -> tuple[list[CellComparison], int, int]:
    """Compare each cell with itself (A/A). Any difference that is found is false.

    The launches of a cell form pairs. One launch of each pair belongs to A, the other to B. For
    every five pairs of a cell, one test verdict says whether A and B differ. Returns a tuple:

    1. The comparisons, one for each cell with at least one pair. Each uses all pairs of its cell.
    2. The number of test verdicts.
    3. The number of test verdicts that find a difference.
    """
    comparisons, verdicts = [], []
    cells = [cell for cell in _load_cells(side) if len(cell.launches) > 1]
    names = _name_pairs([(cell, cell) for cell in cells], side, side)
    for cell, (name, _) in zip(cells, names, strict=True):
        speeds = [*cell.launches.values()]
        # In every other pair, swap A and B, so that a drift of the machine favours neither.
        pairs = [speeds[n : n + 2][:: 1 - n % 4] for n in range(0, len(speeds) - 1, 2)]
        launches_a, launches_b = (
            {Block("", 0, n, 0): pair[k] for n, pair in enumerate(pairs)} for k in (0, 1)
        )
        figures = pairwise.compare(launches_a, launches_b)
        comparisons.append(_build_comparison((name, f"{name} (again)"), figures))
        for start in range(0, len(launches_b) - _PAIRS_PER_VERDICT + 1, _PAIRS_PER_VERDICT):
            blocks = [*launches_a][start : start + _PAIRS_PER_VERDICT]
            figure = pairwise.compare(
                {block: launches_a[block] for block in blocks},
                {block: launches_b[block] for block in blocks},
            )
            verdicts.append(figure.verdict)
    return comparisons, len(verdicts), sum(verdict != "not_distinguishable" for verdict in verdicts)


def _load_cells(side: Side) -> list[_Cell]:
    """Return the side's cells with their launches. Each kind of machine has its own cells.

    Raises NoMatchError if the side has no ok launch.
    """
    records = [record for record in side.records(say) if record.source == "measured"]
    are_ok = [record.status == "ok" for record in records]
    groups = grouping.group_by_heading_and_cell(itertools.compress(records, are_ok))
    cells = [_Cell(of_cell) for of_table in groups.values() for of_cell in of_table.values()]
    if not cells:
        filters = ",".join(f"{k}={v}" for k, v in side.field_values.items() if k != "results")
        raise errors.NoMatchError(
            f"{side.folder} has no ok launch of {filters or 'any cell'}: "
            f"{side.describe_mismatch(lambda _: None)}"
        )
    # A launch that failed may not know its cell, which depends on the environment.
    cells_by_request = {_request_key(cell.last_record): cell for cell in cells}
    cells_by_digest = {
        (record.cell, machine_class_of_record(record)): cell
        for cell in cells
        for record in cell.records
        if record.cell
    }
    for record, is_ok in zip(records, are_ok, strict=True):
        request = record.request
        if is_ok or request is None or request.probe or record.status == "unsupported":
            continue
        known_cell = cells_by_digest.get((record.cell or "", machine_class_of_record(record)))
        cell = known_cell or cells_by_request.setdefault(_request_key(record), _Cell())
        cell.failures.append(record)
    replaced = grouping.replaced_keys(cells_by_request)
    without_ok = [
        cell for key, cell in cells_by_request.items() if not cell.records and key not in replaced
    ]
    return [*cells, *without_ok]


def _request_key(record: Record) -> grouping.CellKey:
    """Return a key that is equal for the requests of one cell on one kind of machine."""
    assert record.request is not None
    return grouping.cell_and_machine(record.request, machine_class_of_record(record))


def _has_field_value(name: str, value: str, record: Record) -> bool:
    if name == "machine":
        return value.lower() in machine_class_of_record(record).lower()
    if name == "revision":
        commit = record.software.git_commit if record.software else None
        return bool(commit and commit.startswith(value))
    if name == "data_set" and record.request and (data_set := record.request.data_set):
        return value in (data_set.format, data_set.digest)
    recorded = _field_value(record, name)
    return str(recorded) == value or (isinstance(recorded, bool) and str(recorded).lower() == value)


def _filter_values(record: Record, name: str) -> Any:
    """Return the value of a field, or the values, with which a filter compares."""
    if name == "revision":
        return record.software and record.software.git_commit
    if name == "data_set" and record.request and (data_set := record.request.data_set):
        return [data_set.format, data_set.digest]
    return _field_value(record, name)


def _field_values(cell: _Cell, names: Iterable[str]) -> list[Any]:
    return [_field_value(cell.last_record, name) for name in names]


def _field_value(record: Record, name: str) -> Any:
    if name == "machine":
        return machine_class_of_record(record)
    value = getattr(record.request, name)
    if name == "strategy_options":
        return format_options(value) or None
    return value or allocators.SYSTEM if name == "allocator" else value


def incomparable_reason(
    a: Sequence[Record], b: Sequence[Record], certificates: Certificates
) -> str | None:
    """Return why two cells may train different networks, or None if they train the same network.

    `a` and `b` are the records of the cells. Cells with the same code, framework, kernel, device,
    precision and strategy need no certificate. Otherwise a certificate must cover every record. A
    certificate that says "different" of the timed batch of a record counts in both cases.
    """
    wrong = (wrong_batch_reason(record, certificates) for record in (*a, *b))
    if reason := next(filter(None, wrong), None):
        return reason
    if have_same_code(a[-1], b[-1]):
        return None
    return next(filter(None, (unranked_reason(record, certificates) for record in (*a, *b))), None)


def have_same_code(a: Record, b: Record, *, same_ranks: bool = True) -> bool:
    """Return whether two records are of the same network, and of the same code.

    `same_ranks`: whether the number of ranks and their strategy must be the same too.
    """
    if not all(record.request and record.software and record.workload for record in (a, b)):
        return False
    return _network_and_code_key(a, same_ranks) == _network_and_code_key(b, same_ranks)


def _network_and_code_key(record: Record, same_ranks: bool) -> tuple[Any, ...]:
    """Return the values of a record that decide which network is trained, and with which code."""
    assert record.request and record.software and record.workload
    request = record.request
    ranks = (request.ranks, request.strategy, request.strategy_options) if same_ranks else ()
    return (
        record.workload.digest,
        record.software.adapter_digest,
        record.software.worker_digest if request.revision else None,
        record.software.environment_digest,
        *(request.framework, request.kernel, request.device, request.precision),
        *ranks,
    )


def _name_pairs(pairs: Sequence[tuple[_Cell, _Cell]], a: Side, b: Side) -> list[tuple[str, str]]:
    """Return the names of both cells of each pair. Different pairs have different names."""

    def name_pair(pair: tuple[_Cell, _Cell], fields: Collection[str]) -> tuple[str, str]:
        cell_a, cell_b = pair
        return (
            _name_cell(cell_a, cell_b, a, b, fields),
            _name_cell(cell_b, cell_a, b, a, fields),
        )

    names = [name_pair(pair, ()) for pair in pairs]
    fields_by_names = {
        chosen: _list_differing_fields(
            [pair for pair, name in zip(pairs, names, strict=True) if name == chosen]
        )
        for chosen in names
    }
    fields = [fields_by_names[name] for name in names]
    names = [name_pair(pair, added) for pair, added in zip(pairs, fields, strict=True)]
    counts = Counter(names)
    return [
        name_pair(pair, [*added, "cell"]) if counts[name] > 1 else name
        for pair, added, name in zip(pairs, fields, names, strict=True)
    ]


def _list_differing_fields(pairs: Sequence[tuple[_Cell, _Cell]]) -> list[str]:
    """Return the fields in which cells of a side differ."""
    return [
        name
        for name in (*_REQUEST_FIELDS, "machine")
        if name not in _NOT_DISTINGUISHING_FIELDS
        and any(
            len({str(_field_values(cell, [name])) for cell in cells}) > 1
            for cells in zip(*pairs, strict=True)
        )
    ]


def _name_cell(
    cell: _Cell,
    other_cell: _Cell,
    side: Side,
    other_side: Side,
    further_fields: Collection[str],
) -> str:
    """Return a name of `cell`.

    The name contains:

    - The network, the framework and the kernel.
    - The cell's values of all other fields in which the two cells differ, or which a filter of
      `side` names.
    - The cell's values of `further_fields`, unless they are the defaults.
    - The machine, and the results folder, if the two cells differ in them.
    - The code revision, if the filter of `side` names one.
    - The start of the cell's digest, if "cell" is in `further_fields`.
    """
    request = cell.last_record.request
    assert request is not None
    named_fields = {"framework", "kernel", *side.field_values}
    values: list[str] = []
    further_names = [name for name in _REQUEST_FIELDS if name not in _SEPARATELY_NAMED_FIELDS]
    for name in ("framework", "kernel", *further_names):
        [value], [other_value] = (_field_values(each, [name]) for each in (cell, other_cell))
        is_named = name in named_fields or (
            name in further_fields and value != Cell.model_fields[name].default
        )
        is_different = value != other_value and name not in _UNNAMED_FIELDS
        if value is not None and (is_different or is_named):
            values.append(
                describe_solver_setting(name, value)
                if name in SOLVER
                else _VALUE_TEXTS.get(name, str)(value)
            )
    machine, other_machine = (machine_class_of_record(c.last_record) for c in (cell, other_cell))
    if machine != other_machine or "machine" in further_fields:
        values.append(machine)
    if side.folder != other_side.folder:
        values.append(str(side.folder))
    if "revision" in side.field_values:
        values.append(side.field_values["revision"])
    if "cell" in further_fields:
        values.append(f"cell {(cell.last_record.cell or 'none')[7:15]}")
    return " · ".join([request.workload, *values])
