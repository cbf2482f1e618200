"""What is said of many launches: on launches whose spread is known."""

import numpy as np
import pytest

from tests.benchmarks import launches
from xfbench.records.record import Conditions


@pytest.fixture
def cell_of(record):
    """A function that makes the records of a cell whose launches differ by so much."""

    def make(spread, count=20):
        random = np.random.default_rng(5)
        quiet = {"load_before": 0, "load_after": 0, "steal_seconds": 0, "swap_bytes": 0}
        fields = {"conditions": Conditions(**quiet, seconds=10.0)}
        found = []
        for launch in range(1, count + 1):
            level = 0.1 * np.exp(random.normal(0, spread))
            steps = level * np.exp(random.normal(0, 0.01, 20))
            found.append(record(steps=tuple(steps), launch=launch, fields=fields))
        return found

    return make


def test_quiet_machine_needs_a_quarter_of_the_launches(cell_of):
    found = launches.judged(cell_of(0.008), np.random.default_rng(0))
    assert found["stopped_after"] == 5
    assert found["half_width"] <= 0.02
    assert found["share"] == pytest.approx(0.25)
    assert found["mean_share"] < 1 / 3
    assert found["stopped_coverage"] >= 0.9
    assert found["coverage"] >= 0.9 > found["pooled"]


def test_noisy_machine_needs_all_launches(cell_of):
    found = launches.judged(cell_of(0.1), np.random.default_rng(0))
    assert (found["stopped_after"], found["share"]) == (20, 1.0)
    assert found["spread"] == pytest.approx(0.1, rel=0.4)
