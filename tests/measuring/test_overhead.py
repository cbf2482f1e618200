"""The overhead benchmark runs and measures both loops; what it measures is not a test's matter."""

import pytest

from tests.measuring import overhead


@pytest.mark.long
def test_overhead_measures_both_loops_and_the_bare_loop():
    times = overhead.measure(pairs=1, batch_size=1, threads=1)
    assert len(times["plain"]) == len(times["xfbench"]) == 1
    assert 0 < times["loop_alone"] < min(times["plain"] + times["xfbench"])
