"""From records to figures. The unit of replication is the launch, never the step.

Steps of one launch are not independent, so a launch counts once, by its median step
after warm-up; over launches the interval is Student's t on the logarithm. Nothing here
is stored: figures are computed from records whenever somebody looks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

from xfbench.record import Record

CLAIM_LAUNCHES = 5
INDICATIVE_LAUNCHES = 3


@dataclass(frozen=True)
class Interval:
    """A value and its 95 % interval over `launches`; no interval (None) from fewer than two."""

    value: float
    low: float | None
    high: float | None
    launches: int

    @property
    def label(self) -> str:
        """How much it may be leant on: "claim", "indicative" or "smoke"."""
        if self.launches >= CLAIM_LAUNCHES:
            return "claim"
        return "indicative" if self.launches >= INDICATIVE_LAUNCHES else "smoke"


def launch_throughput(record: Record) -> float:
    """Images per second of one launch: global batch over the median timed step."""
    if record.measurement is None or record.request is None:
        raise ValueError(f"record {record.id} has no measurement")
    median = statistics.median(record.measurement.step_seconds)
    return record.request.global_batch_size / median


def geometric_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Geometric mean of positive values with a t-interval on their logarithms.

    Raises ValueError if there is no value or one is not positive.
    """
    if not values or min(values) <= 0:
        raise ValueError("positive values are needed")
    logs = [math.log(value) for value in values]
    centre = statistics.fmean(logs)
    if len(logs) < 2:
        return Interval(math.exp(centre), None, None, len(logs))
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    half = float(stats.t.ppf((1 + confidence) / 2, len(logs) - 1)) * error
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half), len(logs))
