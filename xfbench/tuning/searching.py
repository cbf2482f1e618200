"""A search: its launches in order, each a record as any other, and what came of it.

What is launched next is decided in `halving.py`; here it is launched, counted against the
budget, and told.
"""

from __future__ import annotations

import random
import statistics as stdlib_statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xfbench import adapter
from xfbench.analysis import statistics
from xfbench.analysis.statistics import Launches
from xfbench.base import errors
from xfbench.equality import certify
from xfbench.equality.certificate import certified_fields
from xfbench.host import handover, machine
from xfbench.records import facts
from xfbench.records.machines import machine_class
from xfbench.records.record import Record
from xfbench.request import Cell, Request
from xfbench.results import lookup
from xfbench.results.store import Store
from xfbench.running import launch
from xfbench.running.launch import DEFAULT_TIME_LIMIT, LaunchContext
from xfbench.session import run_requests
from xfbench.tuning import repeating
from xfbench.tuning.halving import (
    MAX_EXTRA_RUNGS,
    Halved,
    Round,
    Rung,
    choose_winner,
    first_rung_settings,
    halve,
    has_spent_share,
    plan_rungs,
    settings_to_repeat,
)
from xfbench.tuning.saved import Figure, Loser, RungDone, Tuning
from xfbench.tuning.space import Space, describe_setting, factors, setting
from xfbench.workloads import workloads

Say = Callable[[str], None]


@dataclass(frozen=True)
class Choices:
    """How a search is done. The confirmation has `least` launches of each, and `most` at most.

    With `budget_seconds` no launch is begun that would end later, by what launches took before;
    only launches of this call count. `resume`: what was launched before is not launched again.
    """

    pythons: Mapping[str, Path] = field(default_factory=dict)
    least: int = 5
    most: int = 20
    budget_seconds: float | None = None
    seed: int = 0
    verify: bool = True
    strict: bool = False
    resume: bool = False
    time_limit: float = DEFAULT_TIME_LIMIT


def search(space: Space, choices: Choices, store: Store, say: Say) -> Tuning:
    """Find the best setting, and confirm it; all launches are in the store.

    Raises UnavailableError, and XfbenchError where nothing could be tried, or no launch counted.
    """
    framework = space.default.framework
    session = LaunchContext(
        store,
        time_limit=choices.time_limit,
        strict=choices.strict,
        data_folders=dict(space.data_folders),
    )
    allocated = [cell.allocator for cell in space.cells]
    session.prepare([framework], choices.pythons, say, space.default.site, allocated)
    if framework in session.unavailable:
        raise errors.UnavailableError(session.unavailable[framework])
    space = space.without(
        [
            (cell, session.unallocated[cell.allocator])
            for cell in space.cells
            if cell.allocator in session.unallocated
        ]
    )
    unproven = _unproven(space, session, choices, say)
    space = space.without([(cell, why) for cell, why in unproven.items() if cell in space.cells])
    if not space.cells:
        raise errors.XfbenchError(f"there is nothing to try: {space.left_out[-1][1]}")
    launching = _Launching(space, choices, session, say)
    halved = halve(space.cells, factors, launching.rung)
    if not halved.left:
        raise errors.XfbenchError(f"no launch counted: {halved.dropped[-1].reason}")
    searched = launching.seconds
    # Where nothing was searched, what is measured anyway stays unless another is certainly faster.
    left = halved.left if halved.rungs else sorted(halved.left, key=space.default.__ne__)
    winner, *others = left
    standing = launch.launch_obstacle(space.default.request(1))
    reason = standing[1] if standing else unproven.get(space.default)
    rivals = dict.fromkeys([*others[:1], *([] if reason else [space.default])])
    confirmed = launching.confirm(winner, [one for one in rivals if one != winner], halved)
    best = choose_winner(winner, confirmed)
    runner_up = winner if best != winner else next(iter(others), None)
    speed = confirmed.get(best)
    environment = session.environments[framework]
    return Tuning.make(
        machine=machine.describe(),
        framework_version=environment.version,
        environment_digest=environment.digest,
        adapter_digest=adapter.load(framework).digest,
        workload_digest=facts.workload_facts(workloads()[best.workload]).digest,
        verified=choices.verify,
        space=space.values(),
        settings=len(space.cells),
        seed=choices.seed,
        budget_seconds=choices.budget_seconds,
        rungs=[
            RungDone(settings=count, launches=rung.launches, steps=steps(best, rung))
            for rung, count in halved.rungs
        ],
        dropped=[
            *(Loser(setting=setting(one), rung=None, reason=why) for one, why in space.left_out),
            *(
                Loser(
                    setting=setting(one.setting),
                    rung=one.rung,
                    reason=one.reason,
                    relative=one.relative,
                )
                for one in halved.dropped
            ),
        ],
        best=best,
        default=space.default,
        default_reason=reason,
        runner_up=runner_up,
        confirmed=bool(speed),
        images_per_second=_figure(speed),
        over_default=_over(confirmed, best, space.default),
        over_runner_up=_over(confirmed, best, runner_up),
        ended_by_budget=launching.spent,
        launches=len(launching.records),
        search_seconds=searched,
        machine_seconds=launching.seconds,
        records=[record.id for record in launching.records],
    )


