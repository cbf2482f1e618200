"""Logs of MLPerf Training, with any prefix that a launcher adds to their lines.

- Version 0.5: `:::MLPv0.5.0 BENCHMARK SECONDS (FILE:LINE) KEY: VALUE`
- Version 0.6: `:::MLL SECONDS KEY: {"value": …, "metadata": …}`
- Version 0.7 and later: `:::MLLOG {json}`, with `time_ms` or `time_s`

Each run gives the time to train (`run_start` to `run_stop`) and the value of every evaluation.
Throughput and epoch time are medians over the logged values. If several ranks log a run, it begins
with the first run_start and ends with the last run_stop.
"""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median
from typing import Any

from xfbench.base import strict_json
from xfbench.base.foreign_names import collect_private_names
from xfbench.exchange.formats import (
    Entry,
    File,
    Missed,
    as_object,
    keep_nonempty_text,
    parse_number,
    parse_positive_integer,
    parse_time,
    quote_value,
    supported_workload_and_framework,
)

TOOL = "MLPerf Training"
_MARK = re.compile(r":::(ML[A-Za-z0-9._]*)")
_MLL = re.compile(r"\s+(?P<time>\d{1,20}(?:\.\d{1,20})?)\s+(?P<key>[\w.-]+):\s*")
_MLP = re.compile(
    r"\s+(?P<benchmark>[\w.-]+)\s+(?P<time>\d{1,20}(?:\.\d{1,20})?)\s+\([^()]*:\d+\)"
    r"\s+(?P<key>[\w.-]+)(?::(?P<value>.*))?$"
)
_SPACES = re.compile(r"\s*")
_DECODER = json.JSONDecoder(object_pairs_hook=strict_json.unique_object)
_MAX_LINE_CHARACTERS = 2**20
_MAX_EVENTS = 300_000
_MAX_MARKS = 1000  # of a line: several ranks may write to the same line
_SPEED_UNITS = {"throughput": "", "samples_per_sec": "samples/s", "samples_per_second": "samples/s"}
_EVALUATION_KEYS = ("eval_accuracy", "eval_error", "eval_loss")
_OPENING_KEYS = ("cache_clear", "run_clear_caches", "init_start", "submission_benchmark")
_SUBMISSION_KEYS = ("benchmark", "division", "org")
_FIGURE_KEYS = (
    *("run_start", "run_stop", "epoch_start", "epoch_stop", "tracked_stats"),
    *(*_EVALUATION_KEYS, *_SPEED_UNITS),
)
_KEY_OF_LINE = re.compile(r'"key": *"[\w.-]+"|\s[\d.]+\s+[\w.-]+:\s*\{|\([^()]*:\d+\)\s+[\w.-]+')
_METRIC_KEYS = (
    *("metric", "metric_name", "metric_type", "name", "type", "kind", "task", "dataset", "split"),
    "subset",
)
_POSITION_KEYS = ("epoch", "epoch_num", "step", "step_num", "iteration", "samples_count")
_COUNT_FIELDS = {
    "global_batch_size": "global_batch_size",
    "number_of_ranks": "ranks",
    "number_of_nodes": "nodes",
}
_SECONDS_OF_2017, _SECONDS_OF_2100 = 1_483_228_800, 4_102_444_800  # MLPerf began in 2018


@dataclass(frozen=True)
class _Event:
    """An event of the log with its line number, key, value, time and metadata."""

    line: int
    key: str
    value: Any
    seconds: Decimal  # since 1970
    metadata: dict[str, Any]

    @property
    def created(self) -> str:
        return str(parse_time(float(self.seconds)))

    def seconds_since(self, earlier: _Event) -> float:
        """Return the seconds from the event `earlier` to this event."""
        return float(self.seconds - earlier.seconds)

    @property
    def positions(self) -> dict[str, float]:
        """Where in the training the event is, such as its epoch."""
        numbers = {name: parse_number(self.metadata.get(name)) for name in _POSITION_KEYS}
        return {name: number for name, number in numbers.items() if number is not None}


@dataclass(frozen=True)
class _Evaluation:
    """A score of an evaluation. `metric` tells the scores of a log apart; it may be empty."""

    event: _Event
    metric: str
    value: float


