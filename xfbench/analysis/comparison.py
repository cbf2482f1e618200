"""Comparisons of records: which cells stand against which, and what the launches say of them.

A side is a filter over records, a results folder, or both. Whatever neither filter names is
held equal, so that a difference is one of what was named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from xfbench.analysis import statistics
from xfbench.analysis.leaderboard import Certificates, unproven
from xfbench.analysis.statistics import Comparison, Launches
from xfbench.base import errors
from xfbench.base.terminal_text import say
from xfbench.environments import allocators
from xfbench.equality import certificate
from xfbench.records.machines import machine_class
from xfbench.records.provenance import as_told
from xfbench.records.record import Record
from xfbench.request import SOLVER, Cell, solver_words
from xfbench.results import index, selection
from xfbench.results.store import Complain, Store, existing
from xfbench.strategy import words

_OF_REQUEST = tuple(Cell.model_fields)
FIELDS = (*_OF_REQUEST, "machine", "revision", "results")
_SIZES = ("global_batch_size", "batch_size_per_rank")
_TOGETHER = ("strategy", "strategy_options", "launcher", *_SIZES)
# What follows from another field: to name this one lets those differ.
_FOLLOW = {
    "framework": ("kernel", "environment"),
    "strategy": ("strategy_options",),
    "ranks": ("nodes", *_TOGETHER),
    "nodes": ("ranks", *_TOGETHER),
    "global_batch_size": ("batch_size_per_rank",),
    "batch_size_per_rank": ("global_batch_size",),
    "results": ("machine",),
}
# Not part of what is compared: how long one looked, and with which random numbers.
_NEVER_HELD = ("steps", "epochs", "warmup", "window", "seed", "site")
_NOT_NAMED = ("environment", "workload", *_NEVER_HELD)
# Fields that have text in every record, by which the index chooses.
_CHOSEN_BY = ("framework", "workload", "kernel", "device", "precision", "strategy", "data")
_GROUP = 5  # pairs of launches for one A/A verdict

Verdict = Literal["faster", "slower", "not_distinguishable"]


@dataclass(frozen=True)
class Side:
    """What a command line names: a results folder and the values that fields must have.

    `conditions` hold for its records besides; nothing is named by them.
    """

    folder: Path
    wanted: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[selection.Condition, ...] = ()

    @classmethod
    def parse(
        cls, text: str | None, folder: Path, conditions: tuple[selection.Condition, ...] = ()
    ) -> Side:
        """From "framework=torch,threads=2" or a folder's path; `folder` where none is named.

        All that is in `folder` for None. Raises UsageError on an unknown field, or where there
        are no results.
        """
        wanted: dict[str, str] = {}
        if text and "=" not in text:
            wanted["results"] = text
        elif text:
            for pair in text.split(","):
                name, _, value = pair.partition("=")
                if name.strip() not in FIELDS:
                    raise errors.unknown("field", name.strip(), FIELDS)
                wanted[name.strip()] = value.strip()
        found = Path(wanted.get("results", folder))
        return cls(existing(found).folder, wanted, conditions)

    def takes(self, record: Record) -> bool:
        """Whether the record is one of this side."""
        return record.request is not None and all(
            _matches(name, value, record)
            for name, value in self.wanted.items()
            if name != "results"
        )

    def records(self, complain: Complain) -> Iterator[Record]:
        """This side's records, oldest first; `complain` hears of what is none, or cannot be."""
        conditions = [*self.conditions] + [
            selection.equal(f"request.{name}", value)
            for name, value in self.wanted.items()
            if name in _CHOSEN_BY
        ]
        with index.opened(Store(self.folder), complain) as known:
            for _, record in known.select(conditions):
                if self.takes(record):
                    told = as_told(record)
                    if told.status != record.status:
                        complain(f"{record.id}: {told.reason}: not counted")
                    yield told
        for line in known.damaged:
            complain(line)


@dataclass(frozen=True)
class Compared:
    """A against B: names, the figures, and the verdict that holds beside all others'.

    `reason` says why there is none: one of them is not proven to be the same network.
    """

    a: str
    b: str
    figures: Comparison
    verdict: Verdict | None
    reason: str | None = None

    def document(self) -> dict[str, Any]:
        """As `compare --json` prints it."""
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
            "reason": self.reason,
        }


@dataclass
class _Group:
    """The launches of one cell on one kind of machine."""

    records: list[Record] = field(default_factory=list)

    @property
    def launches(self) -> Launches:
        return statistics.launches(self.records)


def compare(a: Side, b: Side) -> list[Compared]:
    """Every cell of A against every cell of B that is like it in all that neither side names."""
    named = {*a.wanted, *b.wanted} if a.folder == b.folder else {*a.wanted, *b.wanted, "results"}
    free = {*named, *(other for name in named for other in _FOLLOW.get(name, ())), *_NEVER_HELD}
    free -= {"workload"}  # images per second of two networks are two things
    held = [name for name in (*_OF_REQUEST, "machine") if name not in free]
    of_a, of_b = _groups(a), _groups(b)
    certificates = {**certificate.read_folder(a.folder), **certificate.read_folder(b.folder)}
    pairs = [
        (mine, theirs)
        for mine in of_a
        for theirs in of_b
        if _values(mine, held) == _values(theirs, held)
        and {r.id for r in mine.records} != {r.id for r in theirs.records}
    ]
    figures = [statistics.compare(mine.launches, theirs.launches) for mine, theirs in pairs]
    reasons = [incomparable(mine.records, theirs.records, certificates) for mine, theirs in pairs]
    shown = statistics.distinguishable(
        [None if why else one.p for one, why in zip(figures, reasons, strict=True)]
    )
    return [
        Compared(
            _name(mine, theirs, a, b),
            _name(theirs, mine, b, a),
            one,
            None if why else one.verdict if differs else "not_distinguishable",
            why,
        )
        for (mine, theirs), one, why, differs in zip(pairs, figures, reasons, shown, strict=True)
    ]


