"""Percentiles, the sustained rate and two modes of step times."""

import csv
import io

import numpy as np
import pytest

from tests.sample_records import vary_record
from xfbench.analysis.leaderboard import build_tables
from xfbench.analysis.steps import describe_steps, has_two_modes
from xfbench.rendering import tables


def test_percentiles_are_steps_of_the_launches(record):
    hundred = record(steps=tuple(n / 1000 for n in range(1, 101)), launch=1)
    twenty = record(steps=tuple(n / 1000 for n in range(1, 21)), launch=2)
    steps = describe_steps([hundred])
    assert (steps.median_seconds, steps.p95_seconds, steps.p99_seconds) == (0.0505, 0.095, 0.099)
    steps = describe_steps([hundred, twenty])
    assert steps.median_seconds == pytest.approx((0.0505 + 0.0105) / 2)
    assert steps.p95_seconds == pytest.approx((0.095 + 0.019) / 2)
    assert steps.p99_seconds == 0.099
    steps = describe_steps([record(steps=(0.1,) * 19)])
    assert (steps.p95_seconds, steps.p99_seconds) == (None, None)


def test_sustained_rate_is_all_images_over_all_seconds(record):
    launch = record(steps=(0.1,) * 8 + (0.6,) * 2)
    batch = launch.request.global_batch_size
    assert describe_steps([launch]).sustained_images_per_second == pytest.approx(batch * 10 / 2.0)
    measurement = launch.measurement.model_copy(
        update={"rank_step_seconds": ((0.1, 0.3), (0.2, 0.2))}
    )
    launch = vary_record(
        launch,
        measurement=measurement,
        request={"ranks": 2, "strategy": "ps", "batch_size_per_rank": 4, "global_batch_size": 8},
    )
    expected = 4 * 2 / 0.4 + 4 * 2 / 0.4
    assert describe_steps([launch]).sustained_images_per_second == pytest.approx(expected)


def test_launches_that_do_not_count_have_no_steps(record):
    assert describe_steps([]) is None
    assert describe_steps([vary_record(record(), status="failed", reason="no memory")]) is None
    assert describe_steps([record(steps=())]) is None


def test_throughput_view_shows_a_sustained_rate_that_differs(record):
    for slow_s, is_shown in ((0.11, False), (0.6, True)):
        launches = [record(steps=(0.1,) * 16 + (slow_s,) * 4, launch=n) for n in range(1, 6)]
        table_list = build_tables(launches, {})
        assert ("sustained" in tables.to_text(table_list)) == is_shown
        text = tables.to_text(table_list, "steps")
        assert "sustained" in text and "100 ms" in text and f"{1000 * slow_s:.0f} ms" in text
        header, line = csv.reader(io.StringIO(tables.to_csv(table_list)))
        assert float(dict(zip(header, line, strict=True))["steps_p95_seconds"]) == slow_s


@pytest.fixture
def random():
    return np.random.default_rng(5)


@pytest.mark.parametrize("count", [20, 60, 400])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_separate_groups_of_steps_are_two_modes(random, count, share):
    found = 0
    for _ in range(200):
        is_slow = random.permutation(np.arange(count) < share * count)
        seconds = np.where(is_slow, 1.2, 1.0) * np.exp(random.normal(0, 0.01, count))
        seconds[: count // 20] = 5.0  # interrupted steps
        found += has_two_modes(seconds)
    assert found >= 198


def test_note_counts_launches_with_two_modes(record):
    launches = [record(steps=(0.1, 0.2) * 10, launch=n) for n in range(1, 4)]
    launches.append(record(steps=(0.1,) * 20, launch=4))
    assert "3 with two modes" in tables.to_text(build_tables(launches, {}))


SHAPES = {
    "normal": lambda random, count: random.normal(0, 0.1, count),
    "uniform": lambda random, count: random.uniform(0, 0.4, count),
    "skewed": lambda random, count: random.exponential(0.2, count),
    "heavy tails": lambda random, count: 0.1 * random.standard_t(2, count),
    "drift": lambda random, count: np.linspace(0, 0.5, count) + random.normal(0, 0.02, count),
    "few slow steps": lambda random, count: (
        np.where(np.arange(count) < 0.08 * count, 0.7, 0) + random.normal(0, 0.01, count)
    ),
    "close modes": lambda random, count: (
        np.where(np.arange(count) % 2, 0.04, 0) + random.normal(0, 0.004, count)
    ),
}


@pytest.mark.parametrize("count", [20, 60, 400])
@pytest.mark.parametrize("shape", SHAPES)
def test_one_group_of_steps_is_one_mode(random, shape, count):
    found = sum(has_two_modes(np.exp(SHAPES[shape](random, count))) for _ in range(500))
    assert found <= 15  # of 500


@pytest.mark.parametrize("seconds", [(), (0.1,), (0.1, 0.2) * 9, (0.1,) * 50])
def test_few_or_equal_steps_are_one_mode(seconds):
    assert not has_two_modes(seconds)