@dataclass
class _Run:
    """The events and values of one run.

    - `values_by_key`: the last value of every key that the other fields do not cover.
    - `starts`, `stops`: the events run_start and run_stop. Several ranks have several.
    - `has_trained`: whether an epoch, a throughput or an evaluation is known.
    - `evaluations`: the scores of all evaluations.
    - `known_scores`: the same with their places, to find those that other ranks repeat.
    - `speeds`: the events with a throughput, by the key of the throughput.
    - `epochs`: the events epoch_start and epoch_stop of each completed epoch.
    - `open_epochs`: the events epoch_start without an epoch_stop, by `epoch_num`.
    """

    values_by_key: dict[str, Any] = field(default_factory=dict)
    starts: list[_Event] = field(default_factory=list)
    stops: list[_Event] = field(default_factory=list)
    evaluations: list[_Evaluation] = field(default_factory=list)
    known_scores: set[tuple[Any, ...]] = field(default_factory=set)
    speeds: dict[str, list[_Event]] = field(default_factory=lambda: defaultdict(list))
    epochs: list[tuple[_Event, _Event]] = field(default_factory=list)
    open_epochs: dict[float | None, _Event] = field(default_factory=dict)

    @property
    def has_trained(self) -> bool:
        return bool(self.evaluations or self.speeds or self.epochs)


def is_recognised(file: File) -> bool:
    """Return whether the file contains a mark of MLPerf, such as `:::MLLOG`, and is not JSON."""
    return file.document is None and _MARK.search(_decode(file.content)) is not None


def host_and_user_names(file: File) -> Iterable[str]:
    """Return the names of hosts and persons in the values and metadata of all events."""
    events = (event for event in _read_events(file) if isinstance(event, _Event))
    return collect_private_names([[{event.key: event.value}, event.metadata] for event in events])


def entries(file: File) -> Iterator[Entry | Missed]:
    """Yield the figures of each run, and each line that is invalid or misplaced."""
    run = _Run()
    keys: dict[str, None] = {}
    figure_count = 0
    for event in _read_events(file):
        if isinstance(event, Missed):
            yield event
            continue
        keys[event.key] = None
        if run.stops and event.key in (*_OPENING_KEYS, "run_start"):
            for entry in _figures_of_run(run):
                figure_count += isinstance(entry, Entry)
                yield entry
            run = _Run()
        yield from _add_event(run, event)
    for entry in _figures_of_run(run):
        figure_count += isinstance(entry, Entry)
        yield entry
    if not figure_count:
        names = ", ".join(keys) or "none"
        yield Missed("the log", f"no figure; keys of the lines read: {names}", fault=False)


def _decode(content: bytes) -> str:
    """Return the text of a log. Bytes that are not UTF-8 (or UTF-16 with its mark) are replaced."""
    is_utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    return content.decode("utf-16" if is_utf16 else "utf-8", errors="replace")


def _read_events(file: File) -> Iterator[_Event | Missed]:
    """Yield the events of a log, and the lines that are invalid. Ranks may repeat an event."""
    known_events: set[str] = set()
    for number, full_line in enumerate(io.StringIO(_decode(file.content), newline="\n"), 1):
        line = full_line.removesuffix("\n")
        mark = _MARK.search(line)
        if mark and len(line) > _MAX_LINE_CHARACTERS:
            yield Missed(f"line {number}", "the line is too long")
            continue
        if _is_event_without_mark(line[: mark.start()] if mark else line):
            reason = "the line has lost its beginning (':::MLLOG')"
            yield Missed(f"line {number}", reason, fault=_may_have_figure(line))
        if line.count(":::ML") > _MAX_MARKS:
            yield Missed(f"line {number}", "the line has too many events")
            continue
        while mark:
            event, position = _parse_event(number, mark[1], line, mark.end())
            text = line[mark.start() : position].rstrip()
            mark = _MARK.search(line, position)
            if text not in known_events:
                known_events.add(text)
                yield event
        if len(known_events) > _MAX_EVENTS:
            raise ValueError(f"it has more than {_MAX_EVENTS:,} events")


def _is_event_without_mark(text: str) -> bool:
    """Return whether a text is the rest of a line of MLPerf that has lost its beginning."""
    has_clock = any(f'"{name}":' in text for name in ("time_ms", "time_s", "event_type"))
    return ('"key":' in text and has_clock) or ('"value":' in text and '"metadata": {' in text)


