"""Estimates of the duration of launches, from earlier launches."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xfbench.model import capabilities
from xfbench.model.record import Record
from xfbench.model.request import Cell, Request

# Time of a launch without training. Frameworks took 3 to 9 s as a median on two quiet cores.
START_SECONDS = 5.0


@dataclass(frozen=True)
class Estimate:
    """The expected duration of launches.

    - `seconds`: total duration of the launches that have an estimate.
    - `known`: number of launches that have an estimate.
    - `unknown`: number of launches without an estimate.
    - `unknown_seconds`: the least duration of these, if they train for a number of seconds. Each
      start is taken as `START_SECONDS`.
    """

    seconds: float
    known: int
    unknown: int
    unknown_seconds: float = 0.0

    def describe(self) -> str:
        """Return the estimate in words."""
        if not self.known:
            return "unknown"
        duration = f"{self.seconds / 60:.0f} min" if self.seconds >= 90 else f"{self.seconds:.0f} s"
        more = f", plus {self.unknown} launches of unknown duration" if self.unknown else ""
        return f"about {duration} for {self.known} launches{more}"


def estimate_duration(requests: Sequence[Request], records: Iterable[Record]) -> Estimate:
    """Estimate the duration of the requested launches from earlier records.

    The estimate for a launch is the median duration of the ok records of the same cell. If this
    cell has none, the estimate is the median over all similar cells. Similar cells have the same
    framework, workload, device, precision, steps, epochs, warm-up and minimum duration. If there is
    none either, the time of other numbers of steps is scaled, with the time per image of launches
    of the same framework, workload, device and precision.

    Launches that the adapter does not support are ignored.
    """
    seconds_by_cell: dict[Cell, list[float]] = defaultdict(list)
    seconds_by_work: dict[tuple[object, ...], list[float]] = defaultdict(list)
    speeds: dict[tuple[object, ...], list[_Speed]] = defaultdict(list)
    for record in records:
        conditions = record.conditions
        if (
            record.request
            and conditions
            and conditions.seconds is not None
            and record.status == "ok"
        ):
            seconds_by_cell[record.request.cell()].append(conditions.seconds)
            seconds_by_work[_work_key(record.request)].append(conditions.seconds)
            if record.measurement and record.request.steps:
                speeds[_network_key(record.request)].append(_read_speed(record))
    seconds, known_count, unknown_seconds = 0.0, 0, 0.0
    possible = [request for request in requests if not capabilities.refusal_reason(request)]
    for request in possible:
        durations = (
            seconds_by_cell.get(request.cell())
            or seconds_by_work.get(_work_key(request))
            or [each.scale_to(request) for each in speeds[_network_key(request)] if request.steps]
        )
        if durations:
            seconds += statistics.median(durations)
            known_count += 1
        else:
            training_seconds = (request.min_seconds or 0.0) + (request.min_warmup_seconds or 0.0)
            unknown_seconds += training_seconds + START_SECONDS if training_seconds else 0.0
    return Estimate(seconds, known_count, len(possible) - known_count, unknown_seconds)


@dataclass(frozen=True)
class _Speed:
    """What a launch took: the time outside of its training loop, and the time for each image."""

    start_seconds: float
    seconds_per_image: float

    def scale_to(self, request: Request) -> float:
        step_seconds = self.seconds_per_image * request.batch_size_per_rank
        timed = max((request.steps or 0) * step_seconds, request.min_seconds or 0.0)
        warmup = max((request.warmup + 1) * step_seconds, request.min_warmup_seconds or 0.0)
        return self.start_seconds + warmup + timed


def _read_speed(record: Record) -> _Speed:
    assert record.request and record.measurement and record.conditions
    measurement = record.measurement
    return _Speed(
        max(0.0, (record.conditions.seconds or 0.0) - measurement.wall_seconds),
        statistics.median(measurement.step_seconds) / record.request.batch_size_per_rank,
    )


def _network_key(request: Request) -> tuple[object, ...]:
    return request.framework, request.workload, request.device, request.precision


def _work_key(request: Request) -> tuple[object, ...]:
    amount = request.steps, request.epochs, request.warmup, request.min_seconds
    return *_network_key(request), *amount