def most_launches(space: Space, choices: Choices) -> int:
    """How many there may be at most: all rungs, further ones, and three settings' confirmation.

    But for those that are done again (`repeating.py`).
    """
    compared = len({*space.cells[:2], space.default}) if len(space.cells) < 3 else 3
    whole = planned(space)
    of_rungs = sum(rung.settings * rung.launches for rung in whole)
    further = MAX_EXTRA_RUNGS * whole[-1].settings if whole else 0
    return of_rungs + further + compared * choices.most


def planned(space: Space) -> list[Rung]:
    """The rungs of a search."""
    return plan_rungs(len(space.cells), len(first_rung_settings(space.cells, factors)))


def steps(cell: Cell, rung: Rung) -> int:
    """The timed steps of a launch in this rung: whole windows."""
    assert cell.steps is not None
    return max(1, round(cell.steps * rung.share / cell.window)) * cell.window


def _unproven(space: Space, session: LaunchContext, choices: Choices, say: Say) -> dict[Cell, str]:
    """Cells that must not win, and why; all others have their certificate, as far as asked for."""
    every = [*dict.fromkeys([*space.cells, space.default])]
    requests = [one.request(1) for one in every if not launch.launch_obstacle(one.request(1))]
    if not choices.verify:
        for request in {certified_fields(one): one for one in requests}.values():
            certify.attach_cached(request, session)
        return {}
    certify.certify_requests(requests, session, say, say)
    return {
        request.cell(): f"not proven equal: see `xfbench verify --framework {request.framework} "
        f"--workload {request.workload} --kernel {request.kernel}`"
        for request in requests
        if certified_fields(request) not in session.certificates
    }


def _figure(speed: Launches | None) -> Figure | None:
    return Figure.of(statistics.geometric_interval([*speed.values()])) if speed else None


def _over(speeds: Mapping[Cell, Launches], one: Cell, other: Cell | None) -> Figure | None:
    if other is None or other == one or not speeds.get(one) or not speeds.get(other):
        return None
    return Figure.of(statistics.compare(speeds[one], speeds[other]).ratio)


