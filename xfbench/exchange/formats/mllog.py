"""Logs of MLPerf Training: lines with `:::MLLOG {json}`, after any prefix that a launcher adds.

Each run gives the time to train (`run_start` to `run_stop`) and the value of every evaluation.
Throughput and epoch time are medians over the logged values.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from xfbench.exchange.formats import (
    Entry,
    File,
    Missed,
    as_object,
    keep_nonempty_text,
    parse_number,
    parse_positive_integer,
    parse_time,
    supported_workload_and_framework,
)

TOOL = "MLPerf Training"
_MARK = b":::MLLOG"
_MAX_LINE_BYTES = 2**20
_SPEED_UNITS = {"throughput": "", "samples_per_sec": "samples/s", "samples_per_second": "samples/s"}
_OPENING_KEYS = ("cache_clear", "init_start", "submission_benchmark", "run_start")
_SUBMISSION_KEYS = ("benchmark", "division", "org")
_COUNT_FIELDS = {
    "global_batch_size": "global_batch_size",
    "number_of_ranks": "ranks",
    "number_of_nodes": "nodes",
}


@dataclass(frozen=True)
class _Event:
    """A line of the log with its number, key, value, time and metadata."""

    line: int
    key: str
    value: Any
    milliseconds: float  # since 1970
    metadata: dict[str, Any]

    @property
    def created(self) -> str:
        return str(parse_time(self.milliseconds / 1000))

    def seconds_since(self, earlier: _Event) -> float:
        """Return the seconds from the event `earlier` to this event."""
        return (self.milliseconds - earlier.milliseconds) / 1000


@dataclass
class _Run:
    """The events and values of one run.

    - `values_by_key`: the last value of every key that the other fields do not cover.
    - `started`, `stopped`: the events run_start and run_stop, or None.
    - `evaluations`: the events eval_accuracy.
    - `speeds`: the events with a throughput, by the key of the throughput.
    - `epochs`: the events epoch_start and epoch_stop of each completed epoch.
    - `epoch`: the event epoch_start of the current epoch, or None.
    """

    values_by_key: dict[str, Any] = field(default_factory=dict)
    started: _Event | None = None
    stopped: _Event | None = None
    evaluations: list[_Event] = field(default_factory=list)
    speeds: dict[str, list[_Event]] = field(default_factory=lambda: defaultdict(list))
    epochs: list[tuple[_Event, _Event]] = field(default_factory=list)
    epoch: _Event | None = None


def is_recognised(file: File) -> bool:
    """Return whether the file contains `:::MLLOG` and is not JSON."""
    return file.document is None and _MARK in file.content


def host_and_user_names(file: File) -> Iterable[str]:
    """Return nothing, because no name of a host or a person is read from a log."""
    return ()


def entries(file: File) -> Iterator[Entry | Missed]:
    """Yield the figures of each run, and each line that is invalid or misplaced."""
    run = _Run()
    seen_lines: set[bytes] = set()
    for line_number, line in enumerate(file.content.split(b"\n"), 1):
        _, mark, rest = line.partition(_MARK)
        if not mark or rest in seen_lines:  # every rank may print the same line
            continue
        seen_lines.add(rest)
        event = _parse_event(line_number, rest)
        if isinstance(event, Missed):
            yield event
            continue
        if run.stopped and event.key in _OPENING_KEYS:
            yield from _figures_of_run(run)
            run = _Run()
        if problem := _add_event(run, event):
            yield Missed(f"line {line_number}", problem)
    yield from _figures_of_run(run)


def _parse_event(line: int, content: bytes) -> _Event | Missed:
    location = f"line {line}"
    if len(content) > _MAX_LINE_BYTES:
        return Missed(location, "the line is too long")
    try:
        document = as_object(json.loads(content))
    except (ValueError, RecursionError):
        return Missed(location, "the text after :::MLLOG is not JSON")
    key, milliseconds = (
        keep_nonempty_text(document.get("key")),
        parse_number(document.get("time_ms")),
    )
    if key is None or milliseconds is None or parse_time(milliseconds / 1000) is None:
        return Missed(location, "no key or no time ('time_ms')")
    metadata = as_object(document.get("metadata"))
    return _Event(line, key, document.get("value"), milliseconds, metadata)


def _add_event(run: _Run, event: _Event) -> str | None:
    """Add an event to a run. Return what is wrong with the event, or None."""
    key, value = event.key, event.value
    if key in ("run_start", "run_stop", "epoch_start", "epoch_stop"):
        return _add_interval_event(run, event)
    if key == "eval_accuracy":
        if parse_number(value) is None:
            return "eval_accuracy is not a number"
        run.evaluations.append(event)
    elif key == "tracked_stats" or key in _SPEED_UNITS:
        stats = as_object(value) if key == "tracked_stats" else {key: value}
        for name in sorted(_SPEED_UNITS.keys() & stats.keys()):
            if parse_number(stats[name]) is None:
                return f"{name} is not a number"
            run.speeds[name].append(event)
    else:
        run.values_by_key[key] = value
    return None


def _add_interval_event(run: _Run, event: _Event) -> str | None:
    if event.key == "run_start":
        if run.started:
            return f"second run_start: the one in line {run.started.line} has no run_stop"
        run.started = event
    elif event.key == "run_stop":
        if run.started is None or run.stopped:
            return "run_stop without a run_start"
        run.stopped = event
    elif event.key == "epoch_start":
        run.epoch = event
    else:
        if run.epoch is None:
            return "epoch_stop without an epoch_start"
        run.epochs.append((run.epoch, event))
        run.epoch = None
    return None


def _figures_of_run(run: _Run) -> Iterator[Entry | Missed]:
    title, about = _run_title(run), _describe_run(run)
    if run.started and run.stopped:
        status = run.stopped.metadata.get("status")
        yield Entry(
            title=title,
            where=f"lines {run.started.line} to {run.stopped.line}, run_start to run_stop",
            created=run.stopped.created,
            quantity="time to train",
            unit="s",
            value=run.stopped.seconds_since(run.started),
            about=about,
            failed=None if status == "success" else f"the run's status is {status}, not success",
        )
    elif run.started:
        yield Missed(f"line {run.started.line}", "no time to train: run_start has no run_stop")
    for evaluation in run.evaluations:
        yield Entry(
            title=title,
            where=f"line {evaluation.line}, eval_accuracy{_format_epoch_and_step(evaluation)}",
            created=evaluation.created,
            quantity="eval accuracy",
            unit="",
            value=float(evaluation.value),
            about=about,
        )
    for name, events in sorted(run.speeds.items()):
        values = [as_object(event.value).get(name, event.value) for event in events]
        yield _build_median_entry(
            events, name, f"{name} (median)", _SPEED_UNITS[name], values, title, about
        )
    if run.epochs:
        durations_s = [stop.seconds_since(start) for start, stop in run.epochs]
        events = [stop for _, stop in run.epochs]
        yield _build_median_entry(
            events, "epoch_stop", "time per epoch (median)", "s", durations_s, title, about
        )


def _build_median_entry(
    events: list[_Event],
    key: str,
    quantity: str,
    unit: str,
    raw_values: list[Any],
    title: str,
    about: dict[str, Any],
) -> Entry:
    """Return an entry with the median and the range of `raw_values`.

    - `events`: the log lines that gave the values, in order.
    - `key`: name of the values in the log, for the `where` of the entry.
    - `quantity`, `unit`, `title`, `about`: fields of the entry.
    """
    values = tuple(map(float, raw_values))
    return Entry(
        title=title,
        where=f"{len(events)} × {key}, lines {events[0].line} to {events[-1].line}",
        created=events[-1].created,
        quantity=quantity,
        unit=unit,
        value=median(values),
        low=min(values),
        high=max(values),
        values=values,
        about=about,
    )


def _format_epoch_and_step(event: _Event) -> str:
    positions = {name: parse_number(event.metadata.get(name)) for name in ("epoch_num", "step_num")}
    return "".join(f", {name} {value:g}" for name, value in positions.items() if value is not None)


def _run_title(run: _Run) -> str:
    names = {
        name: keep_nonempty_text(run.values_by_key.get(f"submission_{name}"))
        for name in _SUBMISSION_KEYS
    }
    words = [names["benchmark"], names["division"], names["org"] and f"submitted by {names['org']}"]
    return ", ".join([f"{TOOL} log", *(word for word in words if word)])


def _describe_run(run: _Run) -> dict[str, Any]:
    names = {
        name: run.values_by_key.get(f"submission_{name}") for name in ("benchmark", "platform")
    }
    frameworks = [run.values_by_key.get(name) for name in ("framework", "submission_framework")]
    framework = next(filter(None, map(keep_nonempty_text, frameworks)), None)
    return {
        **supported_workload_and_framework(
            {"workload": names["benchmark"], "framework": framework}
        ),
        "machine": keep_nonempty_text(names["platform"]),
        **{
            name: parse_positive_integer(run.values_by_key.get(key))
            for key, name in _COUNT_FIELDS.items()
        },
    }