def _may_have_figure(text: str) -> bool:
    """Return whether the text of an unreadable event may have a figure: its key decides."""
    return not _KEY_OF_LINE.search(text) or any(key in text for key in _FIGURE_KEYS)


def _parse_event(line: int, mark: str, text: str, start: int) -> tuple[_Event | Missed, int]:
    """Return the event whose mark ends at `start` in the line `text`, and where the event ends.

    If the event is invalid, a Missed is returned instead.
    """
    try:
        if mark == "MLLOG":
            return _parse_mllog(text, line, start)
        if mark == "MLL":
            return _parse_mll(text, line, start)
        if mark.startswith("MLPv"):
            return _parse_mlp(text, line, start)
        raise ValueError(f"':::{mark}' is an unknown form of MLPerf log")
    except RecursionError:
        problem = f"the text after :::{mark} is not JSON"
    except ValueError as error:
        problem = str(error)
    next_mark = _MARK.search(text, start)
    end = next_mark.start() if next_mark else len(text)
    return Missed(f"line {line}", problem, fault=_may_have_figure(text[start:end])), end


def _parse_object(text: str, start: int, mark: str) -> tuple[dict[str, Any], int]:
    """Return the JSON object at `start`, and where it ends. Raises ValueError if there is none."""
    spaces = _SPACES.match(text, start)
    begin = spaces.end() if spaces else start
    try:
        document, end = _DECODER.raw_decode(text, begin)
    except strict_json.DuplicateKeyError:
        raise
    except ValueError:
        raise ValueError(f"the text after :::{mark} is not JSON") from None
    if not isinstance(document, dict):
        raise ValueError(f"the text after :::{mark} is not a JSON object")
    return document, end


def _parse_mllog(text: str, line: int, start: int) -> tuple[_Event, int]:
    document, end = _parse_object(text, start, "MLLOG")
    key = keep_nonempty_text(document.get("key"))
    clock = next((name for name in ("time_ms", "time_s") if name in document), None)
    if key is None or clock is None:
        names = ", ".join(map(str, document))
        raise ValueError(f"no key or no time ('time_ms' or 'time_s'); the line has {names}")
    number = parse_number(document[clock])
    if number is None:
        raise ValueError(f"no key or no time: {clock} is not a number")
    if clock == "time_ms" and _SECONDS_OF_2017 <= number < _SECONDS_OF_2100:
        raise ValueError(f"time_ms is in seconds, not in milliseconds: {number:.10g}")
    seconds = Decimal(repr(number)) / (1000 if clock == "time_ms" else 1)
    return _make_event(
        line, key, document.get("value"), seconds, as_object(document.get("metadata"))
    ), end


def _parse_mll(text: str, line: int, start: int) -> tuple[_Event, int]:
    match = _MLL.match(text, start)
    if not match:
        raise ValueError("the text after :::MLL is not 'SECONDS KEY: {…}'")
    document, end = _parse_object(text, match.end(), "MLL")
    metadata = as_object(document.get("metadata"))
    seconds = Decimal(match["time"])
    return _make_event(line, match["key"], document.get("value"), seconds, metadata), end


def _parse_mlp(text: str, line: int, start: int) -> tuple[_Event, int]:
    next_mark = _MARK.search(text, start)
    end = next_mark.start() if next_mark else len(text)
    match = _MLP.match(text[:end].rstrip(), start)
    if not match:
        raise ValueError("the text after :::MLPv… is not 'BENCHMARK SECONDS (FILE:LINE) KEY'")
    try:
        text_of_value = (match["value"] or "").strip()
        value = strict_json.parse(text_of_value) if text_of_value else None
    except strict_json.DuplicateKeyError:
        raise
    except ValueError:
        value = text_of_value
    metadata = {"submission_benchmark": match["benchmark"]}
    if match["key"] == "run_stop":
        words = {"True": "success", "False": "failure"}
        metadata["status"] = words.get(str(as_object(value).get("success")), "not stated")
    return _make_event(line, match["key"], value, Decimal(match["time"]), metadata), end


def _make_event(
    line: int, key: str, value: Any, seconds: Decimal, metadata: dict[str, Any]
) -> _Event:
    """Return an event. Raises ValueError if its time is impossible."""
    if parse_time(float(seconds)) is None:
        raise ValueError("no key or no time: the time is impossible")
    return _Event(line, key, value, seconds, metadata)


