"""Tests of the methods for intervals of a median, on simulated launches."""

import numpy as np
import pytest
from scipy import stats

from tests.measuring import replay
from tests.measuring.interval_methods import METHODS, interpolated_order_statistics, student_t


def test_student_t_equals_scipys():
    logs = np.random.default_rng(0).normal(0, 1, (1, 7))
    low, high = student_t(logs)
    expected = stats.ttest_1samp(logs[0], 0).confidence_interval(0.95)
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high))


def test_signed_rank_interval_has_scipys_p_value_at_its_ends():
    """A shift beyond the end of the interval is significant, and one within it is not."""
    logs = np.random.default_rng(1).normal(0, 1, (1, 10))
    low, high = METHODS["signed rank"](logs)
    for end, outward in ((low[0], -1e-6), (high[0], 1e-6)):
        outside, inside = (
            stats.wilcoxon(logs[0] - end - shift).pvalue for shift in (outward, -outward)
        )
        assert outside < 0.05 <= inside


@pytest.mark.parametrize("count", [5, 6, 7, 10, 20])
@pytest.mark.parametrize("name", ["normal", "t", "skewed"])
def test_interpolated_order_statistics_cover_the_median(count, name):
    rng = np.random.default_rng(2)
    draws = {
        "normal": rng.normal(0, 1, (4000, count)),
        "t": rng.standard_t(2, (4000, count)),
        "skewed": rng.exponential(1, (4000, count)) - np.log(2),
    }[name]
    low, high = interpolated_order_statistics(draws)
    assert 0.925 <= np.mean((low <= 0) & (high >= 0)) <= 0.97


def test_simulated_cells_are_covered_as_expected():
    cells = replay.simulate_cells(cells=6)
    figures = replay.compare_interval_methods(cells["one launch in ten far off"], 10)
    assert set(figures) == set(METHODS)
    random, _, width = figures["interpolated order statistics"]
    assert random >= 0.93 and width < 0.8
    _, consecutive, _ = replay.compare_interval_methods(cells["neighbours correlated by 0.4"], 5)[
        "interpolated order statistics"
    ]
    assert consecutive < 0.93