def against_itself(side: Side) -> tuple[list[Compared], int, int]:
    """A/A: launches of each cell in turn taken for A and B.

    All of them compared; and how many verdicts over groups of five pairs there are, and how
    many of those are false.
    """
    found, verdicts = [], []
    for group in _groups(side):
        values = [*group.launches.values()]
        # Every other pair the other way round, so that a drift favours neither.
        pairs = [values[n : n + 2][:: 1 - n % 4] for n in range(0, len(values) - 1, 2)]
        first, second = ({(n, 0): pair[k] for n, pair in enumerate(pairs)} for k in (0, 1))
        if not pairs:
            continue
        name = _name(group, group, side, side)
        figures = statistics.compare(first, second)
        found.append(Compared(name, f"{name} (again)", figures, figures.verdict))
        for start in range(0, len(second) - _GROUP + 1, _GROUP):
            part = range(start, start + _GROUP)
            one = statistics.compare(
                {(n, 0): first[n, 0] for n in part}, {(n, 0): second[n, 0] for n in part}
            )
            verdicts.append(one.verdict)
    return found, len(verdicts), sum(verdict != "not_distinguishable" for verdict in verdicts)


def overall(found: Sequence[Compared]) -> float | None:
    """The geometric mean of the ratios that may be compared; None of fewer than two."""
    ratios = [one.figures.ratio.value for one in found if one.verdict is not None]
    if len(ratios) < 2:
        return None
    return statistics.geometric_interval(ratios).value


def fails(limit: str) -> Callable[[Compared], bool]:
    """Whether a comparison is what "slower:5%" or "faster" names. Raises UsageError."""
    verdict, _, share = limit.partition(":")
    try:
        least = float(share.removesuffix("%") or 0) / 100
    except ValueError:
        least = -1.0
    if verdict not in ("slower", "faster") or least < 0:
        raise errors.UsageError(f"--fail-on {limit}: the form is slower:5% or faster:5%")

    def failed(one: Compared) -> bool:
        far = one.figures.ratio.value - 1
        return one.verdict == verdict and (far if verdict == "faster" else -far) >= least

    return failed


def _groups(side: Side) -> list[_Group]:
    """The side's cells, each with its launches that are ok; revisions apart where one is named."""

    found: dict[tuple[str, ...], _Group] = defaultdict(_Group)
    for record in side.records(say):
        if record.source == "measured" and record.status == "ok" and record.cell:
            found[record.cell, machine_class(record.machine)].records.append(record)
    if not found:
        named = ",".join(f"{k}={v}" for k, v in side.wanted.items() if k != "results")
        raise errors.UsageError(f"{side.folder} has no good launch of {named or 'any cell'}")
    return list(found.values())


def _matches(name: str, value: str, record: Record) -> bool:
    if name == "machine":
        return value.lower() in machine_class(record.machine).lower()
    if name == "revision":
        commit = record.software.git_commit if record.software else None
        return bool(commit and commit.startswith(value))
    return str(_value(record, name)) == value


def _values(group: _Group, names: Iterable[str]) -> list[Any]:
    record = group.records[-1]
    return [_value(record, name) for name in names]


def _value(record: Record, name: str) -> Any:
    if name == "machine":
        return machine_class(record.machine)
    value = getattr(record.request, name)
    if name == "strategy_options":
        return words(value) or None
    return value or allocators.SYSTEM if name == "allocator" else value


def incomparable(
    a: Sequence[Record], b: Sequence[Record], certificates: Certificates
) -> str | None:
    """Why two cells' records are not known to train the same network; None where they are."""
    one, other = a[-1], b[-1]
    if one.software and other.software and _translation(one) == _translation(other):
        return None
    return next(filter(None, (unproven(r, certificates) for r in (*a, *b))), None)


def _translation(record: Record) -> tuple[Any, ...]:
    """What decides which network is trained: equal ones need no proof that they are the same."""
    assert record.request and record.software and record.workload
    request = record.request
    return (
        record.workload.digest,
        record.software.adapter_digest,
        record.software.environment_digest,
        *(request.framework, request.kernel, request.device, request.precision),
        *(request.ranks, request.strategy, request.strategy_options),
    )


def _name(group: _Group, other: _Group, own: Side, their: Side) -> str:
    """The network, and all that tells this cell from the other."""
    request = group.records[-1].request
    assert request is not None
    names = ("framework", "kernel", *(n for n in _OF_REQUEST if n not in _NOT_NAMED))
    mine, theirs = _values(group, names), _values(other, names)
    differing = [
        solver_words(name, value)
        if name in SOLVER
        else f"{value} {name}"
        if name in ("threads", "checkpoints")
        else str(value)
        for name, value, that in zip(names, mine, theirs, strict=True)
        if (name in ("framework", "kernel") or value != that) and value is not None
    ]
    parts = [request.workload, *dict.fromkeys(differing)]
    if machine_class(group.records[-1].machine) != machine_class(other.records[-1].machine):
        parts.append(machine_class(group.records[-1].machine))
    if own.folder != their.folder:
        parts.append(str(own.folder))
    if "revision" in own.wanted:
        parts.append(own.wanted["revision"])
    return " · ".join(dict.fromkeys(parts))
