"""Numbers of the analyses of rising batches that can be calculated by hand."""

import math

import pytest

from xfbench.studies import memory_limits

T_975 = 12.7062  # Student's t with one degree of freedom, from a table


def test_the_line_through_three_points_has_one_degree_of_freedom():
    line = memory_limits.fit_memory_growth([1, 2, 3], [10.0, 13.0, 10.0])
    # Residuals are -1, 2, -1: a variance of 6 over one degree of freedom.
    assert line.slope.value == pytest.approx(0)
    assert line.slope.high == pytest.approx(T_975 * math.sqrt(6 / 2), rel=1e-5)
    assert line.slope.low == pytest.approx(-line.slope.high)
    assert line.intercept.value == pytest.approx(11)
    half = T_975 * math.sqrt(6 * (1 / 3 + 4 / 2))
    assert line.intercept.high == pytest.approx(11 + half, rel=1e-5)
    assert line.intercept.low == pytest.approx(11 - half, rel=1e-5)
    assert line.max_relative_error == pytest.approx(2 / 13)


def test_two_batches_have_no_line():
    assert memory_limits.fit_memory_growth([1, 2, 2], [10.0, 13.0, 10.0]) is None


def of_size(make_launches, size, *seconds, **fields):
    """Launches of a batch of this size that all take as long as this for an image."""
    sizes = {"global_batch_size": size, "batch_size_per_rank": size}
    return make_launches(*(size * one for one in seconds), **sizes, **fields)


@pytest.fixture
def make_batch_finding(make_study, make_answer):
    """A function: what an analysis of batches from 4 on makes of records."""

    def find(name, records):
        batches = {"batch_size": {"from": 4, "until": "out of memory"}}
        [found] = make_answer(make_study({"name": name}, batches), records).findings
        return found

    return find


@pytest.mark.parametrize(("gain", "most"), [(1.015, 4), (1.025, 8)])
def test_throughput_may_grow_while_a_gain_is_possible(
    make_launches, make_batch_finding, gain, most
):
    """In the pairs of launches a batch of 8 seems no faster, and is not by more than `gain`."""
    half = math.log(gain)
    # Student's t with three degrees of freedom; the pairs' standard error makes this the end.
    apart = math.exp(half / 3.182446 * math.sqrt(3))
    records = of_size(make_launches, 4, 0.1, 0.1, 0.1, 0.1)
    records += of_size(make_launches, 8, 0.1 * apart, 0.1 / apart, 0.1 * apart, 0.1 / apart)
    [value] = make_batch_finding("stops_growing", records).values
    assert (value.interval.value, value.interval.high) == (4, most)


def test_the_memory_limit_counts_the_fewer_launches(make_launches, make_batch_finding):
    gone = {"status": "failed", "reason": "out of memory: x", "measurement": None}
    ran, out = of_size(make_launches, 4, 0.1, 0.1, 0.1), of_size(make_launches, 8, 0.1, fields=gone)
    [value] = make_batch_finding("out_of_memory", [*ran, *out]).values
    assert (value.interval.value, value.interval.launches) == (4, 1)


def test_a_batch_that_ran_beyond_a_failed_one_is_no_limit(make_launches, make_batch_finding):
    gone = {"status": "failed", "reason": "out of memory: x", "measurement": None}
    records = [
        *of_size(make_launches, 4, 0.1),
        *of_size(make_launches, 8, 0.1, fields=gone),
        *of_size(make_launches, 16, 0.1),
    ]
    [value] = make_batch_finding("out_of_memory", records).values
    assert value.interval.value == 4
