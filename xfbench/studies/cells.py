"""The records of a study as cells: which belong to it, what each is called, which are alike."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xfbench import adapter
from xfbench.analysis import comparison, leaderboard
from xfbench.analysis.grouping import group_by_cell
from xfbench.analysis.leaderboard import Certificates
from xfbench.data import sets
from xfbench.environments import allocators
from xfbench.experiment import DEFAULT_STEPS, WINDOWS, Experiment
from xfbench.matrix import Matrix
from xfbench.records.machines import machine_class
from xfbench.records.record import Record
from xfbench.request import SOLVER, Request, describe_solver_setting
from xfbench.running import probing, training
from xfbench.strategy import format_options
from xfbench.studies.form import SIZES, Rising, Scalar, Size
from xfbench.workloads import workloads

# What tells cells apart in words, in this order; "machine" is last.
NAMED = (
    *("workload", "framework", "kernel", "device", "precision", "threads", "ranks", "nodes"),
    *("strategy", "scaling", "batch_size", "data", "format", "medium", "page_cache", "input"),
    *SOLVER,
    *("checkpoints", "memory_limit", "allocator", "probe", "machine"),
)
# What follows from a setting, and may differ where that one does.
_FOLLOW: dict[str, tuple[str, ...]] = {
    "workload": ("batch_size", "data"),
    "framework": ("kernel",),
    "machine": ("threads",),
    "ranks": ("nodes", "strategy"),
    "nodes": ("ranks", "strategy"),
}
# What is so where nothing was chosen.
_UNCHOSEN = {"lars": 0, "rate_scaling": "none", "rate_warmup": 0}
_WITH_UNIT = {"threads": "thread", "ranks": "rank", "nodes": "node", "checkpoints": "checkpoint"}


@dataclass(frozen=True, eq=False)
class Measured:
    """One cell on one kind of machine, with all its launches and seeds."""

    records: tuple[Record, ...]

    @property
    def request(self) -> Request:
        asked = self.records[-1].request
        assert asked is not None
        return asked

    def value(self, name: str) -> Any:
        """A setting by its name; that of a strategy's option too. None where it has none."""
        request = self.request
        if name == "machine":
            return machine_class(self.records[-1].machine)
        if name == "batch_size":
            return request.fixed_batch_size
        if name == "strategy":
            return request.strategy_text
        if name == "probe":
            return probing.describe_probe(request)
        if name in ("format", "medium"):
            return getattr(request.data_set, name, None)
        if name in _UNCHOSEN:
            return getattr(request, name) or _UNCHOSEN[name]
        if name in Request.model_fields:
            return getattr(request, name)
        options = adapter.load(request.framework).strategy(request.strategy)
        return options.resolve_options(dict(request.strategy_options), request.device).get(name)

    def matches(self, where: Mapping[str, Scalar]) -> bool:
        """Whether it has all of these values."""
        return all(str(self.value(name)) == str(value) for name, value in where.items())

    def steady(self) -> list[Record]:
        """The launches that are ok."""
        return [record for record in self.records if record.status == "ok"]

    def diverged(self) -> list[Record]:
        """The launches of which `has_diverged` is true."""
        return [record for record in self.records if has_diverged(record)]


def has_diverged(record: Record) -> bool:
    """Whether the launch did all its steps, and its loss became no number."""
    measured = record.measurement
    return record.status == "invalid" and measured is not None and None in measured.losses


def measured(records: Iterable[Record]) -> list[Measured]:
    """The cells of the records, in a fixed order."""
    found = [
        Measured(tuple(own))
        for cells in group_by_cell(records, probes=True).values()
        for own in cells.values()
    ]
    return sorted(found, key=lambda one: [_sortable(one.value(name)) for name in NAMED])


