"""What is said of many launches: on launches whose spread is known."""

import numpy as np
import pytest

from tests.measuring import launches
from xfbench.model.record import Conditions


@pytest.fixture
def make_cell(record):
    """A function that makes the records of a cell whose launches differ by so much."""

    def make(spread, count=20):
        rng = np.random.default_rng(5)
        quiet = {"load_before": 0, "load_after": 0, "steal_seconds": 0, "swap_bytes": 0}
        fields = {"conditions": Conditions(**quiet, seconds=10.0)}
        records = []
        for launch in range(1, count + 1):
            level = 0.1 * np.exp(rng.normal(0, spread))
            steps = level * np.exp(rng.normal(0, 0.01, 20))
            records.append(record(steps=tuple(steps), launch=launch, fields=fields))
        return records

    return make


def test_quiet_machine_needs_a_quarter_of_the_launches(make_cell):
    figures = launches.summarise_cell(make_cell(0.008), np.random.default_rng(0))
    assert figures["stopped_after"] == 5
    assert figures["half_width"] <= 0.02
    assert figures["share"] == pytest.approx(0.25)
    assert figures["mean_share"] < 1 / 3
    assert figures["stopped_coverage"] >= 0.9
    assert figures["coverage"] >= 0.9 > figures["pooled"]


def test_noisy_machine_needs_all_launches(make_cell):
    figures = launches.summarise_cell(make_cell(0.1), np.random.default_rng(0))
    assert (figures["stopped_after"], figures["share"]) == (20, 1.0)
    assert figures["spread"] == pytest.approx(0.1, rel=0.4)
