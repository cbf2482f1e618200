"""Repetition of launches that ran while the vCPUs were on distant cores.

The host of a virtual machine may move vCPUs to distant cores. A launch on two vCPUs may then train
at half the speed (docs/findings.md#two-modes). This speed says nothing about the setting.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from xfbench.host import core_latency
from xfbench.model.record import Record
from xfbench.worker.core_latency import has_far_core_latency, near_cores_latency_seconds

T = TypeVar("T", bound=Hashable)
L = TypeVar("L")

MAX_REPEATS = 5  # maximum number of repeats of one launch


def launch_block(
    settings: Iterable[T], launch: Callable[[T], L | None], should_repeat: Callable[[L], bool]
) -> dict[T, L]:
    """Launch each setting, repeat launches where needed, and return the last launch by setting.

    - `launch`: launches a setting and returns the launch. Returns None if too little of the budget
      remains for a launch.
    - `should_repeat`: returns whether a launch must be repeated.

    A launch is repeated at most MAX_REPEATS times.
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
    """A monitor that collects core-to-core latencies and decides which launches to repeat.

    vCPUs may stay on distant cores for a long time. The number of repeats is therefore limited to
    half of all launches, or to MAX_REPEATS if this is more.

    `latencies_s` are the round-trip times between cores, in seconds. At first, they are those of
    earlier searches.
    """

    def __init__(self, latencies_s: Sequence[float] = ()) -> None:
        self.latencies_s = [*latencies_s]
        self.launches = self.repeats = 0

    @property
    def near_core_latency_s(self) -> float | None:
        """The latency between near cores, in seconds; None if no latency was measured."""
        return near_cores_latency_seconds(self.latencies_s)

    def count_launch_and_add_latencies(self, record: Record) -> None:
        """Count a launch and add the core-to-core latencies of its record."""
        self.launches += 1
        self.latencies_s += core_latency.latencies_of_record(record)

    def decide_and_count_repeat(self, record: Record) -> bool:
        """Return whether to repeat the launch of this record. If so, count the repeat."""
        if not has_distant_cores(record, self.near_core_latency_s) or self.repeats >= max(
            MAX_REPEATS, self.launches // 2
        ):
            return False
        self.repeats += 1
        return True


def has_distant_cores(record: Record, near_core_latency_s: float | None) -> bool:
    """Return whether the cores of a launch with several threads or ranks were far apart.

    `near_core_latency_s` is the latency between near cores in seconds (None: unknown). Return
    False for a failed launch, because distant cores do not make a launch fail. Return False also
    for a launch with one thread and one rank.
    """
    request = record.request
    if request is None or record.measurement is None:
        return False
    is_parallel = request.threads * request.ranks > 1
    return is_parallel and has_far_core_latency(
        core_latency.latencies_of_record(record), near_core_latency_s
    )
