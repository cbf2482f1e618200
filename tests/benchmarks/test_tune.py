"""Searches replayed from launches see what they would have launched, and cost what that took."""

import random
from statistics import geometric_mean

import pytest

from tests.benchmarks import tune
from xfbench.records.record import Conditions

STARTUP, STEPS, BLOCKS = 2.0, 20, 8


@pytest.fixture
def launched(record):
    """Launches of a dozen settings, each a twentieth faster than the one before, by block."""

    def one(number, block):
        seconds = 0.1 / 1.05**number * random.Random(f"{number} {block}").uniform(0.995, 1.005)
        steps = (seconds,) * STEPS
        calm = {"load_before": 0.0, "load_after": 0.0, "steal_seconds": 0.0, "swap_bytes": 0}
        spent = Conditions(**calm, seconds=STARTUP + sum(steps))
        return record(steps, block, {"conditions": spent}, threads=number + 1)

    rows = [[one(number, block) for block in range(1, 1 + BLOCKS)] for number in range(12)]
    return {own[0].request.cell(): {r.request.launch: r for r in own} for own in rows}


def test_replayed_search_finds_the_best_at_lower_cost(launched):
    default = next(iter(launched))
    for seed in range(20):
        recorded = tune.Recorded(launched, default, seed)
        assert tune.by_half(recorded) == 1
        near, by_all, search, whole = tune.trial(recorded, tune.speeds(launched))
        assert near == by_all == 1
        # Twelve launches of a quarter of the steps, and eight of half of them, of sixty whole ones.
        assert 0.2 < search < 0.27
        assert search < whole < 1


def test_search_and_evaluation_use_different_blocks(launched):
    recorded = tune.Recorded(launched, next(iter(launched)), 3)
    assert len(recorded.blocks) == BLOCKS / 2
    known = {*range(1, 1 + BLOCKS)} - {*recorded.blocks}
    slowest, *_, fastest = launched

    def over_the_fastest(blocks):
        seconds = {
            cell: [launched[cell][block].measurement.step_seconds[0] for block in blocks]
            for cell in (fastest, slowest)
        }
        return geometric_mean(seconds[fastest]) / geometric_mean(seconds[slowest])

    assert recorded.speed[slowest] == pytest.approx(over_the_fastest(known))
    assert recorded.speed[slowest] != pytest.approx(over_the_fastest(recorded.blocks))


def test_shortened_launch_keeps_the_first_steps(launched):
    [whole, *_] = next(iter(launched.values())).values()
    shorter, saved = tune.first(whole, 0.25)
    assert shorter.measurement.step_seconds == whole.measurement.step_seconds[:5]
    assert saved == pytest.approx(sum(whole.measurement.step_seconds[5:]))
