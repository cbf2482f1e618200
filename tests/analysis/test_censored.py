"""Medians of times when some runs ended before the event."""

import math
import statistics

import numpy as np
import pytest

from xfbench.analysis.censored import censored_median, median_bounds

# Weeks of remission with 6-mercaptopurine (Freireich et al., Blood 21 (1963), 699–716). Their
# Kaplan-Meier median is 23 weeks.
RELAPSES = (6, 6, 6, 7, 10, 13, 16, 22, 23)
ENDS = (6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35)


def test_median_of_published_data_is_the_published_one():
    times = [*((time, True) for time in RELAPSES), *((time, False) for time in ENDS)]
    assert censored_median(times) == 23


@pytest.mark.parametrize("values", [[3.0], [3.0, 1.0], [1, 2, 5, 9], [4, 4, 1, 2, 7]])
def test_without_censored_times_it_is_the_median(values):
    assert censored_median([(value, True) for value in values]) == statistics.median(values)


@pytest.mark.parametrize(
    ("reached", "missed", "expected"),
    [(4, 1, 3.0), (3, 2, 3.0), (2, 3, None), (2, 2, None), (3, 1, 2.5), (1, 0, 1.0), (0, 3, None)],
)
def test_median_exists_if_more_than_half_had_the_event(reached, missed, expected):
    times = [*((float(n + 1), True) for n in range(reached)), *[(10.0, False)] * missed]
    assert censored_median(times) == expected
    assert censored_median([*times[:reached], *[(math.inf, False)] * missed]) == expected


def test_no_times_have_no_median():
    assert censored_median([]) is None


def test_censored_median_is_right_where_others_are_too_low():
    """A third of the runs ends before the event. The true median is 1."""
    rng = np.random.default_rng(1)
    medians, without_missed = [], []
    for _ in range(300):
        true_times = np.exp(rng.normal(0, 0.5, 15))
        end = math.exp(0.43 * 0.5)
        times = [(min(time, end), bool(time <= end)) for time in true_times]
        medians.append(censored_median(times) or end)
        without_missed.append(statistics.median(time for time, is_event in times if is_event))
    assert statistics.median(medians) == pytest.approx(1, abs=0.05)
    assert statistics.median(without_missed) < 0.85


def test_bounds_contain_the_median():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(300):
        values = np.exp(rng.normal(0, 1, 10))
        lows, highs = np.minimum(values, 2.5), np.where(values > 2.5, np.inf, values)
        low, high = median_bounds([*lows], [*highs])
        covered += low <= 1 <= high
    assert 0.95 <= covered / 300 < 1
    assert median_bounds([1] * 5, [2] * 5) is None
    assert median_bounds([1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, math.inf]) == (1, math.inf)
