"""Launches from a login node: for each number of nodes, one Slurm job runs xfbench again.

In the job, xfbench works as in any allocation. It describes the machine that trains, creates
certificates on that machine and interleaves the launches. This process, on the login node, submits
each job once and follows it. If the job ends early, this process adds the missing records, with the
cause as reason.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from xfbench import stop_rule
from xfbench.base import atomic_files, errors, locks, paths
from xfbench.base.processes import CommandError
from xfbench.base.repeated_calls import call_repeatedly
from xfbench.base.wording import pluralize
from xfbench.execution.launch import LaunchContext
from xfbench.execution.outcome import describe_outcome
from xfbench.host import sites
from xfbench.launchers import slurm
from xfbench.launchers.resources import Resources
from xfbench.model import facts, training
from xfbench.model.plan import Plan
from xfbench.model.record import Record
from xfbench.model.request import Cell, Request
from xfbench.store import lookup
from xfbench.store.results_folder import Store

ALIVE = "alive"  # the heartbeat file: xfbench in the job writes a rising count to it
EVENTS = "events.ndjson"  # what the session in the job tells: see `progress.JsonLines`
_LOOK_SECONDS = 2.0
# For each job state, the seconds without a heartbeat after which the node counts as lost. The limit
# of a completing job is longer, because Slurm cleans up before it says how the job ended.
_SILENCE_SECONDS = {"RUNNING": 10.0, "COMPLETING": 60.0}
_LAG = 15  # polls after a job has ended, because a file system may show records late
_BEFORE = "before"
_PLAN = "job.json"
_FORGOTTEN = 5  # consecutive polls at which Slurm does not know the job


@dataclass
class Submitted:
    """A plan and its submitted job.

    - `folder`: the job's folder.
    - `number`: the number that Slurm gave the job.
    - `before`: ids of the plan's records that existed before the job.
    """

    plan: Plan
    folder: Path
    number: str
    before: Collection[str] = ()


Jobs = Sequence[tuple[Plan, slurm.Job]]
Prepare = Callable[[Plan], LaunchContext]
Say = Callable[[str], None]


def find_slurm_obstacle(cells: Iterable[Cell]) -> str | None:
    """Return why this process cannot submit the jobs of these cells; None if it can.

    Also return None if no cell needs a job.
    """
    reason = slurm.find_unreachable_reason() if any(map(needs_submission, cells)) else None
    return f"Slurm cannot be reached from here: {reason}" if reason else None


def split_local_and_submitted(plan: Plan) -> tuple[Plan, Plan]:
    """Return the part of the plan to run here, and the part to run in submitted jobs."""
    submitted_requests = tuple(filter(needs_submission, plan.requests))
    local_requests = tuple(itertools.filterfalse(needs_submission, plan.requests))
    return plan.model_copy(update={"requests": local_requests}), plan.model_copy(
        update={"requests": submitted_requests}
    )


def needs_submission(cell: Cell) -> bool:
    """Return whether the cell's launcher is Slurm and this process is outside an allocation."""
    return cell.launcher == "slurm" and not is_inside_allocation()


def build_jobs_by_node_count(plan: Plan, store: Store) -> Jobs:
    """Return a job for each number of nodes, as pairs (part of the plan, job).

    Raises UsageError if the site has no such queue, or if the queue allows fewer nodes than the
    plan needs.
    """
    return [(part, _build_job(part, store)) for part in plan.split_by_nodes()]


def build_job_scripts(jobs: Jobs) -> list[str]:
    """Return the script of each job. Raises UsageError if a script cannot express a setting."""
    return [slurm.job_script(job) for _, job in jobs]


def submit_and_follow(
    jobs: Jobs,
    store: Store,
    records_to_skip: Sequence[Record],
    prepare: Prepare,
    say: Say,
    *,
    wait: bool,
) -> list[Record]:
    """Submit a job for each plan that still lacks records. Return the new records.

    - `records_to_skip`: records of earlier launches, which are not repeated.
    - `prepare`: prepares the environments of a plan, and returns them in a context.
    - `say`: is called with each message.
    - `wait`: whether to follow the jobs until they end. If false, the only new records are those of
      unavailable frameworks and rejected jobs.

    The environments are created before a job is submitted, because nodes may have no network. If
    the user interrupts this function, it cancels the jobs and raises KeyboardInterrupt again.
    """
    started_jobs: list[slurm.Job] = []
    try:
        return _submit_and_follow(
            jobs, store, records_to_skip, prepare, say, started_jobs, wait=wait
        )
    except KeyboardInterrupt:
        for job in started_jobs:
            _cancel_job(job, say)
        raise


