"""Scaling efficiency under one of three laws.

Strong scaling keeps the images per update constant. Weak scaling keeps the images per rank
constant, per-node scaling those per node. An efficiency under one law does not hold under another.
So every efficiency has a law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from xfbench import pairwise, statistics
from xfbench.model.request import Scaling
from xfbench.statistics import Launches


@dataclass(frozen=True)
class Efficiency:
    """The throughput per rank, relative to the throughput per rank on `baseline_ranks` ranks.

    - `baseline_images_per_second`: throughput of the baseline, which is a mean over its launches.
    - `value`: 1 is perfect scaling.
    - `low`, `high`: 95 % interval; None for the baseline itself, with too few launches, and with
      launches of different sessions (see `pairwise.compare`). Then `value` is that of the median
      launches.
    """

    law: Scaling
    baseline_ranks: int
    baseline_images_per_second: float
    value: float
    low: float | None
    high: float | None


def compute_scaling_efficiency(
    law: Scaling,
    ranks: int,
    speeds: Launches,
    baseline_ranks: int,
    baseline_speeds: Launches,
) -> Efficiency:
    """Return the efficiency on `ranks` ranks relative to `baseline_ranks` ranks.

    - `speeds`, `baseline_speeds`: images per second of the launches on these ranks.
    - Under all laws, the efficiency is (speed / `ranks`) / (baseline speed / `baseline_ranks`).

    Raises ValueError if `speeds` or `baseline_speeds` is empty.
    """
    share = baseline_ranks / ranks
    baseline_speed = statistics.interval_of_launches(baseline_speeds).value
    if ranks == baseline_ranks:
        return Efficiency(law, baseline_ranks, baseline_speed, 1.0, None, None)
    ratio = pairwise.compare(speeds, baseline_speeds).ratio
    if ratio.low is None:
        value = statistics.interval_of_launches(speeds).value / baseline_speed
        return Efficiency(law, baseline_ranks, baseline_speed, value * share, None, None)
    bounds = [None if bound is None else bound * share for bound in (ratio.low, ratio.high)]
    if any(bound is not None and not math.isfinite(bound) for bound in bounds):
        bounds = [None, None]
    return Efficiency(
        law, baseline_ranks, baseline_speed, ratio.value * share, bounds[0], bounds[1]
    )
