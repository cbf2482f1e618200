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
    framework, workload, device, precision, steps, epochs, warm-up and minimum duration.

    Launches that the adapter does not support are ignored.
    """
    seconds_by_cell: dict[Cell, list[float]] = defaultdict(list)
    seconds_by_work: dict[tuple[object, ...], list[float]] = defaultdict(list)
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
    seconds, known_count, unknown_seconds = 0.0, 0, 0.0
    possible = [request for request in requests if not capabilities.refusal_reason(request)]
    for request in possible:
        durations = seconds_by_cell.get(request.cell()) or seconds_by_work.get(_work_key(request))
        if durations:
            seconds += statistics.median(durations)
            known_count += 1
        else:
            training_seconds = (request.min_seconds or 0.0) + (request.min_warmup_seconds or 0.0)
            unknown_seconds += training_seconds + START_SECONDS if training_seconds else 0.0
    return Estimate(seconds, known_count, len(possible) - known_count, unknown_seconds)


def _work_key(request: Request) -> tuple[object, ...]:
    amount = request.steps, request.epochs, request.warmup, request.min_seconds
    return request.framework, request.workload, request.device, request.precision, *amount
