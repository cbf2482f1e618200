"""Times to an event when some runs end before the event: censored times.

Such a run says only that its time is longer than the run. Leaving it out, or counting its end as
the event, makes times look shorter than they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from xfbench.statistics import CONFIDENCE

# An event's time, or the end of the run if there was no event; and whether there was an event.
CensoredTime = tuple[float, bool]


def censored_median(times: Sequence[CensoredTime]) -> float | None:
    """Return the median time to the event, or None if it is not known.

    This is the Kaplan-Meier median (Kaplan and Meier, JASA 53 (1958), 457–481). If the estimated
    share of runs without the event is exactly one half between two events, it is their mean. So
    without censored times it is the ordinary median. If all runs are equally long, the median
    exists if more than half of them had the event.
    """
    # At equal times, events come before ends.
    ordered = sorted(times, key=lambda time: (time[0], not time[1]))
    share_without_event, half_time = 1.0, None
    for position, (time, is_event) in enumerate(ordered):
        if not is_event:
            continue
        if half_time is not None:
            return (half_time + time) / 2
        remaining = len(ordered) - position
        share_without_event *= (remaining - 1) / remaining
        if abs(share_without_event - 0.5) < 1e-9:
            half_time = time
        elif share_without_event < 0.5:
            return time
    return None


def median_bounds(
    lows: Sequence[float], highs: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return an interval for the median of values of which only bounds are known.

    The value number n lies between `lows[n]` and `highs[n]`. The interval goes from the k-th
    smallest of `lows` to the k-th largest of `highs`. It contains the median with probability 1 −
    2 P(B < k) or more. B is binomial (n, ½) (the sign test). Return None if there are too few
    values: at 95 %, fewer than six.
    """
    count = len(lows)
    miss_probabilities = 2 * special.bdtr(np.arange(count), count, 0.5)
    excluded = int(np.count_nonzero(miss_probabilities <= 1 - confidence)) - 1
    if excluded < 0:
        return None
    return sorted(lows)[excluded], sorted(highs)[count - 1 - excluded]