def _add_event(run: _Run, event: _Event) -> Iterator[Missed]:
    """Add an event to a run. Yield what is wrong with the event."""
    key, value = event.key, event.value
    location = f"line {event.line}"
    if benchmark := keep_nonempty_text(event.metadata.get("submission_benchmark")):
        run.values_by_key.setdefault("submission_benchmark", benchmark)
    if key in ("run_start", "run_stop"):
        yield from _add_start_or_stop(run, event)
    elif key == "epoch_start":
        yield from _start_epoch(run, event)
    elif key == "epoch_stop":
        yield from _stop_epoch(run, event)
    elif key in _EVALUATION_KEYS:
        try:
            evaluations = _read_scores(event)
        except ValueError as error:
            yield Missed(location, str(error))
        else:
            run.evaluations += [e for e in evaluations if not _is_repeated(e, run.known_scores)]
    elif key == "tracked_stats" or key in _SPEED_UNITS:
        stats = as_object(value) if key == "tracked_stats" else {key: value}
        for name in sorted(_SPEED_UNITS.keys() & stats.keys()):
            if parse_number(stats[name]) is None:
                yield Missed(location, f"{name} is not a number: {quote_value(stats[name])}")
            else:
                run.speeds[name].append(event)
    else:
        run.values_by_key[key] = value


def _read_scores(event: _Event) -> list[_Evaluation]:
    """Return the scores of an evaluation. Raises ValueError if one is not a number.

    The value is a number, or an object: `{"epoch": …, "value": …}` (version 0.5), or a number for
    each metric.
    """
    value = event.value
    if isinstance(value, dict):
        positions = {name: value[name] for name in _POSITION_KEYS if name in value}
        event = _Event(event.line, event.key, value, event.seconds, {**event.metadata, **positions})
        scores = {name: score for name, score in value.items() if name not in positions}
        if isinstance(scores.get("value"), dict):
            scores |= scores.pop("value")
    else:
        scores = {"value": value}
    metrics = [
        text for name in _METRIC_KEYS if (text := keep_nonempty_text(event.metadata.get(name)))
    ]
    numbers = {name: parse_number(score) for name, score in scores.items()}
    if not numbers or None in numbers.values():
        bad_values = ", ".join(
            f"{quote_value(scores[name])}{'' if name == 'value' else f' ({name})'}"
            for name, number in numbers.items()
            if number is None
        )
        raise ValueError(f"{event.key} is not a number: {bad_values or 'it has no value'}")
    return [
        _Evaluation(event, " ".join([*metrics, *([name] if name != "value" else [])]), number)
        for name, number in numbers.items()
        if number is not None
    ]


def _is_repeated(evaluation: _Evaluation, known_scores: set[tuple[Any, ...]]) -> bool:
    """Return whether another rank logged the same score of the same place in the training.

    The score is added to `known_scores`.
    """
    event = evaluation.event
    try:
        metadata = json.dumps(event.metadata, sort_keys=True)
    except RecursionError:
        return False
    score = (evaluation.metric, evaluation.value, event.key, metadata)
    is_known = bool(event.positions) and score in known_scores
    known_scores.add(score)
    return is_known


def _add_start_or_stop(run: _Run, event: _Event) -> Iterator[Missed]:
    location = f"line {event.line}"
    if event.key == "run_start":
        run.starts.append(event)
        if len(run.starts) > 1 and run.has_trained:
            line = run.starts[0].line
            yield Missed(location, f"second run_start: the one in line {line} has no run_stop")
            run.starts, run.open_epochs = [event], {}
    elif not run.starts:
        yield Missed(location, "run_stop without a run_start")
    else:
        run.stops.append(event)


def _start_epoch(run: _Run, event: _Event) -> Iterator[Missed]:
    number = event.positions.get("epoch_num")
    earlier = run.open_epochs.get(number)
    if earlier and len(run.starts) < 2:
        yield Missed(
            f"line {event.line}",
            f"second epoch_start: the one in line {earlier.line} has no epoch_stop",
        )
    if not earlier or len(run.starts) < 2:
        run.open_epochs[number] = event


