"""Launches that are done again, since the system had moved the cores apart meanwhile.

One that had them apart says what work on several cores is worth there, and nothing of the setting:
on two virtual cores it may be half as fast (docs/findings.md#two-modes).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from xfbench import handover
from xfbench.record import Record

T = TypeVar("T", bound=Hashable)
L = TypeVar("L")

AGAIN = 5  # times at most, as the cores may stay where they are


def block(
    settings: Iterable[T], launch: Callable[[T], L | None], spoiled: Callable[[L], bool]
) -> dict[T, L]:
    """A launch of each, and again of those that are spoiled when all had theirs; the last counts.

    `launch` gives None where there is none any more.
    """
    found: dict[T, L] = {}
    wanted = list(settings)
    for _ in range(1 + AGAIN):
        for one in wanted:
            if (done := launch(one)) is not None:
                found[one] = done
        wanted = [one for one in wanted if one in found and spoiled(found[one])]
    return found


def nearest(records: Iterable[Record]) -> float | None:
    """Seconds that the cores took to reach each other when they were nearest; None: not known."""
    return min((one for record in records for one in _handovers(record)), default=None)


def apart(record: Record, nearest: float | None) -> bool:
    """Whether a launch of more than one thread had its cores farther apart than that."""
    request = record.request
    several = request is not None and request.threads * request.ranks > 1
    return several and handover.apart(_handovers(record), nearest)


def _handovers(record: Record) -> Sequence[float]:
    return record.conditions.handover_seconds if record.conditions else ()
