"""The orchestrator: prepares environments, certifies, launches, and stores a record of each launch.

An entrance makes a `Plan` and calls `run`. A search or a benchmark, which decides after each launch
what comes next, uses a `Session` directly. Only this module launches cells and prepares
environments for that. (`xfbench env create`, the verifier and the oracle prepare their own.)

The plan mixes the launches of different cells in a balanced random order. Therefore slow changes
of the machine affect all cells alike.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from xfbench import bundle, pairwise, stop_rule
from xfbench.base.errors import UnavailableError, UsageError
from xfbench.environments import allocators, environment
from xfbench.equality import certify, worker_check
from xfbench.equality.verify import unverifiable_reason
from xfbench.execution import dry_run, job, job_queue
from xfbench.execution.launch import LaunchContext, launch_obstacle, run_launch
from xfbench.host import doctor, sites
from xfbench.model import adapter
from xfbench.model.certificate import batch_certified_fields, certified_fields
from xfbench.model.plan import Plan
from xfbench.model.record import Record
from xfbench.model.request import Cell, Protocol, Request, environment_key
from xfbench.store import lookup
from xfbench.store.results_folder import Store


class Listener:
    """What is told about a session. Each method handles one event; here, none does anything.

    A listener starts no work and changes nothing. If it raises an exception, it hears nothing more
    of the session, and the session and the other listeners go on. Of launches in submitted jobs, it
    hears only messages.
    """

    def message(self, text: str) -> None:
        """Handle a line for people, such as why a framework is unavailable."""

    def preparation_started(self, plan: Plan) -> None:
        """Handle the start of the preparation of environments."""

    def preparation_ended(self, context: LaunchContext, seconds: float) -> None:
        """Handle the end of the preparation, which took `seconds`."""

    def verification_started(self) -> None:
        """Handle the start of the verification of all kinds of cells."""

    def verification_progress(self, text: str) -> None:
        """Handle a line that is of interest only while the verification runs."""

    def verification_ended(self, equal: int, kinds: int, reused: int, seconds: float) -> None:
        """Handle the end of the verification: `equal` of `kinds` kinds of cells are equal.

        - `reused`: how many of the equal kinds were verified earlier.
        """

    def launches_started(self, requests: Sequence[Request], is_maximum: bool) -> None:
        """Handle the start of the launches.

        - `is_maximum`: whether some of the requests may be skipped, because their cells may reach
          their precision before.
        """

    def launch_started(self, request: Request) -> None:
        """Handle the start of one launch."""

    def launch_ended(self, record: Record) -> None:
        """Handle the end of one launch. Its record is stored already."""

    def other_programs(self, record: Record, programs: str) -> None:
        """Handle the names of other programs that ran during the launch that has just ended.

        The record counts these programs and does not name them.
        """

    def launches_ended(self, count: int, store: Store, interrupted: bool) -> None:
        """Handle the end of the launches: `count` were done, perhaps until an interrupt."""

    def closed(self) -> None:
        """Handle the end of a run, also after an exception, or after an error of this listener."""


@dataclass(frozen=True)
class Preview:
    """What a plan would do.

    - `requests`: the launches, without those that `Plan.resume` leaves out.
    - `commands`: the shell lines of each cell, by the cell's label; None for a bundle, because the
      commands depend on the machine on which it will run.
    - `scripts`: the scripts of the Slurm jobs, if jobs would be submitted.
    - `starts_in_jobs`: the shell lines that start launches in these jobs, shortened.
    """

    requests: tuple[Request, ...]
    commands: dict[str, list[str]] | None = None
    scripts: Sequence[str] = ()
    starts_in_jobs: Sequence[str] = ()


def run(plan: Plan, store: Store, *listeners: Listener) -> list[Record]:
    """Do what the plan asks for, and return the new records.

    - With `plan.bundle`, write a bundle. There are no records.
    - Launches on nodes of a cluster are submitted from a login node (see `Submission`).
    - All other launches run here.

    Raises UsageError if the plan contradicts itself, and NoisyError if the plan is strict and a
    check of `xfbench doctor` is not ok.
    """
    return Session(LaunchContext(store), *listeners).run(plan)


def preview(plan: Plan, store: Store) -> Preview:
    """Return what `run` would do. Nothing is launched, created or submitted."""
    if plan.bundle:
        return Preview(plan.requests)
    remaining_plan = plan.without_recorded(find_done(plan, store))
    _, queued_plan = job_queue.split_local_and_submitted(plan)
    if queued_plan.requests:
        _, remaining_queued_plan = job_queue.split_local_and_submitted(remaining_plan)
        remaining = set(remaining_queued_plan.requests)
        jobs = [
            (part, job)
            for part, job in job_queue.build_jobs_by_node_count(queued_plan, store)
            if remaining & set(part.requests)
        ]
        return Preview(
            remaining_plan.requests,
            scripts=job_queue.build_job_scripts(jobs),
            starts_in_jobs=dry_run.list_starts_in_jobs(remaining_queued_plan),
        )
    _require_waiting(plan)
    return Preview(remaining_plan.requests, commands=dry_run.list_commands_by_cell(remaining_plan))


def count_unproven(requests: Iterable[Request], pythons: Mapping[str, Path]) -> certify.Unproven:
    """Count what `run` verifies on this machine before these launches. Nothing is created.

    - `pythons`: for a framework, the interpreter that replaces its managed environment.
    """
    by_cell = {request.cell(): request for request in requests if not request.probe}
    return certify.count_unproven(*_choose_verifiable(by_cell.values(), pythons))


def find_done(plan: Plan, store: Store) -> list[Record]:
    """Return the records of launches that `Plan.resume` leaves out; empty if it is false."""
    return lookup.find_ok_or_invalid_records(plan.requests, store) if plan.resume else []


def list_requests_to_verify(
    plan: Plan, done: Sequence[Record], store: Store
) -> tuple[Request, ...]:
    """Return the requests that `run` verifies. Empty if `plan.verify` is false.

    They are those that remain after the records `done`, and those of `done` that were not verified
    and still can be, because their environment and machine are the same.
    """
    if not plan.verify:
        return ()
    remaining = (each for each in plan.without_recorded(done).requests if not each.probe)
    unverified = certify.find_unverified_by_request(done, store)
    verifiable, environments = _choose_verifiable(unverified, plan.pythons)
    return (
        *remaining,
        *(
            request
            for request in verifiable
            if (created := environments[request.environment_key])
            and certify.may_cover(request, created, unverified[request])
        ),
    )


def _choose_verifiable(
    requests: Iterable[Request], pythons: Mapping[str, Path]
) -> tuple[list[Request], dict[str, environment.Environment | None]]:
    """Return the requests that can be verified on this machine, and their environments.

    The keys are `Cell.environment_key`. None: the environment is not created yet.
    """
    environments: dict[str, environment.Environment | None] = {}
    unavailable: set[str] = set()
    verifiable = []
    for request in requests:
        key = request.environment_key
        if (
            key in unavailable
            or job_queue.needs_submission(request)
            or launch_obstacle(request)
            or unverifiable_reason(request)
        ):
            continue
        if key not in environments:
            try:
                environments[key] = environment.find_environment(
                    adapter.load(request.framework, request.revision),
                    pythons.get(request.interpreter_key),
                    request.site,
                )
            except UnavailableError:
                unavailable.add(key)
                continue
        verifiable.append(request)
    return verifiable, environments


class Session:
    """Runs plans one after another with the same environments and certificates.

    - `context`: what the launches share.
    - `id`: the identity of the session in records. Only launches of one session are compared in
      pairs.
    """

    def __init__(self, context: LaunchContext, *listeners: Listener) -> None:
        self.context = context
        self.id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"
        self._positions = itertools.count(1)
        self._listeners = list(listeners)

    def run(self, plan: Plan, done: Sequence[Record] | None = None) -> list[Record]:
        """Do what the plan asks for, and return the new records: see `run` in this module.

        - `done`: records whose launches are left out; None: what `Plan.resume` says.
        """
        try:
            return self._run(plan, done)
        finally:
            self._tell(Listener.closed)

    def _run(self, plan: Plan, done: Sequence[Record] | None) -> list[Record]:
        store = self.context.store
        if plan.site_file:
            sites.register_file(str(plan.site_file))
        if plan.bundle:
            bundle.write_carried_run(plan, plan.bundle, self.say)
            return []
        store.require_private()
        done = find_done(plan, store) if done is None else done
        local_plan, queued_plan = job_queue.split_local_and_submitted(plan)
        records: list[Record] = []
        if local_plan.requests or not queued_plan.requests:
            _require_waiting(plan)
            records += self._run_here(local_plan, done)
        if queued_plan.requests:
            jobs = job_queue.build_jobs_by_node_count(queued_plan, store)
            records += job_queue.submit_and_follow(
                jobs, store, done, self._prepare_submitted, self.say, wait=plan.submission.wait
            )
        return records

    def prepare(
        self,
        frameworks: Iterable[str],
        pythons: Mapping[str, Path] | None = None,
        site: str | None = None,
        allocator_names: Iterable[str | None] = (),
        revisions: Iterable[str | None] = (None,),
    ) -> None:
        """Prepare environments and libraries of memory allocators, unless that was done before.

        If a framework or an allocator is unavailable, the context gets the reason.

        - `frameworks`: names of frameworks, or `Cell.interpreter_key` if interpreters have names.
        - `pythons`: for a framework, the interpreter that replaces its managed environment.
        - `revisions`: git revisions whose adapters decide the environments; None: the adapters of
          the running xfbench.
        """
        _prepare(
            self.context, frameworks, pythons or {}, site, allocator_names, revisions, self.say
        )

    def certify(self, requests: Sequence[Request], *, with_timed_batches: bool = True) -> None:
        """Verify each kind of cell that has no certificate yet.

        `with_timed_batches`: whether the gradients of the batches that the cells train on are
        verified too.
        """
        started = time.monotonic()
        self._tell(Listener.verification_started)
        reused = certify.certify_requests(
            requests,
            self.context,
            partial(self._tell, Listener.verification_progress),
            self.say,
            with_timed_batches=with_timed_batches,
        )
        kinds = {
            certified_fields(request)
            for request in requests
            if not launch_obstacle(request)
            and self.context.environments.get(request.environment_key)
        }
        wrong = {
            certified_fields(request)
            for request in requests
            if batch_certified_fields(request) in self.context.wrong_batches
        }
        equal = len(kinds & set(self.context.certificates) - wrong)
        seconds = time.monotonic() - started
        self._tell(Listener.verification_ended, equal, len(kinds), reused, seconds)

    def launch(
        self,
        requests: Iterable[Request],
        protocols: Mapping[Cell, Protocol] | None = None,
        earlier_records_for_precision: Iterable[Record] = (),
    ) -> Iterator[Record]:
        """Launch the requests one after another; store and yield the record of each launch.

        - `protocols`: the protocol of each cell. Without a protocol, a cell has no precision to
          reach.
        - `earlier_records_for_precision`: records of earlier launches. Their throughput is used too
          when the precision of their cells is computed.

        The remaining requests of a cell are skipped in these cases:

        - A launch of the cell has the status "unsupported" or "unavailable".
        - All cells of its leaderboard have reached the precision in their protocols, or have no
          requests left. Until then they stay together. A block is complete before it is decided.
        - The order of all cells of its leaderboard is known, or it is not probable enough that more
          launches tell it, if their protocols ask for no more.
        """
        self.context.store.create_and_check_folders()
        requests = [*requests]
        protocols = protocols or {}
        remaining_counts = Counter(request.cell() for request in requests)
        cells_by_table = defaultdict(list)
        for cell in remaining_counts:
            cells_by_table[cell.table_key].append(cell)
        is_block_launched: dict[tuple[Hashable, int], bool] = {}
        finished: set[Cell] = set()
        ended_tables: set[Hashable] = set()
        records: dict[Cell, list[Record]] = defaultdict(list)
        for record in earlier_records_for_precision:
            if record.request:
                records[record.request.cell()].append(record)

        def are_launches_needed(cells: Sequence[Cell]) -> bool:
            """Return whether cells of one leaderboard need more launches."""
            possible = [cell for cell in cells if cell not in finished]
            if not any(
                remaining_counts[cell]
                and not stop_rule.is_precise(records[cell], protocols.get(cell))
                for cell in possible
            ):
                return False
            is_first = not any(table == cells[0].table_key for table, _ in is_block_launched)
            order = stop_rule.judge_order(
                {cell: records[cell] for cell in possible}, protocols, is_first=is_first
            )
            if order == "hidden":
                self.say(
                    f"{possible[0].workload}: no more launches, because the probability that they "
                    "tell the order of cells that share a rank is below "
                    f"{pairwise.MIN_PREDICTIVE_POWER:.0%}"
                )
            if order != "open":
                ended_tables.add(cells[0].table_key)
            return order == "open"

        for request in requests:
            cell = request.cell()
            protocol = protocols.get(cell)
            block = cell.table_key, request.launch
            if block not in is_block_launched:
                is_block_launched[block] = cell.table_key not in ended_tables and (
                    are_launches_needed(cells_by_table[cell.table_key])
                )
            remaining_counts[cell] -= 1
            if cell in finished or not is_block_launched[block]:
                continue
            self._tell(Listener.launch_started, request)
            placed_request = request.model_copy(
                update={"session": self.id, "position": next(self._positions)}
            )
            record, folder, programs = run_launch(placed_request, self.context, protocol)
            self.context.store.add(record, folder)
            if record.status in ("unsupported", "unavailable"):
                finished.add(cell)
            records[cell].append(record)
            self._tell(Listener.launch_ended, record)
            if programs:
                self._tell(Listener.other_programs, record, programs)
            yield record

    def say(self, text: str) -> None:
        """Give the listeners a line for people."""
        self._tell(Listener.message, text)

    def _run_here(self, plan: Plan, done: Sequence[Record]) -> list[Record]:
        """Do the plan's launches that are not in `done`, and return the new records."""
        if plan.strict:
            doctor.require_all_checks_ok()
        context = self.context
        context.time_limit, context.strict = plan.time_limit, plan.strict
        context.data_folders, context.checkpoint_dir = plan.data_folders, plan.checkpoint_dir
        requests = plan.without_recorded(done).requests
        requests_to_verify = list_requests_to_verify(plan, done, context.store)
        prepared = [*dict.fromkeys((*requests, *requests_to_verify))]
        started = time.monotonic()
        self._tell(Listener.preparation_started, plan)
        worker_check.require_compatible_workers(prepared, self.say)
        self.prepare(
            (request.interpreter_key for request in prepared),
            plan.pythons,
            next((request.site for request in prepared), None),
            (request.allocator for request in prepared),
            dict.fromkeys(request.revision for request in prepared),
        )
        self._tell(Listener.preparation_ended, context, time.monotonic() - started)
        if plan.verify:
            self.certify(requests_to_verify)
        is_maximum = any(protocol.precision for _, protocol in plan.protocols)
        self._tell(Listener.launches_started, requests, is_maximum)
        records: list[Record] = []
        interrupted = False
        try:
            for record in self.launch(requests, dict(plan.protocols), done):
                records.append(record)
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            self._tell(Listener.launches_ended, len(records), context.store, interrupted)
        return records

    def _prepare_submitted(self, plan: Plan) -> LaunchContext:
        """Prepare what the jobs of a plan need, because their nodes may have no network."""
        worker_check.require_compatible_workers(plan.requests, self.say)
        context = LaunchContext(self.context.store)
        frameworks = [request.interpreter_key for request in plan.requests]
        allocator_names = [request.allocator for request in plan.requests]
        revisions = dict.fromkeys(request.revision for request in plan.requests)
        site = plan.requests[0].site
        _prepare(context, frameworks, plan.pythons, site, allocator_names, revisions, self.say)
        return context

    def _tell(self, event: Callable[..., None], *arguments: object) -> None:
        """Call the listeners' method of this name. One that fails must not cost a record."""
        for listener in [*self._listeners]:
            try:
                getattr(listener, event.__name__)(*arguments)
            except Exception as error:
                self._listeners.remove(listener)
                with contextlib.suppress(Exception):
                    listener.closed()
                name = type(listener).__name__
                warnings.warn(f"{name} hears nothing more: {error!r}", stacklevel=2)


def _prepare(
    context: LaunchContext,
    frameworks: Iterable[str],
    pythons: Mapping[str, Path],
    site: str | None,
    allocator_names: Iterable[str | None],
    revisions: Iterable[str | None],
    say: environment.Say,
) -> None:
    for name, revision in itertools.product(dict.fromkeys(frameworks), revisions):
        key = environment_key(name, revision)
        if key in context.environments or key in context.unavailable:
            continue
        try:
            context.environments[key] = environment.ensure_environment(
                adapter.load(name.partition(":")[0], revision), pythons.get(name), say, site
            )
        except UnavailableError as error:
            context.unavailable[key] = job.redact_hosts(str(error), site)
            say(f"{key}: unavailable: {error}")
    for allocator in filter(None, dict.fromkeys(allocator_names)):
        if allocator in context.allocators or allocator in context.unallocated:
            continue
        try:
            allocators.ensure_library(allocator, say)
            context.allocators.add(allocator)
        except UnavailableError as error:
            context.unallocated[allocator] = job.redact_hosts(str(error), site)
            say(f"{allocator}: unavailable: {error}")


def _require_waiting(plan: Plan) -> None:
    if not plan.submission.wait:
        raise UsageError("--no-wait works only with --launcher slurm on a login node")