class _Launching:
    """The launches of one search, one after another, and what they have cost so far."""

    def __init__(self, space: Space, choices: Choices, session: LaunchContext, say: Say) -> None:
        self.space, self.choices, self.session, self.say = space, choices, session, say
        self.records: list[Record] = []
        self.cores = repeating.Cores(handover.read_latencies())
        self.last: dict[Cell, Record] = {}  # of each setting, of whatever length
        self.seconds = 0.0
        self.own_seconds = 0.0  # without what was done before
        self.spent = False

    def rung(self, rung: Rung, left: Sequence[Cell]) -> Round[Cell]:
        """A rung's launches, each block in a random order of its own."""
        short = {cell: cell.model_copy(update={"steps": steps(cell, rung)}) for cell in left}
        known = self._known([short[cell].request(b) for cell in left for b in rung.blocks])
        done: dict[Cell, list[Record]] = {cell: [] for cell in left}
        whole = len(planned(self.space))
        rest = f" of {whole}" if rung.number <= whole else ", since launches differ much"
        title = f"rung {rung.number}{rest}"
        for block in rung.blocks:

            def launch(cell: Cell, block: int = block) -> Record | None:
                request = short[cell].request(block)
                if request not in known and not self._allows(
                    self._foreseen(cell, short[cell]) + self._reserve()
                ):
                    self.spent = True
                return None if self.spent else self._launch(cell, request, known, title)

            alive = [one for one in left if all(r.status in ("ok", "invalid") for r in done[one])]
            for cell, record in repeating.block(
                self._shuffled(alive, block), launch, self.cores.spoiled
            ).items():
                done[cell].append(record)
            if self.spent:
                break
        return _round(done, spent=self.spent)

    def confirm(
        self, winner: Cell, rivals: Sequence[Cell], halved: Halved[Cell]
    ) -> dict[Cell, Launches]:
        """Launches of usual length of each, in blocks, until more would hardly change anything.

        A rival of whom that is known is not launched again.
        """
        cells = wanted = [winner, *rivals]
        blocks = range(halved.blocks + 1, halved.blocks + 1 + self.choices.most)
        known = self._known([cell.request(block) for cell in cells for block in blocks])
        done: dict[Cell, list[Record]] = {cell: [] for cell in cells}
        for count, block in enumerate(blocks):
            if count >= self.choices.least:
                speeds = {cell: statistics.launch_speeds(own) for cell, own in done.items()}
                wanted = settings_to_repeat(winner, wanted, speeds)
                if wanted and self._took_its_share(speeds):
                    self.say(
                        f"{' and '.join(map(describe_setting, wanted))} are not told apart "
                        "in a quarter of the time that launching every setting takes: "
                        "--launches for more"
                    )
                    break
            if not wanted:
                break
            new = [cell for cell in wanted if cell.request(block) not in known]
            if new and not self._allows(sum(self._foreseen(cell, cell) for cell in new)):
                self.spent = True
                break

            def launch(cell: Cell, block: int = block) -> Record | None:
                request = cell.request(block)
                if request not in known and not self._allows(self._foreseen(cell, cell)):
                    return None
                return self._launch(cell, request, known, "confirming")

            for cell, record in repeating.block(
                self._shuffled(wanted, block), launch, self.cores.spoiled
            ).items():
                done[cell].append(record)
        return {cell: statistics.launch_speeds(own) for cell, own in done.items()}

    def _launch(
        self, cell: Cell, request: Request, known: dict[Request, Record], stage: str
    ) -> Record:
        """Do it, unless it was done before; `cell` is the setting, of usual length."""
        record = known.pop(request, None)
        if record is None:
            [record] = run_requests([request], self.session)
            self.own_seconds += _seconds(record)
            handover.save_latencies(record)
            self.say(
                f"{stage} · block {request.launch} · {describe_setting(cell)} · {_outcome(record)}"
            )
        self.seconds += _seconds(record)
        self.records.append(record)
        self.cores.see(record)
        if record.measurement and record.status == "ok":
            self.last[cell] = record
        return record

    def _allows(self, seconds: float) -> bool:
        budget = self.choices.budget_seconds
        return budget is None or self.own_seconds + seconds <= budget

    def _foreseen(self, cell: Cell, longer: Cell) -> float:
        """Seconds that a launch of `longer`, the setting `cell`, takes, by the last one of it.

        Of a setting that nothing is known of, what others took on average.
        """
        record = self.last.get(cell)
        if record is not None:
            return _seconds_of(longer, record)
        return stdlib_statistics.fmean(map(_seconds, self.records)) if self.records else 0.0

    def _reserve(self) -> float:
        """Seconds that the confirmation takes at the least, by what is known so far."""
        fastest = sorted(self.last, key=lambda one: -statistics.launch_throughput(self.last[one]))
        compared = dict.fromkeys([*fastest[:2], self.space.default])
        each = sum(_seconds_of(one, self.last[one]) for one in compared if one in self.last)
        return self.choices.least * each

    def _took_its_share(self, speeds: Mapping[Cell, Launches]) -> bool:
        """Whether it is `enough`, by what launches of usual length are foreseen to take."""
        known = [self._foreseen(cell, cell) for cell in self.space.cells if cell in self.last]
        all_once = len(self.space.cells) * stdlib_statistics.fmean(known or [0.0])
        launches = self.choices.least, self.choices.most
        return has_spent_share(self.seconds, all_once, speeds.values(), *launches)

    def _known(self, requests: Sequence[Request]) -> dict[Request, Record]:
        """What of these was launched before on this kind of machine, in the same environment."""
        if not self.choices.resume:
            return {}
        here = machine_class(machine.describe())
        environment = self.session.environments[self.space.default.framework]
        return {
            record.request: record
            for record in lookup.finished_records(requests, self.session.store)
            if record.request
            and record.software
            and record.software.environment_digest == environment.digest
            and machine_class(record.machine) == here
        }

    def _shuffled(self, cells: Sequence[Cell], block: int) -> list[Cell]:
        """In this block's order: the same whenever the same are left."""
        order = [*cells]
        random.Random(f"{self.choices.seed} {block}").shuffle(order)
        return order


def _round(done: Mapping[Cell, Sequence[Record]], *, spent: bool = False) -> Round[Cell]:
    speeds = {cell: statistics.launch_speeds(records) for cell, records in done.items()}
    reasons = {
        cell: _outcome(records[-1])
        for cell, records in done.items()
        if records and not speeds[cell]
    }
    return Round(speeds, reasons, spent)


def _seconds(record: Record) -> float:
    """Of the whole launch."""
    return (record.conditions and record.conditions.seconds) or 0.0


def _seconds_of(cell: Cell, record: Record) -> float:
    """Seconds that a launch of `cell` takes, by one with another number of steps."""
    assert record.request and record.measurement
    more = (cell.steps or 0) - (record.request.steps or 0)
    each = stdlib_statistics.median(record.measurement.step_seconds or (0.0,))
    return max(0.0, _seconds(record) + more * each)


def _outcome(record: Record) -> str:
    if record.status == "ok" and record.measurement:
        if not statistics.is_steady(record):
            return "never became steady"
        return f"{statistics.launch_throughput(record):.4g} images/s"
    return f"{record.status}: {record.reason}"
