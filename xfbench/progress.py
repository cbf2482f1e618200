"""Listeners that show the progress of a session: a table on a terminal, plain lines elsewhere.

All progress goes to standard error, so that standard output contains only the command's result.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.status import Status
from rich.table import Table
from rich.text import Text

from xfbench import statistics as record_statistics
from xfbench.base.shared_files import open_file
from xfbench.base.terminal_text import make_legible, say
from xfbench.execution.launch import LaunchContext
from xfbench.execution.outcome import describe_outcome, format_speed
from xfbench.host import machine
from xfbench.model.machines import machine_class
from xfbench.model.plan import Plan
from xfbench.model.record import Record
from xfbench.model.request import SOLVER, Cell, Request
from xfbench.session import Listener
from xfbench.store.results_folder import Store

_MAX_ROWS = 12
_OTHER_LINES = 5  # of the terminal: progress, heading, number of other cells, and what came before
# Fields of a request that differ between the launches of one row.
_LAUNCH_FIELDS = {"launch", "session", "position", "seed"}
# Fields that `Cell.label` shows, and one that follows from others.
_LABEL_FIELDS = {
    *("workload", "framework", "python", "kernel", "ranks", "nodes", "strategy", "threads"),
    *("strategy_options", "allocator", "probe", "launcher", "revision", "batch_size_per_rank"),
    *SOLVER,
}


def choose_listener(*, quiet: bool = False) -> Listener:
    """Return a live table if standard error is a terminal, else plain lines.

    If `quiet`, print only launches that are not ok. A terminal gets plain lines too if NO_COLOR is
    set or TERM is "dumb".
    """
    if quiet:
        return Failures()
    console = Console(stderr=True)
    # FORCE_COLOR makes a pipe interactive for rich.
    is_live = console.is_interactive and console.file.isatty() and not console.no_color
    return Bar(console) if is_live else Lines()


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

    def verification_ended(self, equal: int, kinds: int, reused: int, seconds: float) -> None:
        """Print how many kinds of cells are equal, and how many of them were verified earlier."""
        text = f"{equal} of {kinds} configurations proven equal"
        if reused < kinds:
            text += f" in {seconds:.0f} s"
        if reused:
            count = "all" if reused == kinds else f"{reused} of them"
            text += f" ({count} by an earlier verification)"
        self.message(text)


class Lines(Messages):
    """Plain lines: one for each launch, and those of `Messages`."""

    def __init__(self) -> None:
        self._progress = _RunProgress((), is_maximum=False)

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
        self._progress = _RunProgress(requests, is_maximum)

    def launch_ended(self, record: Record) -> None:
        """Print a line about the launch."""
        self._progress.count_launch(record)
        self.message(_format_line(record, self._progress))

    def other_programs(self, record: Record, programs: str) -> None:
        """Print which programs ran beside the launch."""
        self.message(f"  during this launch, {programs}")

    def launches_ended(self, count: int, store: Store, interrupted: bool) -> None:
        """After an interrupt, print how to continue."""
        if interrupted:
            self.message(
                f"interrupted after {count} launches, which are kept in {store.folder}; "
                "continue with --resume"
            )


class Bar(Lines):
    """A progress bar with a table of the cells so far, which is drawn only between launches.

    Lines are printed only for messages and for launches that are not ok.
    """

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._status: Status | None = None
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._live: Live | None = None

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
            self._status.update(Text(make_legible(text)))

    def verification_ended(self, equal: int, kinds: int, reused: int, seconds: float) -> None:
        """Print how many kinds of cells are equal."""
        self._end_status()
        super().verification_ended(equal, kinds, reused, seconds)

    def launches_started(self, requests: Sequence[Request], is_maximum: bool) -> None:
        """Show the bar."""
        super().launches_started(requests, is_maximum)
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("launches · {task.description}", markup=False),
        )
        self._bar = Progress(*columns, console=self._console)
        self._task = self._bar.add_task("", total=len(requests))
        # No thread redraws during a launch, because that would disturb the measurement.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def launch_started(self, request: Request) -> None:
        """Show the launch in the bar."""
        if self._bar:
            parts = [request.label(), self._progress.remaining_time]
            description = make_legible(" · ".join(filter(None, parts)))
            self._bar.update(self._task, description=description)
            self._draw()

    def launch_ended(self, record: Record) -> None:
        """Move the bar and update the table. If the launch is not ok, print a line about it."""
        self._progress.count_launch(record)
        if self._bar:
            self._bar.update(self._task, completed=self._progress.count)
            self._draw()
        if record.status != "ok":
            self.message(_format_line(record, self._progress))

    def other_programs(self, record: Record, programs: str) -> None:
        """If the launch is not ok, print which programs ran beside it."""
        if record.status != "ok":
            super().other_programs(record, programs)

    def launches_ended(self, count: int, store: Store, interrupted: bool) -> None:
        """Remove the bar. After an interrupt, print how to continue."""
        self.closed()
        super().launches_ended(count, store, interrupted)

    def closed(self) -> None:
        """Remove what is still shown."""
        self._end_status()
        if self._live:
            self._live.stop()
        self._live = self._bar = None

    def _draw(self) -> None:
        if self._live and self._bar:
            max_rows = max(1, min(_MAX_ROWS, self._console.height - _OTHER_LINES))
            table = _build_table(self._progress, max_rows)
            self._live.update(Group(self._bar.get_renderable(), table), refresh=True)

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
        with open_file(self._file, "ab") as file:
            file.write(f"{json.dumps(fields)}\n".encode())


@dataclass
class _CellProgress:
    """The launches of one cell so far.

    - `planned`, `done`, `failed`: numbers of launches. `done` includes `failed`.
    - `remaining`: number of launches that may still come.
    - `speeds`: images per second of each launch that counts.
    - `durations_s`: duration of each launch, start to end.
    - `remaining_s`: estimate of the remaining time; None before the first launch of any cell.
    """

    label: str
    planned: int
    remaining: int
    done: int = 0
    failed: int = 0
    speeds: list[float] = field(default_factory=list)
    durations_s: list[float] = field(default_factory=list)
    remaining_s: float | None = None

    @property
    def median_speed(self) -> float:
        """Return the median of the images per second; 0 if no launch counts yet."""
        return statistics.median(self.speeds) if self.speeds else 0.0

    def count_down(self) -> None:
        """Count a launch that was done or skipped."""
        self.remaining = max(0, self.remaining - 1)


class _RunProgress:
    """The launches of a run so far, and an estimate of the remaining time.

    - `is_maximum`: whether the estimate is an upper limit, because some launches may be skipped.
    - `count`: number of launches that were done or skipped.
    - `cells`: the cells in the order of their first launches. All seeds of a cell are one.
    - `remaining_time`: the last estimate as text; empty before the first launch has ended.
    """

    def __init__(self, requests: Sequence[Request], is_maximum: bool) -> None:
        self.requests = requests
        self.is_maximum = is_maximum
        self.count = 0
        self.remaining_time = ""
        self._keys = [_cell_key(request) for request in requests]
        self._last_end = time.monotonic()
        planned = Counter(self._keys)
        firsts = dict(zip(reversed(self._keys), reversed(requests), strict=True))
        labels = _label_cells([firsts[key] for key in planned])
        self.cells = {
            key: _CellProgress(label, planned[key], planned[key])
            for key, label in zip(planned, labels, strict=True)
        }

    def count_launch(self, record: Record) -> None:
        """Count the launch of `record`, and estimate the remaining time again.

        Requests that were skipped before this launch are counted too. The text is, for example, "at
        most 1:05 left" (minutes:seconds). After the last launch, the text is empty.
        """
        now = time.monotonic()
        request = record.request
        assert request is not None
        while self.count < len(self.requests) and self.requests[self.count] != request:
            self.cells[self._keys[self.count]].count_down()
            self.count += 1
        self.count += 1
        # A listener may hear of launches that no plan announced.
        cell = self.cells.setdefault(_cell_key(request), _CellProgress(request.label(), 0, 0))
        cell.count_down()
        cell.done += 1
        cell.failed += record.status != "ok"
        if record.status in ("unsupported", "unavailable"):
            cell.remaining = 0
        cell.durations_s.append(now - self._last_end)
        self._last_end = now
        if (
            record.status == "ok"
            and not request.probe
            and record_statistics.has_valid_steps(record)
        ):
            cell.speeds.append(record_statistics.launch_throughput(record))
        self._estimate_remaining_time()

    def _estimate_remaining_time(self) -> None:
        cells = self.cells.values()
        mean_s = statistics.fmean(each for cell in cells for each in cell.durations_s)
        for cell in cells:
            cell_mean_s = statistics.fmean(cell.durations_s) if cell.durations_s else mean_s
            cell.remaining_s = cell.remaining * cell_mean_s
        remaining_s = sum(cell.remaining_s or 0.0 for cell in cells)
        is_last = self.count >= len(self.requests)
        words = "at most " if self.is_maximum else ""
        self.remaining_time = "" if is_last else f"{words}{_format_minutes(remaining_s)} left"


def _cell_key(request: Request) -> tuple[Any, ...]:
    """Return a key that all launches of a cell share, with any seed."""
    return tuple(value for name, value in request if name not in _LAUNCH_FIELDS)


def _label_cells(requests: Sequence[Request]) -> list[str]:
    """Return a label for each request, with the values in which the requests differ."""
    differences = describe_differences(requests)
    return [
        " · ".join(filter(None, (request.label(), difference)))
        for request, difference in zip(requests, differences, strict=True)
    ]


def describe_differences(
    requests: Sequence[Request], omitted_fields: Collection[str] = ()
) -> list[str]:
    """Return for each request its values in which the requests differ, such as "window 1".

    The values that `Cell.label` shows and those of `omitted_fields` are left out.
    """
    differing = [
        name
        for name in Cell.model_fields
        if name not in {*_LABEL_FIELDS, *_LAUNCH_FIELDS, *omitted_fields}
        and len({getattr(request, name) for request in requests}) > 1
    ]
    differences = []
    for request in requests:
        values = {name: getattr(request, name) for name in differing}
        if values.get("data_set"):
            values["data_set"] = f"{values['data_set'].format} on {values['data_set'].medium}"
        parts = [f"{name.replace('_', ' ')} {value}" for name, value in values.items()]
        differences.append(" · ".join(parts))
    return differences


def _build_table(progress: _RunProgress, max_rows: int) -> Table:
    """Return a table of the cells so far, the fastest first, with at most `max_rows` cells."""
    table = Table(box=None, pad_edge=False)
    table.add_column("cell", no_wrap=True, overflow="ellipsis")
    table.add_column("images/s (median)", justify="right", no_wrap=True)
    table.add_column("launches", justify="right", no_wrap=True)
    heading = "at most left" if progress.is_maximum else "time left"
    table.add_column(heading, justify="right", no_wrap=True)
    cells = sorted(progress.cells.values(), key=lambda cell: -cell.median_speed)
    for cell in cells[:max_rows]:
        failures = f", {cell.failed} failed" if cell.failed else ""
        table.add_row(
            Text(make_legible(cell.label)),
            format_speed(cell.median_speed) if cell.speeds else "–",
            f"{cell.done}/{cell.planned}{failures}",
            "" if cell.remaining_s is None else _format_minutes(cell.remaining_s),
        )
    if len(cells) > max_rows:
        table.add_row(f"and {len(cells) - max_rows} more cells")
    return table


def _format_minutes(seconds: float) -> str:
    """Return a duration such as "1:05" (minutes:seconds)."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


def _format_line(record: Record, progress: _RunProgress) -> str:
    """Return a line about a launch: number, cell, throughput, status and remaining time."""
    request = record.request
    assert request is not None
    count = f"{progress.count}/{len(progress.requests)}"
    remaining_text = f" · {progress.remaining_time}" if progress.remaining_time else ""
    launch_text = f"{count} {request.label()} · launch {request.launch}"
    return f"{launch_text} · {describe_outcome(record)}{remaining_text}"
