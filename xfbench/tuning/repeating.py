"""Launches that are done again, since the system had moved the cores apart meanwhile.

One that had them apart says what work on several cores is worth there, and nothing of the setting:
on two virtual cores it may be half as fast (docs/findings.md#two-modes).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from xfbench.host import handover
from xfbench.model.record import Record
from xfbench.worker import distance

T = TypeVar("T", bound=Hashable)
L = TypeVar("L")

MAX_REPEATS = 5  # times at most


def launch_block(
    settings: Iterable[T], launch: Callable[[T], L | None], should_repeat: Callable[[L], bool]
) -> dict[T, L]:
    """A launch of each, and again of those that are spoiled when all had theirs; the last counts.

    `launch` gives None where there is none any more.
    """
    last_launches: dict[T, L] = {}
    pending = list(settings)
    for _ in range(1 + MAX_REPEATS):
        for setting in pending:
            if (launched_setting := launch(setting)) is not None:
                last_launches[setting] = launched_setting
        pending = [
            setting
            for setting in pending
            if setting in last_launches and should_repeat(last_launches[setting])
        ]
    return last_launches


class CoreMonitor:
    """How near they lay in the launches of a search, and which of these are done again.

    As many as there are others, at most: cores may stay where they are. `latencies_s`: seconds
    that a word took from one to the other and back, before.
    """

    def __init__(self, latencies_s: Sequence[float] = ()) -> None:
        self.latencies_s = [*latencies_s]
        self.launches = self.repeats = 0

    @property
    def nearest_s(self) -> float | None:
        """Seconds that it takes where they are near."""
        return distance.nearest_seconds(self.latencies_s)

    def add_record(self, record: Record) -> None:
        """A launch that was done."""
        self.launches += 1
        self.latencies_s += handover.record_latencies(record)

    def should_repeat(self, record: Record) -> bool:
        """Whether a launch is to be done again, which then counts as one that will be."""
        if not has_distant_cores(record, self.nearest_s) or self.repeats >= max(
            MAX_REPEATS, self.launches // 2
        ):
            return False
        self.repeats += 1
        return True


def has_distant_cores(record: Record, nearest_s: float | None) -> bool:
    """Whether a launch of more than one thread had its cores farther apart than that.

    Not one that measured nothing, which would fail as well with its cores near.
    """
    request = record.request
    if request is None or record.measurement is None:
        return False
    is_parallel = request.threads * request.ranks > 1
    return is_parallel and distance.is_far_apart(handover.record_latencies(record), nearest_s)
