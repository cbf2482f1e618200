"""The overhead benchmark runs and measures both loops. Its figures are no matter of a test."""

import pytest

from tests.measuring import overhead


@pytest.mark.deep
def test_overhead_measures_both_loops():
    times = overhead.measure_pairs(pairs=1, batch_size=1, threads=1)
    assert len(times["plain"]) == len(times["xfbench"]) == 1
    assert min(times["plain"] + times["xfbench"]) > 0


def test_overhead_measures_the_loop_around_an_empty_trainer():
    assert overhead.measure_loop_alone(steps=3) > 0
