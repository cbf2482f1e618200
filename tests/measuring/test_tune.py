"""Searches replayed from launches see what they would have launched, and cost what that took."""

import random
from statistics import geometric_mean

import pytest

from tests.measuring import tune
from xfbench.model.record import Conditions

STARTUP, STEPS, BLOCKS = 2.0, 20, 8


@pytest.fixture
def launches_by_cell(record):
    """Launches of a dozen settings, each a twentieth faster than the one before, by block."""

    def make_launch(number, block):
        seconds = 0.1 / 1.05**number * random.Random(f"{number} {block}").uniform(0.995, 1.005)
        steps = (seconds,) * STEPS
        quiet = {"load_before": 0.0, "load_after": 0.0, "steal_seconds": 0.0, "swap_bytes": 0}
        conditions = Conditions(**quiet, seconds=STARTUP + sum(steps))
        return record(steps, block, {"conditions": conditions}, threads=number + 1)

    rows = [[make_launch(number, block) for block in range(1, 1 + BLOCKS)] for number in range(12)]
    return {
        cell_launches[0].request.cell(): {r.request.launch: r for r in cell_launches}
        for cell_launches in rows
    }


def test_replayed_search_finds_the_best_at_lower_cost(launches_by_cell):
    default = next(iter(launches_by_cell))
    for seed in range(20):
        recorded = tune.RecordedMachine(launches_by_cell, default, seed)
        assert tune.speed_by_half(recorded) == 1
        speed_by_half, speed_by_all, search_share, total_share = tune.run_trial(
            recorded, tune.rank_speeds(launches_by_cell)
        )
        assert speed_by_half == speed_by_all == 1
        # Twelve launches of a quarter of the steps, and eight of half of them, of sixty whole ones.
        assert 0.2 < search_share < 0.27
        assert search_share < total_share < 1


def test_search_and_evaluation_use_different_blocks(launches_by_cell):
    recorded = tune.RecordedMachine(launches_by_cell, next(iter(launches_by_cell)), 3)
    assert len(recorded.blocks) == BLOCKS / 2
    evaluation_blocks = {*range(1, 1 + BLOCKS)} - {*recorded.blocks}
    slowest, *_, fastest = launches_by_cell

    def slowest_relative_speed(blocks):
        seconds = {
            cell: [launches_by_cell[cell][block].measurement.step_seconds[0] for block in blocks]
            for cell in (fastest, slowest)
        }
        return geometric_mean(seconds[fastest]) / geometric_mean(seconds[slowest])

    assert recorded.speed[slowest] == pytest.approx(slowest_relative_speed(evaluation_blocks))
    assert recorded.speed[slowest] != pytest.approx(slowest_relative_speed(recorded.blocks))


def test_shortened_launch_keeps_the_first_steps(launches_by_cell):
    [full_record, *_] = next(iter(launches_by_cell.values())).values()
    short_record, saved_s = tune.keep_first_steps(full_record, 0.25)
    assert short_record.measurement.step_seconds == full_record.measurement.step_seconds[:5]
    assert saved_s == pytest.approx(sum(full_record.measurement.step_seconds[5:]))
