"""Logs of MLPerf Training: lines with `:::MLLOG {json}`, whatever a launcher put before them.

Of each run: the time to train, from `run_start` to `run_stop`; what every evaluation gave; and
throughput and the time of epochs, as the median over those that the log has.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from xfbench.results.foreign import Entry, File, Missed, count, mapping, moment, number, ours, text

TOOL = "MLPerf Training"
_MARK = b":::MLLOG"
_LONGEST = 2**20  # bytes of a line
_SPEEDS = {"throughput": "", "samples_per_sec": "samples/s", "samples_per_second": "samples/s"}
_OPENS = ("cache_clear", "init_start", "submission_benchmark", "run_start")
_SUBMISSION = ("benchmark", "division", "org")
_COUNTS = {
    "global_batch_size": "global_batch_size",
    "number_of_ranks": "ranks",
    "number_of_nodes": "nodes",
}


@dataclass(frozen=True)
class _Event:
    line: int
    key: str
    value: Any
    milliseconds: float  # since 1970
    metadata: dict[str, Any]

    @property
    def created(self) -> str:
        return str(moment(self.milliseconds / 1000))

    def since(self, other: _Event) -> float:
        """Seconds between two events."""
        return (self.milliseconds - other.milliseconds) / 1000


@dataclass
class _Run:
    """What has been read of one run; `said` are values by their keys, the last one of each."""

    said: dict[str, Any] = field(default_factory=dict)
    started: _Event | None = None
    stopped: _Event | None = None
    evaluations: list[_Event] = field(default_factory=list)
    speeds: dict[str, list[_Event]] = field(default_factory=lambda: defaultdict(list))
    epochs: list[tuple[_Event, _Event]] = field(default_factory=list)
    epoch: _Event | None = None


def recognised(file: File) -> bool:
    """By the mark that every line has."""
    return file.document is None and _MARK in file.content


def private(file: File) -> Iterable[str]:
    """Nobody: who submitted by name and address is not read, and hosts have no place in it."""
    return ()


def entries(file: File) -> Iterator[Entry | Missed]:
    """The figures of each run, and lines that are none of a log, or should not be there."""
    run = _Run()
    seen: set[bytes] = set()
    for at, line in enumerate(file.content.split(b"\n"), 1):
        _, mark, rest = line.partition(_MARK)
        if not mark or rest in seen:  # every rank may have printed it
            continue
        seen.add(rest)
        event = _event(at, rest)
        if isinstance(event, Missed):
            yield event
            continue
        if run.stopped and event.key in _OPENS:
            yield from _of_run(run)
            run = _Run()
        if why := _take(run, event):
            yield Missed(f"line {at}", why)
    yield from _of_run(run)


def _event(line: int, content: bytes) -> _Event | Missed:
    where = f"line {line}"
    if len(content) > _LONGEST:
        return Missed(where, "it is too long")
    try:
        document = mapping(json.loads(content))
    except (ValueError, RecursionError):
        return Missed(where, "what follows :::MLLOG is not JSON")
    key, milliseconds = text(document.get("key")), number(document.get("time_ms"))
    if key is None or milliseconds is None or moment(milliseconds / 1000) is None:
        return Missed(where, "it has no key or no time ('time_ms')")
    metadata = mapping(document.get("metadata"))
    return _Event(line, key, document.get("value"), milliseconds, metadata)


def _take(run: _Run, event: _Event) -> str | None:
    """Add an event to its run; what is wrong with it, in words."""
    key, value = event.key, event.value
    if key in ("run_start", "run_stop", "epoch_start", "epoch_stop"):
        return _interval(run, event)
    if key == "eval_accuracy":
        if number(value) is None:
            return "its eval_accuracy is no number"
        run.evaluations.append(event)
    elif key == "tracked_stats" or key in _SPEEDS:
        stats = mapping(value) if key == "tracked_stats" else {key: value}
        for name in sorted(_SPEEDS.keys() & stats.keys()):
            if number(stats[name]) is None:
                return f"its {name} is no number"
            run.speeds[name].append(event)
    else:
        run.said[key] = value
    return None


def _interval(run: _Run, event: _Event) -> str | None:
    if event.key == "run_start":
        if run.started:
            return f"run_start again: that in line {run.started.line} has no run_stop"
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


def _of_run(run: _Run) -> Iterator[Entry | Missed]:
    title, about = _title(run), _about(run)
    if run.started and run.stopped:
        status = run.stopped.metadata.get("status")
        yield Entry(
            title=title,
            where=f"lines {run.started.line} to {run.stopped.line}, run_start to run_stop",
            created=run.stopped.created,
            quantity="time to train",
            unit="s",
            value=run.stopped.since(run.started),
            about=about,
            failed=None if status == "success" else f"the run's status is {status}, not success",
        )
    elif run.started:
        yield Missed(f"line {run.started.line}", "run_start has no run_stop: no time to train")
    for one in run.evaluations:
        yield Entry(
            title=title,
            where=f"line {one.line}, eval_accuracy{_when(one)}",
            created=one.created,
            quantity="eval accuracy",
            unit="",
            value=float(one.value),
            about=about,
        )
    for name, events in sorted(run.speeds.items()):
        found = [mapping(one.value).get(name, one.value) for one in events]
        yield _over(events, name, f"{name} (median)", _SPEEDS[name], found, title, about)
    if run.epochs:
        lasted = [stop.since(start) for start, stop in run.epochs]
        events = [stop for _, stop in run.epochs]
        yield _over(events, "epoch_stop", "time per epoch (median)", "s", lasted, title, about)


def _over(
    events: list[_Event],
    key: str,
    quantity: str,
    unit: str,
    found: list[Any],
    title: str,
    about: dict[str, Any],
) -> Entry:
    """The median of what several events say."""
    values = tuple(map(float, found))
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


def _when(event: _Event) -> str:
    known = {name: number(event.metadata.get(name)) for name in ("epoch_num", "step_num")}
    return "".join(f", {name} {value:g}" for name, value in known.items() if value is not None)


def _title(run: _Run) -> str:
    said = {name: text(run.said.get(f"submission_{name}")) for name in _SUBMISSION}
    words = [said["benchmark"], said["division"], said["org"] and f"submitted by {said['org']}"]
    return ", ".join([f"{TOOL} log", *(word for word in words if word)])


def _about(run: _Run) -> dict[str, Any]:
    said = {name: run.said.get(f"submission_{name}") for name in ("benchmark", "platform")}
    frameworks = [run.said.get(name) for name in ("framework", "submission_framework")]
    framework = next(filter(None, map(text, frameworks)), None)
    return {
        **ours({"workload": said["benchmark"], "framework": framework}),
        "machine": text(said["platform"]),
        **{name: count(run.said.get(key)) for key, name in _COUNTS.items()},
    }
