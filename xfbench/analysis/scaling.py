"""Scaling efficiency under a named law.

Strong scaling keeps the images per update constant; weak scaling keeps the images per rank. A
figure of one law does not apply to the other, so there is no efficiency without a law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from xfbench import statistics
from xfbench.statistics import Launches


@dataclass(frozen=True)
class Efficiency:
    """Throughput per rank relative to that on `baseline_ranks`; 1 is perfect.

    It has a 95 % interval if both have enough launches.
    """

    law: Literal["strong", "weak"]
    baseline_ranks: int
    value: float
    low: float | None
    high: float | None


def compute_scaling_efficiency(
    law: Literal["strong", "weak"],
    ranks: int,
    speeds: Launches,
    baseline_ranks: int,
    baseline_speeds: Launches,
) -> Efficiency:
    """Return the efficiency on `ranks` against the fewest ranks that were measured.

    Under either law: (speed / ranks) / (baseline / baseline_ranks). Raises ValueError if one side
    has no launch.
    """
    share = baseline_ranks / ranks
    if ranks == baseline_ranks:
        return Efficiency(law, baseline_ranks, 1.0, None, None)
    ratio = statistics.compare(speeds, baseline_speeds).ratio
    bounds = [None if bound is None else bound * share for bound in (ratio.low, ratio.high)]
    if any(bound is not None and not math.isfinite(bound) for bound in bounds):
        bounds = [None, None]
    return Efficiency(law, baseline_ranks, ratio.value * share, bounds[0], bounds[1])