def _submit_and_follow(
    jobs: Jobs,
    store: Store,
    records_to_skip: Sequence[Record],
    prepare: Prepare,
    say: Say,
    started_jobs: list[slurm.Job],
    *,
    wait: bool,
) -> list[Record]:
    """Do the work of `submit_and_follow`, without handling interrupts.

    Adds each job that may be in the queue to `started_jobs`.
    """
    submitted: list[Submitted] = []
    records: list[Record] = []
    store.create_and_check_folders()
    obstacle = find_slurm_obstacle(request for plan, _ in jobs for request in plan.requests)
    if obstacle:
        say(obstacle)
    for job_plan, job in jobs:
        plan = job_plan.without_recorded(records_to_skip)
        plan = stop_rule.leave_out_decided(plan, records_to_skip)
        if obstacle:
            records += _add_records_for_missing(plan, (), store, "unavailable", obstacle)
            continue
        if not plan.requests:
            if queued := _find_queued_job(job, store, say, wait=wait):
                started_jobs.append(job)
                submitted.append(queued)
            continue
        context = prepare(plan)
        for name, reason in context.unavailable.items():
            records += _add_records_for_missing(
                plan.for_environments([name]), (), store, "unavailable", reason
            )
        plan = plan.for_environments(context.environments)
        if not plan.requests:
            continue
        started_jobs.append(job)
        try:
            # The job finds the earlier records itself: its rule to stop counts them.
            whole_plan = job_plan.for_environments(context.environments)
            after = _find_previous_job(submitted)
            submitted.append(submit_or_find_job(whole_plan, plan, job, store, say, after))
        except CommandError as error:
            say(str(error))
            reason = f"Slurm rejected the job: {slurm.describe_rejection(error)}"
            records += _add_records_for_missing(plan, (), store, "unavailable", reason)
    if not submitted:
        if not records:
            say("no launches left to submit")
        return records
    if not wait:
        say("not waiting: to collect the records, run the same command with --resume")
        return records
    return records + follow_jobs(submitted, store, say)


def _find_previous_job(submitted: Sequence[Submitted]) -> str:
    """Return the number of the last job; "" if there is none that Slurm still knows."""
    number = submitted[-1].number if submitted else ""
    with contextlib.suppress(CommandError):
        return number if number and slurm.query_job_state(number).state else ""
    return number


def _find_queued_job(job: slurm.Job, store: Store, say: Say, *, wait: bool) -> Submitted | None:
    """Return a job in the queue, all of whose launches have records of earlier sessions.

    Returns None if Slurm does not know such a job. `wait`: whether the caller will follow the job.
    """
    try:
        number = slurm.find_job_number(job.name)
        if not number:
            return None
        store.require_private(f"jobs/{job.folder.name}")
        plan = Plan.read(job.folder / _PLAN)
        before = frozenset((job.folder / _BEFORE).read_text(encoding="utf-8").split())
    except (errors.XfbenchError, OSError) as error:
        say(f"job {job.name} may be in the queue, but cannot be followed: {error}")
        return None
    if plan.resume:
        finished = lookup.find_ok_or_invalid_records(plan.requests, store)
        earlier = [record for record in finished if record.id in before]
        plan = stop_rule.leave_out_decided(plan.without_recorded(earlier), earlier)
    say(
        f"job {number} ({job.name}) is in the queue"
        + (": following it" if wait else ", and adds its records when it has run")
    )
    return Submitted(plan, job.folder, number, before)


def _cancel_job(job: slurm.Job, say: Say) -> None:
    try:
        number = slurm.find_job_number(job.name)
        if number:
            slurm.cancel_job(number)
            say(f"job {number}: cancelled; its records are kept; continue with --resume")
    except CommandError as error:
        say(f"job {job.name} may be in the queue: run scancel --name={job.name} ({error})")


