"""Tests of batch-size analyses against numbers calculated by hand."""

import math

import pytest

from xfbench.studies import memory_limits

T_975 = 12.7062  # Student's t with one degree of freedom, from a table


def test_line_fit_to_three_points_has_one_degree_of_freedom():
    line = memory_limits.fit_memory_growth([1, 2, 3], [10.0, 13.0, 10.0])
    # The residuals are -1, 2, -1: a variance of 6 with one degree of freedom.
    assert line.slope.value == pytest.approx(0)
    assert line.slope.high == pytest.approx(T_975 * math.sqrt(6 / 2), rel=1e-5)
    assert line.slope.low == pytest.approx(-line.slope.high)
    assert line.intercept.value == pytest.approx(11)
    half_width = T_975 * math.sqrt(6 * (1 / 3 + 4 / 2))
    assert line.intercept.high == pytest.approx(11 + half_width, rel=1e-5)
    assert line.intercept.low == pytest.approx(11 - half_width, rel=1e-5)
    assert line.max_relative_error == pytest.approx(2 / 13)


def test_two_batches_give_no_line_fit():
    assert memory_limits.fit_memory_growth([1, 2, 2], [10.0, 13.0, 10.0]) is None


def make_batch_launches(make_launches, size, *seconds_per_image, **fields):
    """Return one launch of a batch for each given time per image."""
    sizes = {"global_batch_size": size, "batch_size_per_rank": size}
    return make_launches(*(size * image_s for image_s in seconds_per_image), **sizes, **fields)


@pytest.fixture
def make_batch_finding(make_study, make_answer):
    """Return a function that analyzes records of batch sizes from 4."""

    def find(name, records):
        batches = {"batch_size": {"from": 4, "until": "out of memory"}}
        [finding] = make_answer(make_study({"name": name}, batches), records).findings
        return finding

    return find


@pytest.mark.parametrize(("gain", "high"), [(1.015, 4), (1.025, 8)])
def test_stops_growing_bound_includes_batches_that_may_gain(
    make_launches, make_batch_finding, gain, high
):
    """A batch of 8 is as fast as a batch of 4 on average; the CI of the gain ends at `gain`."""
    half_width = math.log(gain)
    # The upper bound is then `gain`: Student's t with three degrees of freedom is 3.182446.
    factor = math.exp(half_width / 3.182446 * math.sqrt(3))
    records = make_batch_launches(make_launches, 4, 0.1, 0.1, 0.1, 0.1)
    records += make_batch_launches(
        make_launches, 8, 0.1 * factor, 0.1 / factor, 0.1 * factor, 0.1 / factor
    )
    [value] = make_batch_finding("stops_growing", records).values
    assert (value.interval.value, value.interval.high) == (4, high)


def test_memory_limit_reports_the_smaller_launch_count(make_launches, make_batch_finding):
    out_of_memory = {"status": "failed", "reason": "out of memory: x", "measurement": None}
    successes, failures = (
        make_batch_launches(make_launches, 4, 0.1, 0.1, 0.1),
        make_batch_launches(make_launches, 8, 0.1, fields=out_of_memory),
    )
    [value] = make_batch_finding("out_of_memory", [*successes, *failures]).values
    assert (value.interval.value, value.interval.launches) == (4, 1)


def test_memory_limit_ignores_successes_above_a_failed_batch(make_launches, make_batch_finding):
    out_of_memory = {"status": "failed", "reason": "out of memory: x", "measurement": None}
    records = [
        *make_batch_launches(make_launches, 4, 0.1),
        *make_batch_launches(make_launches, 8, 0.1, fields=out_of_memory),
        *make_batch_launches(make_launches, 16, 0.1),
    ]
    [value] = make_batch_finding("out_of_memory", records).values
    assert value.interval.value == 4
