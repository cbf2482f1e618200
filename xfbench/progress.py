"""Listeners that show the progress of a session: a bar on a terminal, plain lines elsewhere.

All progress goes to standard error, so that standard output contains only the command's result.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.status import Status
from rich.text import Text

from xfbench import statistics as record_statistics
from xfbench.base.terminal_text import say
from xfbench.execution.launch import LaunchContext
from xfbench.host import conditions, machine
from xfbench.model.machines import machine_class
from xfbench.model.plan import Plan
from xfbench.model.record import Record
from xfbench.model.request import Request
from xfbench.session import Listener
from xfbench.store.results_folder import Store


def choose_listener(*, quiet: bool = False) -> Listener:
    """Return a progress bar if standard error is a terminal, else plain lines.

    If `quiet`, print only launches that are not ok.
    """
    if quiet:
        return Failures()
    console = Console(stderr=True)
    return Bar(console) if console.is_terminal else Lines()


class Failures(Listener):
    """One line for each launch that is not ok, and for what a submitted job reports."""

    def message(self, text: str) -> None:
        """Print the line if it reports a problem."""
        if any(
            word in text for word in ("unavailable", "failed", "crashed", "timed_out", "invalid")
        ):
            say(text)

    def launch_ended(self, record: Record) -> None:
        """Print a line if the launch is not ok."""
        if record.status != "ok" and record.request:
            say(f"{record.request.label()} · {record.status}: {record.reason}")


class Messages(Listener):
    """Plain lines about everything except the launches."""

    def message(self, text: str) -> None:
        """Print the line."""
        say(text)

    def verification_progress(self, text: str) -> None:
        """Print the line."""
        self.message(text)

    def verification_ended(self, equal: int, kinds: int, seconds: float) -> None:
        """Print how many kinds of cells are equal."""
        self.message(f"{equal} of {kinds} configurations proven equal in {seconds:.0f} s")


class Lines(Messages):
    """Plain lines: one for each launch, and those of `Messages`."""

    def __init__(self) -> None:
        self._clock = _RemainingTime((), at_most=False)

    def preparation_started(self, plan: Plan) -> None:
        """Print the machine."""
        here = machine.describe_machine()
        self.message(f"xfbench · {machine_class(here)} · {here.kernel_release}")

    def preparation_ended(self, context: LaunchContext, seconds: float) -> None:
        """Print the versions of the frameworks."""
        versions = [
            f"{name} {environment.version} ✔" for name, environment in context.environments.items()
        ]
        versions += [f"{name} ✘" for name in context.unavailable]
        self.message(f"{'  '.join(versions)}    environments ready in {seconds:.0f} s")

    def launches_started(self, requests: Sequence[Request], is_maximum: bool) -> None:
        """Start the estimate of the remaining time."""
        self._clock = _RemainingTime(requests, is_maximum)

    def launch_ended(self, record: Record) -> None:
        """Print a line about the launch."""
        self._clock.count_launch(record)
        self.message(_format_line(record, self._clock))

    def launches_ended(self, count: int, store: Store, interrupted: bool) -> None:
        """After an interrupt, print how to continue."""
        if interrupted:
            self.message(
                f"interrupted after {count} launches, which are kept in {store.folder}; "
                "continue with --resume"
            )


class Bar(Lines):
    """A progress bar. Lines are printed only for messages and for launches that are not ok."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._status: Status | None = None
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def preparation_started(self, plan: Plan) -> None:
        """Print the machine, and show that environments are prepared."""
        super().preparation_started(plan)
        self._show_status("preparing environments")

    def preparation_ended(self, context: LaunchContext, seconds: float) -> None:
        """Print the versions of the frameworks."""
        self._end_status()
        super().preparation_ended(context, seconds)

    def verification_started(self) -> None:
        """Show that certificates are found or created."""
        self._show_status("certificates")

    def verification_progress(self, text: str) -> None:
        """Show the line until the next one."""
        if self._status:
            self._status.update(Text(text))

    def verification_ended(self, equal: int, kinds: int, seconds: float) -> None:
        """Print how many kinds of cells are equal."""
        self._end_status()
        super().verification_ended(equal, kinds, seconds)

    def launches_started(self, requests: Sequence[Request], is_maximum: bool) -> None:
        """Show the bar."""
        super().launches_started(requests, is_maximum)
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("launches · {task.description}", markup=False),
        )
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("", total=len(requests))
        self._bar.start()

    def launch_started(self, request: Request) -> None:
        """Show the launch in the bar."""
        if self._bar:
            parts = [request.label(), self._clock.remaining_time]
            description = " · ".join(filter(None, parts))
            self._bar.update(self._task, description=description)

    def launch_ended(self, record: Record) -> None:
        """Move the bar. If the launch is not ok, print a line about it."""
        self._clock.count_launch(record)
        if self._bar:
            self._bar.update(self._task, completed=self._clock.count)
        if record.status != "ok":
            self.message(_format_line(record, self._clock))

    def launches_ended(self, count: int, store: Store, interrupted: bool) -> None:
        """Remove the bar. After an interrupt, print how to continue."""
        self.closed()
        super().launches_ended(count, store, interrupted)

    def closed(self) -> None:
        """Remove what is still shown."""
        self._end_status()
        if self._bar:
            self._bar.stop()
            self._bar = None

    def _show_status(self, text: str) -> None:
        self._status = self._console.status(text)
        self._status.start()

    def _end_status(self) -> None:
        if self._status:
            self._status.stop()
            self._status = None


class JsonLines(Listener):
    """One JSON object per line in a file: the start and the end of each launch.

    The login node reads them, to tell which launches a lost job had started.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def launch_started(self, request: Request) -> None:
        """Write a line with the digest of the request."""
        self._write(event="launch_started", request=request.digest)

    def launch_ended(self, record: Record) -> None:
        """Write a line with the id and the status of the record."""
        assert record.request is not None
        request = record.request.digest
        self._write(event="launch_ended", request=request, record=record.id, status=record.status)

    def _write(self, **fields: str) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")


class _RemainingTime:
    """An estimate of the remaining time, from the durations of the finished launches.

    - `at_most`: whether the estimate is an upper limit, because some launches may be skipped.
    - `remaining_time`: the last estimate as text; empty before the first launch has ended.
    """

    def __init__(self, requests: Sequence[Request], at_most: bool) -> None:
        self.requests = requests
        self.words = "at most " if at_most else ""
        self.count = 0
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.last = time.monotonic()
        self.remaining_time = ""

    def count_launch(self, record: Record) -> None:
        """Count the launch of `record`, and estimate the remaining time again.

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
        self.remaining_time = (
            f"{self.words}{int(remaining_s // 60)}:{int(remaining_s % 60):02d} left"
            if self.count < len(self.requests)
            else ""
        )


def _format_line(record: Record, clock: _RemainingTime) -> str:
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
    elif record.status == "ok":
        noise = conditions.list_record_disturbances(record)
        reason = f" · noisy: {'; '.join(noise)}" if noise else ""
        reason += " · level changed" if record_statistics.is_level_changed(record) else ""
    remaining_text = f" · {clock.remaining_time}" if clock.remaining_time else ""
    launch_text = f"{count} {request.label()} · launch {request.launch}"
    return f"{launch_text}{figure} · {record.status}{reason}{remaining_text}"