def _stop_epoch(run: _Run, event: _Event) -> Iterator[Missed]:
    """Complete an epoch. A stop with another number than the start is not the end of one epoch."""
    number = event.positions.get("epoch_num")
    location = f"line {event.line}"
    if number is not None and number in run.open_epochs:
        start = run.open_epochs.pop(number)
        counts = {parse_number(each.metadata.get("epoch_count")) for each in (start, event)}
        if counts <= {None, 1}:
            run.epochs.append((start, event))
        else:
            reason = "no time per epoch: epoch_count says that it is not one epoch"
            yield Missed(location, reason, fault=False)
    elif run.open_epochs:
        _, start = run.open_epochs.popitem()
        started = start.positions.get("epoch_num")
        numbers = ("without a number" if n is None else f"{n:.10g}" for n in (started, number))
        reason = "no time per epoch: from epoch_num {} to {} is not one epoch".format(*numbers)
        yield Missed(location, reason, fault=False)
    elif len(run.starts) < 2:
        yield Missed(location, "epoch_stop without an epoch_start")


def _figures_of_run(run: _Run) -> Iterator[Entry | Missed]:
    title, about = _run_title(run), _describe_run(run)
    yield from _time_to_train(run, title, about)
    for evaluation in run.evaluations:
        event = evaluation.event
        metric = f" ({evaluation.metric})" if evaluation.metric else ""
        yield Entry(
            title=title,
            where=f"line {event.line}, {event.key}{metric}{_format_positions(event)}",
            created=event.created,
            quantity=event.key.replace("_", " ") + metric,
            unit="",
            value=evaluation.value,
            about=about,
        )
    for name, events in sorted(run.speeds.items()):
        values = [as_object(event.value).get(name, event.value) for event in events]
        yield _build_median_entry(
            events, name, f"{name} (median)", _SPEED_UNITS[name], values, title, about
        )
    if not run.epochs:
        return
    events = [stop for _, stop in run.epochs]
    # Without as many stops, a second start may be a new attempt after a crash.
    restart = run.starts[-1].line if 1 < len(run.starts) != len(run.stops) else 0
    numbers = [event.positions["epoch_num"] for event in events]
    # Some epochs may have lost a line. Numbers of samples or steps skip far more.
    if max(numbers) > 2 * len(numbers) or any(number % 1 for number in numbers):
        reason = "no time per epoch: the values of epoch_num do not count epochs"
        yield Missed(f"line {events[0].line}", reason, fault=False)
    elif any(start.line < restart < stop.line for start, stop in run.epochs):
        yield Missed(f"line {restart}", "no time per epoch: run_start lies within an epoch")
    elif any(not start.seconds for start, _ in run.epochs):
        yield Missed(f"line {events[0].line}", "no time per epoch: an epoch_start has the time 0")
    else:
        durations_s = [stop.seconds_since(start) for start, stop in run.epochs]
        yield _build_median_entry(
            events, "epoch_stop", "time per epoch (median)", "s", durations_s, title, about
        )


def _time_to_train(run: _Run, title: str, about: dict[str, Any]) -> Iterator[Entry | Missed]:
    """Yield the time to train, or why there is none."""
    if not run.starts:
        return
    start = min(run.starts, key=lambda event: event.seconds)
    location = f"line {run.starts[-1].line}"
    if not run.stops:
        yield Missed(location, "no time to train: run_start has no run_stop")
    elif len(run.starts) != len(run.stops):
        counts = f"{len(run.starts)} run_start and {len(run.stops)} run_stop"
        word = "run_start" if len(run.starts) > 1 else "run_stop"
        lines = f"lines {run.starts[0].line} to {run.stops[-1].line}"
        yield Missed(location, f"second {word}, no time to train: {counts} in {lines}")
    elif not start.seconds:
        yield Missed(location, "no time to train: run_start has the time 0")
    else:
        stop = max(run.stops, key=lambda event: event.seconds)
        statuses = [event.metadata.get("status") for event in run.stops]
        status = next((status for status in statuses if status != "success"), None)
        has_failed = any(status != "success" for status in statuses)
        yield Entry(
            title=title,
            where=f"lines {start.line} to {stop.line}, run_start to run_stop",
            created=stop.created,
            quantity="time to train",
            unit="s",
            value=stop.seconds_since(start),
            about=about,
            failed=f"the run's status is {status or 'not stated'}, not success"
            if has_failed
            else None,
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


def _format_positions(event: _Event) -> str:
    return "".join(f", {name} {value:.10g}" for name, value in event.positions.items())


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