class _Known:
    """Networks and adapters as they are now, each read once: there may be many records."""

    def __init__(self) -> None:
        self.workloads = workloads()
        self.names = adapter.list_names()
        self.adapters: dict[str, adapter.Adapter] = {}

    def adapter(self, name: str) -> adapter.Adapter | None:
        """None for one that is not there."""
        if name not in self.adapters and name in self.names:
            self.adapters[name] = adapter.load(name)
        return self.adapters.get(name)


def of_study(study: Experiment, size: Size, records: Iterable[Record]) -> list[Record]:
    """The measured records that one of the study's matrices asks for, on whatever machine."""
    matrices, known = study.of_size(size), _Known()
    return [
        record
        for record in records
        if record.source == "measured"
        and record.request
        and any(_asks(one, record.request, known) for one in matrices)
    ]


def doubled(study: Experiment, size: Size, found: Iterable[Measured]) -> list[Measured]:
    """Those whose batch is to be compared, and was not just tried to find the end of memory."""
    matrices, known = study.of_size(size), _Known()
    return [
        one
        for one in found
        if any(
            not isinstance(m.batch_size, Rising)
            or m.batch_size.doubled(one.request.fixed_batch_size)
            for m in matrices
            if _asks(m, one.request, known)
        )
    ]


def fullest(study: Experiment, records: Sequence[Record]) -> Size | None:
    """The size of which most was measured; the smaller one where that is the same of both."""
    good = [record for record in records if record.status == "ok"]
    counts = {size: len(of_study(study, size, good)) for size in study.sizes}
    best = max(counts, key=lambda size: (counts[size], -SIZES.index(size)))
    return best if counts[best] else None