def _build_job(plan: Plan, store: Store) -> slurm.Job:
    """Return the Slurm job of a plan, whose requests have the same number of nodes.

    Raises UsageError if the site has no such queue, or if the queue allows fewer nodes.
    """
    site = sites.load_site(plan.requests[0].site)
    queue = plan.submission.partition or site.queue
    nodes = max(request.nodes for request in plan.requests)
    site.check_queue(queue)
    limits = site.queues.get(queue, sites.Queue())
    if limits.max_nodes and nodes > limits.max_nodes:
        raise errors.UsageError(
            f"partition {queue} allows at most {pluralize(limits.max_nodes, 'node')}, not {nodes}"
        )
    per_node = max(request.ranks // request.nodes for request in plan.requests)
    cpus = max(request.ranks // request.nodes * request.threads for request in plan.requests)
    device = "cuda" if any(request.device == "cuda" for request in plan.requests) else "cpu"
    resources = Resources(per_node * nodes, nodes, -(-cpus // per_node))
    folder = store.folder / "jobs" / plan.job_name()
    inherited_names = (
        *("XFBENCH_HOME", "XFBENCH_DATA", "XFBENCH_ADAPTERS", "XFBENCH_WORKLOADS"),
        *("XFBENCH_TRUSTED_GROUP", "XFBENCH_TRUSTED_FOLDERS"),
    )
    return slurm.Job(
        name=plan.job_name(),
        argv=(
            *(sys.executable, "-P", "-m", "xfbench", "run", "--job", str(folder / _PLAN)),
            *("--results", str(store.folder)),
        ),
        folder=folder,
        nodes=nodes,
        ranks_per_node=per_node,
        threads=resources.threads,
        minutes=min(plan.submission.minutes, limits.max_minutes or plan.submission.minutes),
        queue=queue,
        account=plan.submission.account or site.account,
        options=(
            *site.script_options,
            *resources.fill_placeholders(site.gpu_options_for(device)),
        ),
        variables=tuple((name, os.environ[name]) for name in inherited_names if name in os.environ),
    )


def submit_or_find_job(
    whole_plan: Plan, plan: Plan, job: slurm.Job, store: Store, say: Say, after: str = ""
) -> Submitted:
    """Submit `job`, which runs `whole_plan`. If Slurm's queue already has the job, only find it.

    - `plan`: the part of `whole_plan` that lacks records.
    - `after`: number of the job that has to end before, so that they do not disturb each other.

    Raises CommandError with Slurm's message if Slurm rejects the job. Raises UnavailableError if
    the queue has such a job for another results folder.
    """
    paths.make_folder(job.folder)
    store.require_private(f"jobs/{job.folder.name}")
    with locks.exclusive(job.folder / "lock", "submits this job"):
        number = slurm.find_job_number(job.name)
        if number and not (job.folder / _BEFORE).exists():
            raise errors.UnavailableError(
                f"job {number} ({job.name}) is in the queue, but was not submitted for "
                f"{store.folder}, or this folder was deleted: wait until it ends, or end it "
                f"(scancel {number})"
            )
        if number:
            say(f"job {number} ({job.name}) is in the queue already: following it")
        else:
            # Files of plans leave `resume` out, but the job must not repeat finished launches.
            document = {**whole_plan.model_dump(mode="json"), "resume": whole_plan.resume}
            atomic_files.write(job.folder / _PLAN, json.dumps(document, indent=1).encode())
            atomic_files.write(job.folder / "job.sh", slurm.job_script(job).encode())
            atomic_files.write(
                job.folder / _BEFORE, "\n".join(_list_existing_record_ids(plan, store)).encode()
            )
            for stale in ("job.status", ALIVE, EVENTS):
                (job.folder / stale).unlink(missing_ok=True)
            # An interrupt must wait for Slurm's answer, so that an accepted job can be cancelled.
            with ThreadPoolExecutor(1) as pool:
                script = job.folder / "job.sh"
                number = pool.submit(slurm.submit_job_script, script, after).result()
            say(
                f"job {number} ({job.name}) submitted: {pluralize(job.nodes, 'node')}, "
                f"{job.minutes} minutes"
            )
    before = (job.folder / _BEFORE).read_text(encoding="utf-8").split()
    return Submitted(plan, job.folder, number, frozenset(before))


def _list_existing_record_ids(plan: Plan, store: Store) -> list[str]:
    """Return the ids of the plan's existing records.

    Ids distinguish old from new records even if the nodes' clocks differ.
    """
    return [record.id for record in lookup.find_records_of_requests(plan.requests, store)]


def follow_jobs(submitted: Sequence[Submitted], store: Store, say: Say) -> list[Record]:
    """Wait until the jobs end and return their records.

    If a job ends early, this function adds a record for each missing launch, and returns it too.
    """
    running_jobs = {job.number: job for job in submitted}
    total = sum(len(job.plan.requests) for job in submitted)
    watches = {job.number: _Watch(job, say) for job in submitted}
    records: list[Record] = []
    while running_jobs:
        time.sleep(_LOOK_SECONDS)
        for number, job in list(running_jobs.items()):
            ended = watches[number].poll_job_and_cancel_if_stuck()
            for record in watches[number].read_new_records(store):
                records.append(record)
                say(f"{len(records)}/{total} {_format_record(record)}")
            if ended is None or watches[number].count_poll_and_allow_another(
                job.plan.missing_requests(records)
            ):
                continue
            del running_jobs[number]
            records += _add_records_for_missing(
                job.plan, records, store, *ended, watches[number].read_started_digests()
            )
            if not_started := job.plan.missing_requests(records):
                say(
                    f"job {number}: {len(not_started)} launches had not started; continue with "
                    "--resume"
                )
    return records


class _Watch:
    """A poller of one submitted job: its state in Slurm, its heartbeat and its new records."""

    def __init__(self, submitted: Submitted, say: Say) -> None:
        self.submitted = submitted
        self.say = say
        self.last_state = slurm.JobState()
        self.count = ""
        self.changed = time.monotonic()
        self.forgotten = self.lagging = 0
        self.requests_of_job = set(submitted.plan.requests)
        self.known_ids: set[str] = set()

    def read_new_records(self, store: Store) -> list[Record]:
        """Return the job's records that appeared since the last call."""
        unknown = list(store.records(skip=self.known_ids))
        self.known_ids |= {record.id for record in unknown}
        before = self.submitted.before
        return [r for r in unknown if r.request in self.requests_of_job and r.id not in before]

    def poll_job_and_cancel_if_stuck(self) -> tuple[str, str] | None:
        """Ask Slurm for the job's state, and cancel the job if it can never start or is lost.

        Return None while the job goes on. If the job has ended, or if this method cancelled the
        job, return the status and the reason for the records of its missing launches.
        """
        try:
            state = slurm.query_job_state(self.submitted.number)
        except CommandError as error:
            self.say(f"job {self.submitted.number}: Slurm does not answer: {error}")
            state = self.last_state
        if state.state == "RUNNING" != self.last_state.state:
            self.changed = time.monotonic()
        if state != self.last_state:
            waits = f" ({state.reason})" if state.state == "PENDING" and state.reason else ""
            if hint := slurm.SUSPICIOUS_REASONS.get(state.reason) if waits else None:
                waits += f": {hint}"
            self.say(f"job {self.submitted.number}: {(state.state or 'unknown').lower()}{waits}")
            self.last_state = state
        self.forgotten = 0 if state.state else self.forgotten + 1
        return self._cancel_if_stuck_and_determine_end()

    def _cancel_if_stuck_and_determine_end(self) -> tuple[str, str] | None:
        """Return the status and reason for records of missing launches if the job has ended.

        Returns None while the job goes on. If the job can never start, or if its first node is
        lost, this method cancels the job. A cancelled job counts as ended.
        """
        state, number = self.last_state.state, self.submitted.number
        status = self.submitted.folder / "job.status"
        if state == "PENDING" and self.last_state.reason in slurm.PERMANENT_REASONS:
            slurm.cancel_job(number)
            reason_text = (
                f"{self.last_state.reason}: {slurm.PERMANENT_REASONS[self.last_state.reason]}"
            )
            return "unavailable", f"Slurm will never start job {number}: {reason_text}"
        if (
            state == "FAILED"
            and not status.exists()
            and slurm.reports_out_of_memory(self._stderr_text())
        ):
            state = "OUT_OF_MEMORY"
        if state in slurm.FINAL_STATES and not (state == "FAILED" and status.exists()):
            final_status, reason = slurm.FINAL_STATES[state]
            return final_status, f"{reason} (job {number})"
        if status.exists() or state in ("COMPLETED", "FAILED"):
            stderr_path = f"jobs/{self.submitted.folder.name}/job.stderr"
            return "crashed", f"job {number} ended without this launch: see {stderr_path}"
        if self.forgotten >= _FORGOTTEN:
            printed = f": {self.last_state.reason}" if self.last_state.reason else ""
            return "crashed", f"Slurm no longer knows job {number}{printed}"
        limit = _SILENCE_SECONDS.get(state)
        if limit and self._seconds_since_heartbeat() > limit:
            slurm.cancel_job(number)
            return "crashed", (
                f"no heartbeat from the first node of job {number} for {limit:g} s: "
                "the node is lost"
            )
        return None

    def _stderr_text(self) -> str:
        try:
            return (self.submitted.folder / "job.stderr").read_text(errors="replace")
        except OSError:
            return ""

    def count_poll_and_allow_another(self, missing: Sequence[Request]) -> bool:
        """Count a poll after the job's end. Return whether to poll again for `missing` requests.

        Another poll is useful, because a file system may show records late. It is allowed if all of
        these conditions hold:

        - `missing` is not empty.
        - The job's script has written its exit status to the file job.status.
        - At most 15 polls were counted, including this one.
        """
        if not missing or not (self.submitted.folder / "job.status").exists():
            return False
        self.lagging += 1
        return self.lagging <= _LAG

    def read_started_digests(self) -> set[str]:
        """Return the digests of the requests that the job has started."""
        try:
            text = (self.submitted.folder / EVENTS).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return set()
        digests = set()
        for line in text.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # the last line may be cut
                event = json.loads(line)
                if event["event"] == "launch_started":
                    digests.add(str(event["request"]))
        return digests

    def _seconds_since_heartbeat(self) -> float:
        """Return the seconds since the job's last heartbeat; 0 before the first heartbeat."""
        try:
            count = (self.submitted.folder / ALIVE).read_text(encoding="utf-8")
        except OSError:
            return 0.0
        if count != self.count:
            self.count, self.changed = count, time.monotonic()
        return time.monotonic() - self.changed


def _add_records_for_missing(
    plan: Plan,
    records_so_far: Sequence[Record],
    store: Store,
    status: str,
    reason: str,
    started: Collection[str] = (),
) -> list[Record]:
    """Add and return records with this status and reason for launches that have none.

    - `records_so_far`: the records of launches that need no other.
    - `started`: digests of the requests that the job has started.

    If `status` is "unavailable", each cell without records gets one. Otherwise a launch gets one
    only if it had started. If none of those without a record had started, the first gets it, so
    that the cause is kept.
    """
    missing = plan.missing_requests(records_so_far)
    if status == "unavailable":
        missing = list({request.cell(): request for request in reversed(missing)}.values())
    else:
        missing = [each for each in missing if each.digest in started] or missing[:1]
    records = [
        Record.make(
            status=status,
            reason=reason,
            request=request,
            protocol=dict(plan.protocols).get(request.cell()),
            workload=facts.workload_facts(training.workload_with_solver_of_cell(request)),
        )
        for request in missing
    ]
    for record in records:
        store.add(record)
    return records


def _format_record(record: Record) -> str:
    request = record.request
    assert request is not None
    return f"{request.label()} · launch {request.launch} · {describe_outcome(record)}"


@contextlib.contextmanager
def write_heartbeat(folder: Path) -> Iterator[None]:
    """Write a rising count to the heartbeat file in `folder` while the `with` block runs.

    `folder` is the job's folder. The job's first node writes the count. The process on the login
    node reads the count, and notices a lost node when the count stops.
    """
    numbers = itertools.count(1)

    def write_next_number() -> None:
        with contextlib.suppress(OSError):
            atomic_files.write(folder / ALIVE, str(next(numbers)).encode())

    try:
        with call_repeatedly(write_next_number, itertools.repeat(_LOOK_SECONDS)):
            yield
    finally:
        (folder / ALIVE).unlink(missing_ok=True)


def is_inside_allocation() -> bool:
    """Return whether this process runs in a Slurm allocation."""
    return "SLURM_JOB_ID" in os.environ
