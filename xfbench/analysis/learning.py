"""Training time until a target is reached, and the learning speed-up of more ranks.

The target is a test loss or a test accuracy that is fixed before the runs, not one that the runs
chose. T(n) is the training time, in seconds, that n ranks need to reach the target loss. The
learning speed-up of n ranks is T(1) / T(n). This definition is xfbench's own. The parallel speed-up
compares images per second instead.

A run that ends before the target, or diverges, is not left out: its time is censored
(`censored.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from xfbench import pairwise
from xfbench.analysis.censored import censored_median, median_bounds
from xfbench.model.record import Epoch, Record
from xfbench.statistics import Block, Interval, next_block
from xfbench.workloads import WorkloadError, workloads

_MIN_LOSS = 1e-9  # a loss of 0 has no logarithm


@dataclass(frozen=True)
class TimeToTarget:
    """When one run reached its target.

    - `seconds`: seconds of training until the target, interpolated between the evaluations before
      and after. If the earlier evaluation has no result, the end of the later epoch. If the run
      missed the target, the end of the run; infinite if it diverged.
    - `earliest`: the target was not reached before. It is `seconds` if `seconds` is interpolated.
    - `is_reached`: whether the run reached the target.
    """

    seconds: float
    earliest: float
    is_reached: bool

    @property
    def bounds(self) -> tuple[float, float]:
        """Return between which times the target is reached. They may be infinite."""
        return self.earliest, self.seconds if self.is_reached else math.inf


@dataclass(frozen=True)
class RunsToTarget:
    """The times to a target of all runs of a cell.

    `times`: the time of each run, by block.
    """

    times: Mapping[Block, TimeToTarget]

    @property
    def reached(self) -> int:
        """Return the number of runs that reached the target."""
        return sum(time.is_reached for time in self.times.values())

    @property
    def share(self) -> str:
        """Return how many runs reached the target, such as "4 of 5 runs"."""
        count = len(self.times)
        return f"{self.reached} of {count} run{'' if count == 1 else 's'}"

    @property
    def median_seconds(self) -> float | None:
        """Return the median time, or None if it is not known (see `censored_median`)."""
        # Runs that end early, measured in seconds, have not reached the target earlier.
        return censored_median(
            [
                (time.seconds if time.is_reached else math.inf, time.is_reached)
                for time in self.times.values()
            ]
        )


def default_target_loss(workload: str) -> float | None:
    """Return `Workload.target_loss` of the workload with this name, or None if it has none."""
    try:
        known_workload = workloads().get(workload)
    except WorkloadError:
        return None
    return known_workload.target_loss if known_workload else None


def has_diverged(record: Record) -> bool:
    """Return whether the launch did all its steps but had a loss that is not finite."""
    measurement = record.measurement
    return record.status == "invalid" and measurement is not None and None in measurement.losses


def is_learning_run(record: Record) -> bool:
    """Return whether the launch was evaluated after its epochs, or diverged in its epochs.

    Other launches that are not ok say nothing about learning.
    """
    if has_diverged(record):
        return record.request is not None and record.request.epochs is not None
    return record.status == "ok" and bool(record.learning)


def time_to_test_loss(record: Record, target_loss: float) -> TimeToTarget:
    """Return when the test loss of a learning run was at most `target_loss`.

    Between two evaluations, the logarithm of the loss is interpolated. Evaluations and work before
    the first epoch take no time.
    """
    epochs = record.learning or ()
    heights = [_log_loss(epoch.test_loss) for epoch in epochs]
    return _time_to_height(record, epochs, heights, math.log(max(target_loss, _MIN_LOSS)))


def time_to_test_accuracy(record: Record, target_accuracy: float) -> TimeToTarget:
    """Return when the test accuracy of a learning run was at least `target_accuracy`.

    Between two evaluations, the accuracy is interpolated.
    """
    epochs = record.learning or ()
    heights = [None if epoch.test_accuracy is None else -epoch.test_accuracy for epoch in epochs]
    return _time_to_height(record, epochs, heights, -target_accuracy)


def _log_loss(loss: float | None) -> float | None:
    return None if loss is None else math.log(max(loss, _MIN_LOSS))


def _time_to_height(
    record: Record, epochs: Sequence[Epoch], heights: Sequence[float | None], target: float
) -> TimeToTarget:
    """Return when the height, which is known after each epoch, was at most `target`."""
    if has_diverged(record):
        return TimeToTarget(math.inf, math.inf, False)
    end, last_above, previous = 0.0, 0.0, None
    for epoch, height in zip(epochs, heights, strict=True):
        start, end = end, end + epoch.seconds
        if height is not None and height <= target:
            if previous is None:
                return TimeToTarget(end, last_above, True)
            seconds = start + epoch.seconds * (previous - target) / (previous - height)
            return TimeToTarget(seconds, seconds, True)
        if height is not None:
            last_above = end
        previous = height
    return TimeToTarget(end, end, False)


def runs_to_test_loss(records: Iterable[Record], target_loss: float) -> RunsToTarget:
    """Return the times to the test loss `target_loss` of the learning runs among `records`."""
    times: dict[Block, TimeToTarget] = {}
    for record in records:
        if record.request and is_learning_run(record):
            time = time_to_test_loss(record, target_loss)
            if time.seconds > 0:
                times[next_block(record, times)] = time
    return RunsToTarget(times)


def learning_speedup(one_rank: RunsToTarget, several_ranks: RunsToTarget) -> Interval | None:
    """Return the time that one rank needs, divided by the time that several ranks need.

    - If all runs reached the target, their times are compared (see `pairwise.compare`). If some
      times are not interpolated, the interval is widened: from the earliest possible times of one
      rank to those of several ranks. There is no interval if a run may have reached the target
      right at the start.
    - If some runs missed the target, this is the ratio of the censored medians. Its interval is
      that of the median ratio in a block (see `median_bounds`), widened to contain the ratio. It
      needs nine blocks if one run missed the target, and twelve if two did.

    Returns None if a median is not known, because too few runs reached the target.
    """
    medians = one_rank.median_seconds, several_ranks.median_seconds
    if not medians[0] or not medians[1]:
        return None
    if all(time.is_reached for runs in (one_rank, several_ranks) for time in runs.times.values()):
        return _speedup_if_all_reached(one_rank, several_ranks)
    blocks = sorted(one_rank.times.keys() & several_ranks.times.keys())
    count = min(len(one_rank.times), len(several_ranks.times))
    value = medians[0] / medians[1]
    ratios = [
        _ratio_bounds(one_rank.times[block].bounds, several_ranks.times[block].bounds)
        for block in blocks
    ]
    bounds = median_bounds([low for low, _ in ratios], [high for _, high in ratios])
    if bounds is None or bounds[0] == 0 or math.isinf(bounds[1]):
        return Interval(value, None, None, count)
    return Interval(value, min(value, bounds[0]), max(value, bounds[1]), count)


def _speedup_if_all_reached(one_rank: RunsToTarget, several_ranks: RunsToTarget) -> Interval:
    latest, earliest = (
        [
            {block: getattr(time, field) for block, time in runs.times.items()}
            for runs in (one_rank, several_ranks)
        ]
        for field in ("seconds", "earliest")
    )
    ratio = pairwise.compare(*latest).ratio
    if latest == earliest:
        return ratio
    if min(*earliest[0].values(), *earliest[1].values()) <= 0:
        return replace(ratio, low=None, high=None)
    low = pairwise.compare(earliest[0], latest[1]).ratio.low
    high = pairwise.compare(latest[0], earliest[1]).ratio.high
    return replace(ratio, low=low, high=high)


def _ratio_bounds(
    dividend: tuple[float, float], divisor: tuple[float, float]
) -> tuple[float, float]:
    """Return between which values the ratio of two times lies, of which bounds are known."""
    low = 0.0 if math.isinf(divisor[1]) else dividend[0] / divisor[1]
    is_unlimited = math.isinf(dividend[1]) or divisor[0] == 0
    high = math.inf if is_unlimited else dividend[1] / divisor[0]
    return low, high
