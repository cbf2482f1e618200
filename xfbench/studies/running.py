"""A study as a plan that `run` carries out: its cells here, what is left out, how long it takes."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xfbench import capabilities, experiment
from xfbench.base import errors
from xfbench.experiment import Experiment
from xfbench.host import sites
from xfbench.plan import Plan
from xfbench.records.record import Record
from xfbench.request import Cell, Request
from xfbench.running.launch import DEFAULT_TIME_LIMIT
from xfbench.scheduling import launch_order
from xfbench.studies import media
from xfbench.studies.cells import has_diverged
from xfbench.studies.form import Rising, Size
from xfbench.studies.rising import Line


@dataclass(frozen=True)
class Choices:
    """What somebody chooses about how a study is run here; the rest is in its file."""

    frameworks: Sequence[str] = ()
    launches: int | None = None
    launcher: str | None = None
    site: str | None = None
    pythons: Mapping[str, Path] = field(default_factory=dict)
    media: Mapping[str, Path] = field(default_factory=dict)
    verify: bool = True
    strict: bool = False
    time_limit: float = DEFAULT_TIME_LIMIT
    memory_limit: int | None = None


@dataclass(frozen=True)
class Prepared:
    """What is to be run, and the cells that are not, each with the reason.

    The plan has what is known beforehand; the batches of `lines` are found out one by one.
    `absent` are data sets that would be trained on if they were there.
    """

    plan: Plan
    left_out: tuple[tuple[Cell, str], ...]
    lines: tuple[Line, ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """`seconds` of the launches that something is known of, and how many others there are."""

    seconds: float
    known: int
    unknown: int

    def words(self) -> str:
        """For a person."""
        if not self.known:
            return "not known"
        about = f"{self.seconds / 60:.0f} min" if self.seconds >= 90 else f"{self.seconds:.0f} s"
        more = f", and {self.unknown} launches of which nothing is known" if self.unknown else ""
        return f"about {about} for {self.known} launches{more}"


def prepare(study: Experiment, size: Size, choices: Choices) -> Prepared:
    """The study's launches at that size here; its own data are made. Raises UsageError."""
    matrices = study.of_size(size)
    if not matrices:
        there = ", ".join(study.sizes)
        raise errors.UsageError(f"{study.name} has no size {size}: it has {there}")
    known = media.media(choices.media)
    update = {
        name: value
        for name in ("launches", "launcher", "site")
        if (value := getattr(choices, name)) is not None
    }
    chosen, absent = [], {}
    for whole in matrices:
        one, lacking = media.present(study, whole)
        absent.update(dict.fromkeys(lacking))
        if one is None:
            continue
        names = [n for n in one.framework if not choices.frameworks or n in choices.frameworks]
        if names:
            placed = media.placed(study, one, known)
            own: dict[str, object] = {"framework": names}
            if choices.memory_limit and isinstance(one.batch_size, Rising):
                own["memory_limit"] = choices.memory_limit
            if one.probe and one.launcher:
                own["launcher"] = one.launcher
            chosen.append(placed.model_copy(update={**update, **own}))
    if not chosen and absent:
        raise errors.UsageError(f"{study.name}: {media.missing(next(iter(absent)))}")
    if not chosen:
        raise errors.UsageError(f"{study.name} has none of {', '.join(choices.frameworks)}")
    fixed = [one for one in chosen if not isinstance(one.batch_size, Rising)]
    cells = experiment.cells(fixed, choices.pythons)
    lines = [
        Line(cell, one.batch_size, protocol)
        for one in chosen
        if isinstance(one.batch_size, Rising)
        for cell, protocol in experiment.cells([one], choices.pythons)
    ]
    every = [*(cell for cell, _ in cells), *(line.cell for line in lines)]
    reasons = [(cell, None if study.crowded else crowded(cell)) for cell in every]
    left_out = tuple((cell, reason) for cell, reason in reasons if reason)
    without = {cell for cell, _ in left_out}
    wanted = [(cell, protocol) for cell, protocol in cells if cell not in without]
    plan = Plan(
        requests=tuple(launch_order(wanted)),
        protocols=tuple(wanted),
        pythons=dict(choices.pythons),
        verify=choices.verify,
        strict=choices.strict,
        time_limit=choices.time_limit,
        data_folders=experiment.folders(chosen),
    )
    return Prepared(
        plan,
        left_out,
        tuple(one for one in lines if one.cell not in without),
        tuple(absent),
    )


def crowded(cell: Cell) -> str | None:
    """Why this machine, or a node of the site, is too small for what would run on it alone.

    None where it is not, or where nobody says what a node has.
    """
    if cell.device != "cpu":
        return None
    per_node = cell.ranks // cell.nodes
    if cell.launcher == "local":
        there, where = len(os.sched_getaffinity(0)), "there are"
    else:
        there, where = sites.load(cell.site).rank_cores(None, 0), "a node has"
    wanted = per_node * cell.threads
    if not there or wanted <= there:
        return None
    ranks = f"{per_node} ranks of " if per_node > 1 else ""
    threads = f"{cell.threads} thread{'s' if cell.threads > 1 else ''}"
    return f"{ranks}{threads} need {wanted} processors, and {where} {there}"


def estimate(requests: Sequence[Request], records: Iterable[Record]) -> Estimate:
    """How long launches will take, by earlier ones: of the same cell, else of a like one.

    A like one differs in threads, kernel, ranks, batch, data or seed alone. What cannot be done
    takes no time.
    """
    exact: dict[Cell, list[float]] = defaultdict(list)
    alike: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for record in records:
        told = record.conditions
        if record.request and told and told.seconds is not None and record.status == "ok":
            exact[record.request.cell()].append(told.seconds)
            alike[_amount(record.request)].append(told.seconds)
    seconds, known = 0.0, 0
    wanted = [request for request in requests if not capabilities.refusal_reason(request)]
    for request in wanted:
        found = exact.get(request.cell()) or alike.get(_amount(request))
        if found:
            seconds += statistics.median(found)
            known += 1
    return Estimate(seconds, known, len(wanted) - known)


def _amount(request: Request) -> tuple[object, ...]:
    how_much = request.steps, request.epochs, request.warmup
    return request.framework, request.workload, request.device, request.precision, *how_much


def as_expected(study: Experiment, record: Record) -> bool:
    """Whether a launch went well, or went wrong in a way that the study asks about."""
    if record.status in ("ok", "unsupported", "unavailable"):
        return True
    if record.request and record.request.probe:
        return True
    return has_diverged(record) and any(one.name == "diverged" for one in study.analysis)
