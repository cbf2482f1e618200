"""Progress of launches: a bar on a terminal, plain lines elsewhere.

All progress goes to standard error, so that standard output contains only the command's result.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from xfbench import statistics as record_statistics
from xfbench.base.terminal_text import say
from xfbench.equality import certify
from xfbench.execution.launch import LaunchContext
from xfbench.host import conditions, doctor, machine
from xfbench.model.certificate import certified_fields
from xfbench.model.machines import machine_class
from xfbench.model.plan import Plan
from xfbench.model.record import Record
from xfbench.model.request import Cell, Protocol, Request
from xfbench.session import run_requests
from xfbench.store.results_folder import Store


def measure_remaining_launches(
    plan: Plan, store: Store, done: Sequence[Record] = ()
) -> list[Record]:
    """Do the plan's remaining launches on this host, show progress, and return the new records.

    `done` has the records of earlier launches. These launches are not repeated. Raises NoisyError
    if the plan is strict and a check of `xfbench doctor` is not ok.
    """
    if plan.strict:
        doctor.require_all_checks_ok()
    context = LaunchContext(
        store,
        time_limit=plan.time_limit,
        strict=plan.strict,
        data_folders=plan.data_folders,
        checkpoint_dir=plan.checkpoint_dir,
    )
    requests = plan.without_recorded(done).requests
    protocols = dict(plan.protocols)
    return run_with_progress(requests, context, plan.pythons, protocols, done, verify=plan.verify)


def run_with_progress(
    requests: Sequence[Request],
    context: LaunchContext,
    pythons: Mapping[str, Path],
    protocols: Mapping[Cell, Protocol],
    done: Sequence[Record] = (),
    *,
    verify: bool,
) -> list[Record]:
    """Prepare the environments, do the launches, show progress, and return the new records.

    - `pythons`: interpreters that replace the managed environments, by framework.
    - `done`: records of earlier launches. Their throughput is used too when the precision of their
      cells is computed.
    - `verify`: whether to verify each kind of cell before the launches.

    After an interrupt, prints the number of finished launches and raises the interrupt again.
    """
    console = Console(stderr=True)
    here = machine.describe_machine()
    say(f"xfbench · {machine_class(here)} · {here.kernel_release}")
    started = time.monotonic()
    with console.status("preparing environments") if console.is_terminal else nullcontext():
        site = next((request.site for request in requests), None)
        allocator_names = [request.allocator for request in requests]
        context.prepare_environments(
            (r.framework for r in requests), pythons, say, site, allocator_names
        )
    versions = [
        f"{name} {framework_environment.version} ✔"
        for name, framework_environment in context.environments.items()
    ]
    versions += [f"{name} ✘" for name in context.unavailable]
    ready = f"environments ready in {time.monotonic() - started:.0f} s"
    say(f"{'  '.join(versions)}    {ready}")
    if verify:
        _certify([request for request in requests if not request.probe], context, console)
    return _launch(requests, context, protocols, done, console)


def _certify(requests: Sequence[Request], context: LaunchContext, console: Console) -> None:
    """Verify each kind of cell.

    On a terminal, one transient line shows the progress. Messages about failures stay visible.
    """
    started = time.monotonic()
    with console.status("certificates") if console.is_terminal else nullcontext() as status:

        def show_progress(line: str) -> None:
            if status is None:
                say(line)
            else:
                status.update(Text(line))

        certify.certify_requests(requests, context, show_progress, say)
    certificate_count = len(context.certificates)
    kind_count = len({certified_fields(request) for request in requests})
    say(
        f"{certificate_count} of {kind_count} configurations proven equal "
        f"in {time.monotonic() - started:.0f} s"
    )


def _launch(
    requests: Sequence[Request],
    context: LaunchContext,
    protocols: Mapping[Cell, Protocol],
    done: Sequence[Record],
    console: Console,
) -> list[Record]:
    """Do the launches and show their progress. Return the new records."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("launches · {task.description}", markup=False),
    )
    records: list[Record] = []
    clock = _RemainingTime(requests, any(p.precision for p in protocols.values()))
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(requests[0].label() if requests else "", total=len(requests))
        try:
            for record in run_requests(requests, context, protocols, done):
                records.append(record)
                remaining_time = clock.count_and_format_remaining(record)
                upcoming = requests[clock.count].label() if clock.count < len(requests) else ""
                bar.update(
                    task, completed=clock.count, description=f"{upcoming} · {remaining_time}"
                )
                if record.status != "ok" or not console.is_terminal:
                    say(_format_line(record, clock, remaining_time))
        except KeyboardInterrupt:
            say(
                f"interrupted after {len(records)} launches, which are kept in "
                f"{context.store.folder}; continue with --resume"
            )
            raise
    return records


class _RemainingTime:
    """An estimate of the remaining time, from the durations of the finished launches.

    `at_most` says that the estimate is an upper limit, because some launches may be skipped.
    """

    def __init__(self, requests: Sequence[Request], at_most: bool) -> None:
        self.requests = requests
        self.words = "at most " if at_most else ""
        self.count = 0
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.last = time.monotonic()

    def count_and_format_remaining(self, record: Record) -> str:
        """Count the launch of `record`, and return the remaining time as text.

        Requests that were skipped before this launch are counted too. The text is, for example, "at
        most 1:05 left" (minutes:seconds). After the last launch, the text is empty.
        """
        now = time.monotonic()
        request = record.request
        assert request is not None
        while self.count < len(self.requests) and self.requests[self.count] != request:
            self.count += 1
        self.count += 1
        self.seconds[request.label()].append(now - self.last)
        self.last = now
        durations = [
            duration for cell_durations in self.seconds.values() for duration in cell_durations
        ]
        remaining_s = sum(
            statistics.fmean(self.seconds.get(request.label()) or durations)
            for request in self.requests[self.count :]
        )
        return (
            f"{self.words}{int(remaining_s // 60)}:{int(remaining_s % 60):02d} left"
            if self.count < len(self.requests)
            else ""
        )


def _format_line(record: Record, clock: _RemainingTime, remaining_time: str) -> str:
    """Return a line about a launch: number, cell, throughput, status and remaining time."""
    request = record.request
    assert request is not None
    count = f"{clock.count}/{len(clock.requests)}"
    figure = ""
    if record.measurement and not request.probe:
        figure = f" · {record_statistics.launch_throughput(record):.4g} images/s"
    reason = f": {record.reason}" if record.reason else ""
    if request.probe:
        reason = reason or f": {', '.join(support.supported for support in record.support or ())}"
    elif record.status == "ok" and not record_statistics.is_steady(record):
        reason = " · never became steady: not counted"
    elif record.status == "ok":
        noise = conditions.list_record_disturbances(record)
        reason = f" · noisy: {'; '.join(noise)}" if noise else ""
    remaining_text = f" · {remaining_time}" if remaining_time else ""
    launch_text = f"{count} {request.label()} · launch {request.launch}"
    return f"{launch_text}{figure} · {record.status}{reason}{remaining_text}"