def _asks(m: Matrix, r: Request, known: _Known) -> bool:
    """Whether the matrix has such a cell, whatever chose what it leaves open."""
    if r.framework not in m.framework or r.workload not in m.workload:
        return False
    own, described = known.workloads.get(r.workload), known.adapter(r.framework)
    if own is None:
        return False
    window = m.window or WINDOWS.get(r.device, 1)
    steps = m.steps if m.epochs else m.steps or DEFAULT_STEPS * window
    lists: tuple[tuple[Any, Sequence[Any] | None], ...] = (
        (r.device, m.device),
        (r.precision, m.precision),
        (r.ranks, m.ranks),
        (r.nodes, [r.ranks // m.ranks_per_node] if m.ranks_per_node else m.nodes),
        (r.seed, m.seed),
        (r.fixed_batch_size, _batches(m, r, own.batch_size)),
        (r.threads, m.threads if isinstance(m.threads, list | tuple) else None),
        (r.page_cache, m.page_cache or [None]),
        (r.input, m.input),
        *((getattr(r, name), training.drop_defaults(own, name, m.solver[name])) for name in SOLVER),
        (r.allocator or allocators.SYSTEM, m.allocator or [allocators.SYSTEM]),
        (r.probe, m.probe or [None]),
        (r.launcher, [m.launcher] if m.probe and m.launcher else None),
    )
    if not all(allowed is None or value in allowed for value, allowed in lists):
        return False
    single = (
        (r.epochs, m.epochs),
        (r.steps, steps),
        (r.warmup, m.warmup),
        (r.scaling, m.scaling),
        (r.checkpoints, m.checkpoints),
        # What is available, or somebody chooses, is where batches find their end.
        (r.memory_limit, r.memory_limit if isinstance(m.batch_size, Rising) else m.memory_limit),
    )
    if any(value != wanted for value, wanted in single):
        return False
    first = list(described.kernels_on(r.device))[:1] if described else []
    kernels = [one for name in m.kernel for one in (first if name == "default" else [name])]
    together = "default" in m.strategy or r.ranks == 1 or r.strategy in m.strategy
    if described and r.ranks > 1:
        chosen = described.strategy(r.strategy).non_default_options(m.strategy_options, r.device)
        together &= chosen == dict(r.strategy_options)
    return r.kernel in kernels and together and _data(m, r, own.data)


def _batches(m: Matrix, r: Request, own: int) -> Sequence[int]:
    """Those that the matrix has; where they are found out, any from its first to its last on."""
    if isinstance(m.batch_size, Rising):
        size, last = r.fixed_batch_size, m.batch_size.most
        return [size] if size >= m.batch_size.start and (last is None or size <= last) else []
    return m.batch_size or [own]


def _data(m: Matrix, r: Request, own: str) -> bool:
    """Of a study's own data the format is named; of others the set.

    The digits on disk are not those that come with xfbench.
    """
    built_in = r.data_set is None
    if m.data is None:
        return built_in and r.data == ("synthetic" if m.steps and not m.epochs else own)
    names = {r.data} if built_in or r.data not in sets.BUILT_IN else set()
    names |= {f"{r.data}-{r.data_set.format}"} if r.data_set else set()
    return any(name.partition("@")[0] in names for name in m.data)


def alike(cells: Sequence[Measured], over: str) -> list[list[Measured]]:
    """Cells that differ in `over`, and what follows from it, alone: groups in its order.

    One rank belongs to every way in which several train together.
    """
    free = {over, *_FOLLOW.get(over, ())}
    held = [name for name in NAMED if name not in free]
    groups: dict[tuple[Any, ...], list[Measured]] = defaultdict(list)
    for one in cells:
        groups[tuple(_held(one, name, over) for name in held)].append(one)
    found = []
    for group in groups.values():
        group.sort(key=lambda one: _sortable(one.value(over)))
        if over not in ("ranks", "nodes"):
            found.append(group)
            continue
        alone = [one for one in group if one.request.ranks == 1]
        ways: dict[str, list[Measured]] = defaultdict(list)
        for one in group:
            if one not in alone:
                ways[one.value("strategy")].append(one)
        found += [[*alone, *way] for way in ways.values()] or [alone]
    return found


def _held(one: Measured, name: str, over: str) -> str:
    """A setting as text; of a strategy's options not the one that is varied."""
    if name == "strategy" and over not in NAMED:
        others = [pair for pair in one.request.strategy_options if pair[0] != over]
        return f"{one.request.strategy} {format_options(others)}"
    return str(one.value(name))


def name(one: Measured, among: Sequence[Measured], without: Sequence[str] = ()) -> str:
    """The network, the framework, and what tells it from the others, in words."""
    always = [field for field in ("workload", "framework") if field not in without]
    varying = _varying(tuple(among))
    parts = []
    for field in NAMED:
        value = one.value(field)
        if value == _UNCHOSEN.get(field):  # nor where it has none
            continue
        if field in without or (field not in always and field not in varying):
            continue
        if field == "strategy" and one.request.ranks == 1:
            continue
        parts.append(worded(field, value))
    return " · ".join(parts)


@functools.lru_cache(maxsize=1)
def _varying(among: tuple[Measured, ...]) -> set[str]:
    return {field for field in NAMED if len({str(other.value(field)) for other in among}) > 1}


def worded(field: str, value: Any) -> str:
    """A setting's value with what it counts: "2 threads"."""
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
    return str(value) if field in NAMED else f"{field} {value}"


def comparable(a: Measured, b: Measured, certificates: Certificates) -> str | None:
    """Why two cells are not known to train the same network; None where they are."""
    return comparison.incomparable_reason(a.steady(), b.steady(), certificates)


def unproven(group: Sequence[Measured], certificates: Certificates) -> dict[int, str]:
    """By `id` of a cell, why it stands against none of the group; those that may are not there.

    Where all are the same translation of the network, nothing needs a proof.
    """
    good = [one for one in group if one.steady()]
    if not good or not any(comparable(one, good[0], {}) for one in good):
        return {}
    reasons = {
        id(one): next(
            filter(None, (leaderboard.unranked_reason(r, certificates) for r in one.steady())), None
        )
        for one in good
    }
    return {one: reason for one, reason in reasons.items() if reason}


def _sortable(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, str(value)
