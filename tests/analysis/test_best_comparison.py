"""Comparisons with the best cell, which is not known."""

import numpy as np
import pytest

from tests.sample_records import make_block
from xfbench import pairwise, statistics
from xfbench.analysis.best_comparison import slowdowns_against_best


def draw(rng, speed, spread=0.05, launches=5):
    return {make_block(n): float(speed * np.exp(rng.normal(0, spread))) for n in range(launches)}


def test_slowdown_is_the_best_speed_over_the_own_speed():
    rng = np.random.default_rng(1)
    cells = [draw(rng, speed, 0.001) for speed in (10, 40, 20)]
    [slowdowns] = slowdowns_against_best([cells])
    assert [slowdown.value for slowdown in slowdowns] == pytest.approx([4, 1, 2], rel=0.01)
    assert all(interval.low <= interval.value <= interval.high for interval in slowdowns)
    # The second cell is certainly slower than the first, so the first is certainly the best.
    assert slowdowns[1].low == slowdowns[1].high == 1


def test_seeming_best_cell_has_an_interval_too():
    """It may be slower than the true best cell."""
    rng = np.random.default_rng(2)
    [slowdowns] = slowdowns_against_best([[draw(rng, 10) for _ in range(4)]])
    seeming_best = min(slowdowns, key=lambda interval: interval.value)
    assert (seeming_best.value, seeming_best.low) == (1, 1)
    assert seeming_best.high > 1.01


def test_single_cell_and_unknown_differences_have_no_interval():
    rng = np.random.default_rng(3)
    [[alone], slowdowns] = slowdowns_against_best(
        [[draw(rng, 1)], [draw(rng, 1), draw(rng, 2), draw(rng, 3, launches=1)]]
    )
    assert (alone.value, alone.low, alone.high, alone.launches) == (1, None, None, 5)
    assert [slowdown.low for slowdown in slowdowns] == [None] * 3
    assert slowdowns_against_best([]) == []


def test_intervals_contain_the_slowdown_against_the_true_best():
    """They hold together. The comparison with the seeming best alone claims too much."""
    rng = np.random.default_rng(5)
    speeds = (1.0, 1.0, 1.0, 1.0, 1.0, 0.9)
    held, naive_held, count = 0, 0, 200
    for _ in range(count):
        cells = [draw(rng, speed) for speed in speeds]
        [slowdowns] = slowdowns_against_best([cells])
        held += all(
            interval.low <= max(speeds) / speed <= interval.high
            for interval, speed in zip(slowdowns, speeds, strict=True)
        )
        seeming_best = max(cells, key=lambda cell: statistics.interval_of_launches(cell).value)
        naive = [pairwise.compare(seeming_best, cell).ratio for cell in cells[:5]]
        naive_held += all(
            interval.low <= 1 <= interval.high
            for interval, cell in zip(naive, cells, strict=False)
            if cell is not seeming_best
        )
    assert held / count >= 0.94
    assert naive_held / count < 0.85
