"""The run of a search: launches, budget, progress lines, and the resulting document.

`halving.py` decides which settings are launched next. Each launch is stored as an ordinary record.
"""

from __future__ import annotations

import random
import statistics as stdlib_statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xfbench import pairwise, statistics
from xfbench.base import errors
from xfbench.equality import certify
from xfbench.execution import launch
from xfbench.execution.launch import LaunchContext
from xfbench.host import core_latency, doctor, machine
from xfbench.model import adapter, facts
from xfbench.model.certificate import batch_certified_fields, certified_fields
from xfbench.model.machines import machine_class
from xfbench.model.plan import DEFAULT_TIME_LIMIT
from xfbench.model.record import Record
from xfbench.model.request import Cell, Request
from xfbench.rendering import formats
from xfbench.session import Listener, Session
from xfbench.statistics import Block, Launches
from xfbench.store import lookup
from xfbench.store.results_folder import Store
from xfbench.store.tuning_results import Figure, Loser, RungDone, Tuning
from xfbench.tuning import repeating
from xfbench.tuning.halving import (
    FINALISTS,
    MAX_EXTRA_RUNGS,
    HalvingOutcome,
    Round,
    Rung,
    choose_winner,
    first_rung_settings,
    has_spent_share_of_exhaustive,
    plan_rungs,
    search_by_successive_halving,
    undecided_settings_to_repeat,
)
from xfbench.tuning.space import (
    Space,
    build_setting,
    describe_setting,
    split_work_allocator_affinity,
)
from xfbench.workloads import workloads


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search.

    - `pythons`: interpreters by framework.
    - `min_launches`, `max_launches`: limits of the launches per setting in the confirmation.
    - `budget_seconds`: maximum total time of new launches; None: no maximum. A launch that is
      expected to exceed the budget does not start.
    - `seed`: seed of the random order of launches.
    - `verify`: whether to verify the settings and to search only those with a certificate.
    - `strict`: whether to refuse to run on a noisy machine.
    - `resume`: whether to reuse the records of earlier launches instead of launching again.
    - `time_limit`: maximum seconds per launch.
    """

    pythons: Mapping[str, Path] = field(default_factory=dict)
    min_launches: int = 5
    max_launches: int = 20
    budget_seconds: float | None = None
    seed: int = 0
    verify: bool = True
    strict: bool = False
    resume: bool = False
    time_limit: float = DEFAULT_TIME_LIMIT


def find_and_confirm_best_setting(
    space: Space, choices: SearchOptions, store: Store, listener: Listener
) -> Tuning:
    """Find and confirm the best setting, and return the document of the search.

    The record of each launch is stored in `store`. `listener` is told what happens. Raises
    NoisyError if the search is strict and a check of `xfbench doctor` is not ok. Raises
    UnavailableError if the framework is unavailable. Raises XfbenchError if no setting can be tried
    or no launch counts.
    """
    if choices.strict:
        doctor.require_all_checks_ok()
    framework = space.default.framework
    context = LaunchContext(
        store,
        time_limit=choices.time_limit,
        strict=choices.strict,
        data_folders=dict(space.data_folders),
    )
    session = Session(context, listener)
    allocators = [cell.allocator for cell in space.cells]
    session.prepare([framework], choices.pythons, space.default.site, allocators)
    if framework in context.unavailable:
        raise errors.UnavailableError(context.unavailable[framework])
    space = space.without_cells(
        [
            (cell, context.unallocated[cell.allocator])
            for cell in space.cells
            if cell.allocator in context.unallocated
        ]
    )
    unverified = _verify_and_collect_unverified(space, session, choices)
    space = space.without_cells(
        [(cell, reason) for cell, reason in unverified.items() if cell in space.cells]
    )
    if not space.cells:
        raise errors.XfbenchError(f"no setting can be tried: {space.left_out[-1][1]}")
    launcher = _SearchLauncher(space, choices, session)
    halved = search_by_successive_halving(
        space.cells, split_work_allocator_affinity, launcher.run_rung
    )
    if not halved.finalists:
        raise errors.XfbenchError(f"no launch counts: {halved.dropped[-1].reason}")
    search_s = launcher.seconds
    # If there was no rung, the default wins unless another setting is significantly faster.
    ranking = (
        halved.finalists if halved.rungs else sorted(halved.finalists, key=space.default.__ne__)
    )
    default_obstacle = launch.launch_obstacle(space.default.request(1))
    default_reason = default_obstacle[1] if default_obstacle else unverified.get(space.default)
    compared = [*ranking, *([] if default_reason else [space.default])]
    wrong = _verify_batches_and_collect_wrong(compared, session, choices)
    ranking = [cell for cell in ranking if cell not in wrong] or [
        cell for cell in compared if cell not in wrong
    ]
    if not ranking:
        raise errors.XfbenchError(
            f"no setting that may be the best is right: {next(iter(wrong.values()))}; leave out "
            "its kernel with --over kernel=..."
        )
    winner, *runners_up = ranking
    default_reason = default_reason or wrong.get(space.default)
    rivals = dict.fromkeys([*runners_up[:1], *([] if default_reason else [space.default])])
    # While some settings were never tried, none is the best of all, so there is none to confirm.
    confirmed = (
        {}
        if launcher.untried
        else launcher.launch_finalists_until_settled(
            winner, [rival for rival in rivals if rival != winner], halved
        )
    )
    best = choose_winner(winner, confirmed)
    runner_up = winner if best != winner else next(iter(runners_up), None)
    best_launches = confirmed.get(best)
    environment = context.environments[framework]
    return Tuning.make(
        machine=machine.describe_machine(),
        framework_version=environment.version,
        environment_digest=environment.digest,
        adapter_digest=adapter.load(framework).digest,
        workload_digest=facts.workload_facts(workloads()[best.workload]).digest,
        verified=choices.verify,
        space=space.values(),
        settings=len(space.cells),
        untried=len(launcher.untried),
        remaining_seconds=launcher.predict_remaining_seconds()
        if launcher.ended_by_budget and not best_launches
        else None,
        seed=choices.seed,
        budget_seconds=choices.budget_seconds,
        rungs=[
            RungDone(
                settings=count,
                launches=rung.launches,
                steps=shorten(best, rung).steps,
                min_seconds=shorten(best, rung).min_seconds,
            )
            for rung, count in halved.rungs
        ],
        dropped=[
            *(
                Loser(setting=build_setting(cell), rung=None, reason=reason)
                for cell, reason in space.left_out
            ),
            *(
                Loser(
                    setting=build_setting(drop.setting),
                    rung=drop.rung,
                    reason=drop.reason,
                    relative=drop.relative,
                )
                for drop in halved.dropped
            ),
            *(
                Loser(setting=build_setting(cell), rung=None, reason=reason)
                for cell, reason in wrong.items()
                if cell in space.cells
            ),
        ],
        best=best,
        default=space.default,
        default_reason=default_reason,
        runner_up=runner_up,
        confirmed=bool(best_launches),
        images_per_second=_speed_figure(best_launches),
        over_default=_ratio_figure(confirmed, best, space.default),
        over_runner_up=_ratio_figure(confirmed, best, runner_up),
        ended_by_budget=launcher.ended_by_budget,
        launches=len(launcher.records),
        search_seconds=search_s,
        machine_seconds=launcher.seconds,
        records=[record.id for record in launcher.records],
    )


def first_rung_cells(space: Space) -> list[Cell]:
    """Return the cells that the first rung launches; empty if the search needs no rung."""
    return (
        first_rung_settings(space.cells, split_work_allocator_affinity)
        if planned_rungs(space)
        else []
    )


def first_rung_requests(space: Space) -> list[Request]:
    """Return the launches of the first rung, without repeats; empty if there is no rung."""
    rungs = planned_rungs(space)
    return [shorten(cell, rungs[0]).request(1) for cell in first_rung_cells(space)]


def first_launches(space: Space) -> list[Request]:
    """Return the first launch of each setting with which the search begins."""
    return first_rung_requests(space) or [cell.request(1) for cell in space.cells]


def smallest_search_requests(space: Space, choices: SearchOptions) -> list[Request]:
    """Return the launches of a search without extra rungs, which confirms as little as it can.

    Which settings reach the later rungs is unknown, so the first settings stand for them.
    """
    requests = []
    for rung in planned_rungs(space):
        cells = first_rung_cells(space) if rung.number == 1 else space.cells[: rung.settings]
        requests += [shorten(cell, rung).request(block) for block in rung.blocks for cell in cells]
    compared = [*dict.fromkeys([space.default, *space.cells])][:FINALISTS]
    launches = range(1, choices.min_launches + 1)
    return requests + [cell.request(launch) for launch in launches for cell in compared]


def max_launches(space: Space, choices: SearchOptions) -> int:
    """Return the maximum number of launches of a search.

    The number is the sum of the launches in all planned rungs, in MAX_EXTRA_RUNGS extra rungs, and
    in the confirmation. Repeated launches of rungs (`repeating.py`) are not included.
    """
    confirmed_count = len({*space.cells[:2], space.default}) if len(space.cells) < 3 else 3
    rungs = planned_rungs(space)
    rung_launches = sum(rung.settings * rung.launches for rung in rungs)
    extra_launches = MAX_EXTRA_RUNGS * rungs[-1].settings if rungs else 0
    return rung_launches + extra_launches + confirmed_count * choices.max_launches


def planned_rungs(space: Space) -> list[Rung]:
    """Return the planned rungs of a search. Extra rungs may follow the planned ones."""
    return plan_rungs(
        len(space.cells), len(first_rung_settings(space.cells, split_work_allocator_affinity))
    )


def shorten(cell: Cell, rung: Rung) -> Cell:
    """Return the cell with the timed steps and the minimum duration of a launch in this rung.

    The number of steps is a multiple of the cell's window. The warm-up is not shortened.
    """
    assert cell.steps is not None
    steps = max(1, round(cell.steps * rung.share / cell.window)) * cell.window
    min_seconds = cell.min_seconds and cell.min_seconds * rung.share
    return cell.model_copy(update={"steps": steps, "min_seconds": min_seconds})


def _verify_and_collect_unverified(
    space: Space, session: Session, choices: SearchOptions
) -> dict[Cell, str]:
    """Verify the cells of the space, and return the cells without a certificate.

    The result maps each of these cells to the reason. Such a cell must not be the best setting.

    Cells that cannot be launched are neither verified nor returned. If `choices.verify` is false,
    only use the certificates in the cache, and return an empty dictionary.
    """
    all_cells = [*dict.fromkeys([*space.cells, space.default])]
    requests = [
        cell.request(1) for cell in all_cells if not launch.launch_obstacle(cell.request(1))
    ]
    if not choices.verify:
        for request in {batch_certified_fields(each): each for each in requests}.values():
            certify.attach_cached_certificate(request, session.context)
        return {}
    session.certify(requests, with_timed_batches=False)
    return {
        request.cell(): f"not verified: see `xfbench verify --framework {request.framework} "
        f"--workload {request.workload} --kernel {request.kernel}`"
        for request in requests
        if certified_fields(request) not in session.context.certificates
    }


def _verify_batches_and_collect_wrong(
    cells: Sequence[Cell], session: Session, choices: SearchOptions
) -> dict[Cell, str]:
    """Verify the batches that the cells train on, and return what is wrong with a cell's.

    Only cells that may be named the best are verified in this way, because each number of threads
    needs a process. If `choices.verify` is false, verify nothing. The certificates in the cache
    still count.
    """
    requests = [cell.request(1) for cell in dict.fromkeys(cells)]
    if choices.verify:
        session.certify(requests)
    wrong_batches = session.context.wrong_batches
    return {
        request.cell(): f"different {finding}"
        for request in requests
        if (finding := wrong_batches.get(batch_certified_fields(request)))
    }


def _speed_figure(speeds: Launches | None) -> Figure | None:
    return Figure.from_interval(statistics.interval_of_launches(speeds)) if speeds else None


def _ratio_figure(
    speeds: Mapping[Cell, Launches], cell: Cell, baseline: Cell | None
) -> Figure | None:
    """Return the speed of `cell` divided by the speed of `baseline`.

    Return None if `baseline` is None or `cell`, or if one of the two has no launch that counts.
    """
    if baseline is None or baseline == cell or not speeds.get(cell) or not speeds.get(baseline):
        return None
    return Figure.from_interval(pairwise.compare(speeds[cell], speeds[baseline]).ratio)


class _SearchLauncher:
    """Runs the launches of one search, and adds up their durations."""

    def __init__(self, space: Space, choices: SearchOptions, session: Session) -> None:
        self.space, self.choices, self.session, self.say = space, choices, session, session.say
        self.records: list[Record] = []
        self.cores = repeating.CoreMonitor(core_latency.read_saved_latencies())
        self.last_records: dict[Cell, Record] = {}  # last ok launch of any length, by setting
        self.untried = first_rung_cells(space)  # cells of the first rung without a launch
        self.rung_launches: Counter[int] = Counter()  # without repeats, by number of the rung
        self.seconds = 0.0
        self.new_seconds = 0.0  # without the time of earlier launches that are reused
        self.ended_by_budget = False

    def run_rung(self, rung: Rung, cells: Sequence[Cell]) -> Round[Cell]:
        """Run the launches of a rung and return the outcome of the rung.

        Each block launches the cells in a new random order.
        """
        short_cells = {cell: shorten(cell, rung) for cell in cells}
        reusable_records = self._find_reusable_records(
            [short_cells[cell].request(b) for cell in cells for b in rung.blocks]
        )
        records: dict[Cell, list[Record]] = {cell: [] for cell in cells}
        planned_count = len(planned_rungs(self.space))
        suffix = (
            f" of {planned_count}"
            if rung.number <= planned_count
            else " (extra, because launches are noisy)"
        )
        title = f"rung {rung.number}{suffix}"
        for block in rung.blocks:
            block_cells: set[Cell] = set()

            def launch(
                cell: Cell, block: int = block, block_cells: set[Cell] = block_cells
            ) -> Record | None:
                request = short_cells[cell].request(block)
                # The confirmation gets nothing before each setting of the first rung has a launch.
                reserved_s = 0.0 if cell in self.untried else self._predict_confirmation_seconds()
                if request not in reusable_records and not self._fits_whole_remaining_budget(
                    self._predict_launch_seconds(cell, short_cells[cell]) + reserved_s
                ):
                    self.ended_by_budget = True
                if self.ended_by_budget:
                    return None
                cause = "repeated: the cores lay apart" if cell in block_cells else ""
                if not cause:
                    self.rung_launches[rung.number] += 1
                block_cells.add(cell)
                return self._launch_or_reuse(cell, request, reusable_records, title, cause)

            running_cells = [
                cell for cell in cells if all(r.status in ("ok", "invalid") for r in records[cell])
            ]
            for cell, record in repeating.launch_block(
                self._shuffle(running_cells, block), launch, self.cores.decide_and_count_repeat
            ).items():
                records[cell].append(record)
            if self.ended_by_budget:
                break
        return _collect_round_speeds_and_reasons(records, ended_by_budget=self.ended_by_budget)

    def launch_finalists_until_settled(
        self, winner: Cell, rivals: Sequence[Cell], halved: HalvingOutcome[Cell]
    ) -> dict[Cell, Launches]:
        """Confirm the winner: launch it and its rivals until the choice between them is settled.

        Return the images per second of each launch that counts, by cell and block. Each launch has
        the full length. None is repeated, so that the figures are those of `xfbench run`.

        A rival is settled if more launches would hardly change the choice between it and the winner
        (see `halving.are_distinguishable_or_negligible`). A settled rival is not launched again. If
        the budget is too small for two rivals, only the last one is launched, and at least
        INDICATIVE_LAUNCHES times. If it is too small for that, none is launched, and the result is
        empty.

        The confirmation also ends in any of these cases:

        - Each unsettled cell has `choices.max_launches` launches.
        - The next launches would exceed the budget.
        - The search has taken MAX_TIME_SHARE of the time of an exhaustive search.
        """
        cells = [winner, *rivals]
        blocks = range(halved.blocks + 1, halved.blocks + 1 + self.choices.max_launches)
        reusable_records = self._find_reusable_records(
            [cell.request(block) for cell in cells for block in blocks]
        )

        def fits_budget(compared: Sequence[Cell], launches: int) -> bool:
            return self._fits_whole_remaining_budget(
                sum(
                    self._predict_launch_seconds(cell, cell)
                    for cell in compared
                    for block in blocks[:launches]
                    if cell.request(block) not in reusable_records
                )
            )

        if not fits_budget(cells, self.choices.min_launches):
            cells = [winner, *rivals[-1:]]
            if not fits_budget(
                cells, min(statistics.INDICATIVE_LAUNCHES, self.choices.min_launches)
            ):
                self.ended_by_budget = True
                return {}
            self.say(f"the budget is too small to confirm {describe_setting(rivals[0])} too")
        pending = cells
        records: dict[Cell, list[Record]] = {cell: [] for cell in cells}
        for count, block in enumerate(blocks):
            if count >= self.choices.min_launches:
                speeds = {
                    cell: _speeds_by_block(cell_records) for cell, cell_records in records.items()
                }
                pending = undecided_settings_to_repeat(winner, pending, speeds)
                if pending and self._has_spent_share_of_exhaustive(speeds):
                    self.say(
                        f"{' and '.join(map(describe_setting, pending))} are still not "
                        "distinguishable after a quarter of the time of an exhaustive search: "
                        "raise --launches"
                    )
                    break
            if not pending:
                break
            unfinished = [cell for cell in pending if cell.request(block) not in reusable_records]
            if unfinished and not self._fits_whole_remaining_budget(
                sum(self._predict_launch_seconds(cell, cell) for cell in unfinished)
            ):
                self.ended_by_budget = True
                break

            for cell in self._shuffle(pending, block):
                request = cell.request(block)
                records[cell].append(
                    self._launch_or_reuse(cell, request, reusable_records, "confirming")
                )
        return {cell: _speeds_by_block(cell_records) for cell, cell_records in records.items()}

    def _launch_or_reuse(
        self,
        cell: Cell,
        request: Request,
        reusable_records: dict[Request, Record],
        stage: str,
        cause: str = "",
    ) -> Record:
        """Return the record of a launch: an earlier record if one can be reused, else a new one.

        - `cell`: the setting, with the number of steps that the confirmation uses.
        - `request`: the launch of the setting, which may have fewer steps.
        - `stage`: the start of the progress line.
        - `cause`: why the launch is repeated; empty: it is not.
        """
        record = reusable_records.pop(request, None)
        if record is None:
            [record] = self.session.launch([request])
            self.new_seconds += _launch_seconds(record)
            core_latency.save_latencies_of_record(record)
            self.say(
                f"{stage} · block {request.launch} · {describe_setting(cell)} · "
                f"{_describe_outcome(record)}{cause and f' ({cause})'}"
            )
        if cell in self.untried:
            self.untried.remove(cell)
        self.seconds += _launch_seconds(record)
        self.records.append(record)
        self.cores.count_launch_and_add_latencies(record)
        if record.measurement and record.status == "ok":
            self.last_records[cell] = record
        return record

    def _fits_whole_remaining_budget(self, new_launch_seconds: float) -> bool:
        """Return whether the remaining budget allows new launches of this duration."""
        budget = self.choices.budget_seconds
        return budget is None or self.new_seconds + new_launch_seconds <= budget

    def _predict_launch_seconds(self, past_cell: Cell, cell_to_launch: Cell) -> float:
        """Predict the duration of a launch of `cell_to_launch` in seconds.

        `past_cell` is the same setting with the full number of steps. The prediction uses the last
        ok launch of this setting. If there is none, return the mean duration of all launches of
        the search. If the search has no launch yet, return 0.
        """
        record = self.last_records.get(past_cell)
        if record is not None:
            return _predict_seconds_from_record(cell_to_launch, record)
        return stdlib_statistics.fmean(map(_launch_seconds, self.records)) if self.records else 0.0

    def _predict_confirmation_seconds(self) -> float:
        """Predict the minimum duration of the confirmation in seconds.

        It compares the fastest setting with the default, or with the second fastest setting if the
        default is the fastest.
        """
        fastest = sorted(
            self.last_records,
            key=lambda cell: -statistics.launch_throughput(self.last_records[cell]),
        )
        compared = [*dict.fromkeys([*fastest[:1], self.space.default, *fastest[1:2]])][:2]
        block_s = sum(self._predict_launch_seconds(cell, cell) for cell in compared)
        return self.choices.min_launches * block_s

    def predict_remaining_seconds(self) -> float:
        """Predict how many seconds the search still needs: its planned rungs and confirmation.

        Each launch is assumed to take as long as the average setting does. Extra rungs, repeats and
        more than the smallest number of launches in the confirmation are not included.
        """

        def launch_seconds(rung: Rung | None) -> float:
            return stdlib_statistics.fmean(
                _predict_seconds_from_record(shorten(cell, rung) if rung else cell, record)
                for cell, record in self.last_records.items()
            )

        rungs_s = sum(
            max(0, rung.settings * rung.launches - self.rung_launches[rung.number])
            * launch_seconds(rung)
            for rung in planned_rungs(self.space)
        )
        confirmed_count = len({*self.space.cells[:FINALISTS], self.space.default})
        return rungs_s + confirmed_count * self.choices.min_launches * launch_seconds(None)

    def _has_spent_share_of_exhaustive(self, speeds: Mapping[Cell, Launches]) -> bool:
        """Return whether the search has taken MAX_TIME_SHARE of the time of an exhaustive search.

        `speeds` are the launches of the confirmation.
        """
        launch_seconds = [
            self._predict_launch_seconds(cell, cell)
            for cell in self.space.cells
            if cell in self.last_records
        ]
        all_settings_once_s = len(self.space.cells) * stdlib_statistics.fmean(
            launch_seconds or [0.0]
        )
        launch_limits = self.choices.min_launches, self.choices.max_launches
        return has_spent_share_of_exhaustive(
            self.seconds, all_settings_once_s, speeds.values(), *launch_limits
        )

    def _find_reusable_records(self, requests: Sequence[Request]) -> dict[Request, Record]:
        """Return the earlier records that replace a new launch, by request.

        A record replaces a new launch if its status is "ok" or "invalid". It must also come from
        this kind of machine and from the same environment. If `choices.resume` is false, return an
        empty dictionary.
        """
        if not self.choices.resume:
            return {}
        machine_kind = machine_class(machine.describe_machine())
        environment = self.session.context.environments[self.space.default.framework]
        return {
            record.request: record
            for record in lookup.find_ok_or_invalid_records(requests, self.session.context.store)
            if record.request
            and record.software
            and record.software.environment_digest == environment.digest
            and machine_class(record.machine) == machine_kind
        }

    def _shuffle(self, cells: Sequence[Cell], block: int) -> list[Cell]:
        """Return the cells in a random order that depends only on the seed and the block."""
        order = [*cells]
        random.Random(f"{self.choices.seed} {block}").shuffle(order)
        return order


def _speeds_by_block(records: Iterable[Record]) -> dict[Block, float]:
    """Return `statistics.counted_speeds_by_block`, as if all launches were of one session.

    A search that is continued with --resume continues its blocks. Without them, the new launches
    could not be compared with the earlier ones.
    """
    return {
        block._replace(session=""): speed
        for block, speed in statistics.counted_speeds_by_block(records).items()
    }


def _collect_round_speeds_and_reasons(
    records_by_cell: Mapping[Cell, Sequence[Record]], *, ended_by_budget: bool = False
) -> Round[Cell]:
    speeds = {cell: _speeds_by_block(records) for cell, records in records_by_cell.items()}
    reasons = {
        cell: _describe_outcome(records[-1])
        for cell, records in records_by_cell.items()
        if records and not speeds[cell]
    }
    return Round(speeds, reasons, ended_by_budget)


def _launch_seconds(record: Record) -> float:
    """Return the duration of the whole launch in seconds; 0 if unknown."""
    return (record.conditions and record.conditions.seconds) or 0.0


def _predict_seconds_from_record(cell: Cell, record: Record) -> float:
    """Predict the duration of a launch of `cell`, in seconds, from the record of an earlier launch.

    The two launches may differ in the number of steps, and in their minimum duration.
    """
    assert record.request and record.measurement
    step_s = stdlib_statistics.median(record.measurement.step_seconds or (0.0,))
    timed_s, timed_s_of_record = (
        max((each.steps or 0) * step_s, each.min_seconds or 0.0) for each in (cell, record.request)
    )
    return max(0.0, _launch_seconds(record) + timed_s - timed_s_of_record)


def _describe_outcome(record: Record) -> str:
    """Return a text with the images per second of a launch, or the reason why it does not count."""
    if record.status == "ok" and record.measurement:
        return f"{formats.format_number(statistics.launch_throughput(record), 4)} images/s"
    return f"{record.status}: {record.reason}"
