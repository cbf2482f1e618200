"""Intervals hold as often as they say: simulated launches, whose truth is known."""

import math

import numpy as np
import pytest

from tests.sample_records import make_block, vary_record
from tests.simulated_launches import (
    LAUNCH_DEVIATION,
    SIMULATIONS,
    simulate_sessions,
    simulate_speeds,
)
from xfbench.host.machine import describe_machine
from xfbench.statistics import (
    Interval,
    counted_speeds_by_block,
    geometric_interval,
    interval_of_launches,
    is_precise,
    launch_throughput,
    log_deviation_interval,
    mean_interval,
    median_interval,
    neighbour_correlation,
    outliers,
    range_interval,
    session_of,
    share_interval,
)


def measure_coverage(estimate, launches):
    random, hits = np.random.default_rng(1), 0
    for _ in range(SIMULATIONS):
        bounds = estimate(simulate_speeds(random, launches))
        hits += bounds.low <= 100.0 <= bounds.high
    return hits / SIMULATIONS


@pytest.mark.parametrize("count", [5, 6, 7, 10, 20])
@pytest.mark.parametrize("shape", ["normal", "skewed", "one launch in ten far off", "two modes"])
def test_median_interval_has_95_percent_coverage(shape, count):
    """The median of each of these distributions is 0, as the logarithm of the speed."""
    random = np.random.default_rng(2)
    logs = {
        "normal": random.normal(0, 0.03, (SIMULATIONS, count)),
        "skewed": np.log(2) - random.exponential(1, (SIMULATIONS, count)),
        "one launch in ten far off": random.normal(0, 0.03, (SIMULATIONS, count))
        * random.choice([1, 10], (SIMULATIONS, count), p=[0.9, 0.1]),
        "two modes": random.choice([-0.2, 0.2], (SIMULATIONS, count))
        + random.normal(0, 0.1, (SIMULATIONS, count)),
    }[shape]
    intervals = [median_interval([*np.exp(row)]) for row in logs]
    hits = sum(interval.low <= 1.0 <= interval.high for interval in intervals)
    assert 0.93 <= hits / SIMULATIONS <= 0.99
    assert all(interval.low <= interval.value <= interval.high for interval in intervals)


def test_median_interval_interpolates_between_order_statistics():
    """By hand: 1 to 7 and 2 to 6 contain the median with 98.44 and 87.5 %.

    The weight of the inner ends is 6 · 0.3143 / (1 + 5 · 0.3143) = 0.7333. The interval of the
    order statistics goes from 1.7333 to 6.2667. It is wider for the correlation of neighbours.
    """
    logs = [3.0, 1.0, 2.0, 6.0, 5.0, 4.0, 7.0]
    correlation = neighbour_correlation(logs)
    half_width = (4 - 1.7333) * math.sqrt((1 + correlation) / (1 - correlation))
    interval = median_interval([*np.exp(logs)])
    assert np.log([interval.value, interval.low, interval.high]) == pytest.approx(
        [4, 4 - half_width, 4 + half_width], rel=1e-4
    )
    assert (interval.launches, interval.confidence) == (7, 0.95)


def test_five_values_extend_their_range():
    interval = median_interval([*np.exp([4.0, 1.0, 5.0, 2.0, 3.0])])
    assert interval.low < np.exp(1.0) and interval.high > np.exp(5.0)


def test_correlation_of_neighbours_is_estimated_and_weighted():
    """By hand: the ranks' products sum to 16, their squares to 28. 16/28 + (1 + 3 · 16/28)/7."""
    rising = (7 * (16 / 28 + (1 + 3 * 16 / 28) / 7) + 10 * 0.15) / 17
    assert neighbour_correlation([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) == pytest.approx(rising)
    random = np.random.default_rng(20)
    independent = np.mean([neighbour_correlation(row) for row in random.normal(0, 1, (300, 10))])
    assert 0.05 < independent < 0.15
    assert neighbour_correlation(np.cumsum(random.normal(0, 1, 100))) == 0.7


@pytest.mark.parametrize("count", [5, 10, 20])
def test_interval_of_correlated_launches_is_widened(count):
    """Neighbours are correlated by 0.4, as on a machine with slow and fast minutes."""
    random = np.random.default_rng(21)
    logs = random.normal(0, 0.03, (SIMULATIONS, count))
    for n in range(1, count):
        logs[:, n] = 0.4 * logs[:, n - 1] + math.sqrt(1 - 0.4**2) * logs[:, n]
    intervals = [median_interval([*np.exp(row)]) for row in logs]
    assert np.mean([interval.low <= 1 <= interval.high for interval in intervals]) >= 0.87


@pytest.mark.parametrize(("count", "median"), [(2, 2.0), (3, 4.0), (4, 2.0)])
def test_fewer_than_five_values_have_their_range(count, median):
    values = [1.0, 4.0, 16.0, 0.25][:count]
    interval = median_interval(values)
    assert interval == Interval(median, min(values), max(values), count, None)
    assert not interval.is_within(1e9) and interval.label != "claim"


def test_median_of_one_value_has_no_ends_and_zero_is_an_error():
    assert median_interval([7.0]) == Interval(7.0, None, None, 1)
    for values in ([], [1.0, 0.0]):
        with pytest.raises(ValueError, match="positive"):
            median_interval(values)


def test_a_claim_needs_a_narrow_interval():
    assert median_interval([99.0, 100.0, 100.0, 101.0, 102.0]).label == "claim"
    assert median_interval([60.0, 100.0, 100.0, 101.0, 102.0]).label == "indicative"


def test_precision_is_half_the_width_of_the_interval():
    interval = Interval(100.0, 100 / 1.02, 102.0, 5)
    assert interval.is_within(0.0201) and not interval.is_within(0.0199)
    assert not Interval(100.0, None, None, 1).is_within(1.0)


def test_inverse_of_an_interval_swaps_its_ends():
    assert Interval(2.0, 1.0, 4.0, 5).inverse() == Interval(0.5, 0.25, 1.0, 5)
    assert Interval(2.0, None, None, 1).inverse() == Interval(0.5, None, None, 1)


@pytest.mark.parametrize("launches", [2, 3, 5, 20])
def test_spread_interval_has_95_percent_coverage(launches):
    random = np.random.RandomState(launches)
    intervals = [
        log_deviation_interval(np.exp(random.normal(5, LAUNCH_DEVIATION, launches)))
        for _ in range(SIMULATIONS)
    ]
    covered = np.mean([interval.low <= LAUNCH_DEVIATION <= interval.high for interval in intervals])
    assert 0.93 <= covered <= 0.97
    assert log_deviation_interval([100.0]) is None


def test_interval_of_a_share_is_that_of_clopper_and_pearson():
    """The exact interval covers at least 95 %; its ends are those of the two binomial tails."""
    none, all_of_five = share_interval(0, 5), share_interval(5, 5)
    assert (none.value, none.low) == (0, 0) and none.high == pytest.approx(1 - 0.025 ** (1 / 5))
    assert (all_of_five.high, all_of_five.low) == (1, pytest.approx(0.025 ** (1 / 5)))
    half = share_interval(2, 4)
    assert (half.low, half.high) == (
        pytest.approx(0.0676, abs=1e-4),
        pytest.approx(0.9324, abs=1e-4),
    )


@pytest.mark.parametrize("launches", [5, 10, 20])
def test_range_interval_has_95_percent_coverage_of_the_expected_range(launches):
    """The expected range of five is that of simulated launches, not the constant of the product."""
    random = np.random.RandomState(launches)
    fives = random.normal(5, LAUNCH_DEVIATION, (20 * SIMULATIONS, 5))
    expected = math.expm1(np.mean(np.ptp(fives, axis=1)))
    intervals = [
        range_interval(np.exp(random.normal(5, LAUNCH_DEVIATION, launches)))
        for _ in range(SIMULATIONS)
    ]
    covered = np.mean([interval.low <= expected <= interval.high for interval in intervals])
    assert 0.93 <= covered <= 0.97
    typical = math.expm1(np.mean([math.log1p(interval.value) for interval in intervals]))
    assert typical == pytest.approx(expected, rel=0.05)


def test_range_interval_contains_its_value_if_one_launch_is_far_off():
    interval = range_interval([1.0] * 39 + [2.0])
    assert interval.low <= interval.value <= interval.high
    assert interval.value == pytest.approx(2 ** (5 / 40) - 1)
    assert range_interval([1.0] * 4) is None
    assert range_interval([3.0] * 5) == Interval(0.0, 0.0, 0.0, 5)


def test_mean_interval_uses_student_t():
    interval = mean_interval([1.0, 2.0, 4.0])
    half_width = 4.302653 * np.std([1.0, 2.0, 4.0], ddof=1) / np.sqrt(3)
    assert interval.value == pytest.approx(7 / 3) and interval.launches == 3
    assert (interval.low, interval.high) == pytest.approx((7 / 3 - half_width, 7 / 3 + half_width))
    assert mean_interval([0.5]).low is None
    with pytest.raises(ValueError, match="at least one value is needed"):
        mean_interval([])


def test_interval_over_pooled_steps_has_low_coverage():
    assert measure_coverage(lambda steps: geometric_interval([*steps.ravel()]), 5) < 0.6


@pytest.mark.parametrize("spread", [0.005, 0.02, 0.03, 0.06])
def test_stopping_at_a_narrow_interval_keeps_coverage(spread):
    """The stop rule looks at the data again and again; what that costs is a percent or two."""
    random, hits = np.random.default_rng(7), 0
    for _ in range(SIMULATIONS):
        values = list(np.exp(random.normal(0, spread, 20)))
        launches = {make_block(n): value for n, value in enumerate(values)}
        count = next(
            (n for n in range(5, 20) if is_precise(dict([*launches.items()][:n]), 0.02)), 20
        )
        interval = interval_of_launches(dict([*launches.items()][:count]))
        hits += interval.low <= 1 <= interval.high
    assert hits / SIMULATIONS >= 0.92


def test_launch_throughput_uses_the_median_step(record):
    assert launch_throughput(record(steps=(0.1, 0.2, 9.0))) == pytest.approx(4 / 0.2)


def test_geometric_interval_uses_student_t_on_logarithms():
    interval = geometric_interval([90.0, 100.0, 110.0])
    # By hand: logs' mean 4.60182, standard error 0.05799, t(0.975, 2) 4.30265.
    assert interval.value == pytest.approx(99.666, rel=1e-4)
    assert (interval.low, interval.high) == pytest.approx((77.65, 127.9), rel=1e-3)
    assert interval.label == "indicative"


def test_single_launch_is_labelled_smoke_without_interval():
    interval = geometric_interval([100.0])
    assert (interval.low, interval.high, interval.label) == (None, None, "smoke")


@pytest.mark.parametrize(
    ("count", "label"), [(2, "smoke"), (3, "indicative"), (4, "indicative"), (5, "claim")]
)
def test_label_depends_on_the_number_of_launches(count, label):
    assert geometric_interval([100.0] * count).label == label


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize(("farthest", "is_outlier"), [(5.18, False), (5.2, True)])
def test_modified_z_score_above_3_5_marks_an_outlier(side, farthest, is_outlier):
    """The median of the logarithms is 0, and that of their deviations is 1."""
    values = np.exp(side * np.array([-2, -1, 0, 1, farthest]))
    assert outliers([*values]) == [False] * 4 + [is_outlier]


def test_four_launches_have_no_outlier():
    assert outliers([1.0, 1.01, 0.99, 50.0]) == [False] * 4


@pytest.mark.parametrize("sessions", [3, 5])
def test_interval_over_sessions_contains_their_differences(sessions):
    random, hits = np.random.default_rng(9), 0
    for _ in range(SIMULATIONS):
        interval = interval_of_launches(simulate_sessions(random, sessions))
        assert interval.launches == 5 * sessions
        hits += interval.low <= 100 <= interval.high
    assert 0.93 <= hits / SIMULATIONS <= 0.97


@pytest.mark.parametrize("sessions", [1, 2])
def test_interval_of_few_sessions_is_over_launches(sessions):
    launches = simulate_sessions(np.random.default_rng(10), sessions)
    assert interval_of_launches(launches) == median_interval([*launches.values()])


def test_records_without_a_session_have_one_for_each_day_and_machine(record):
    here = describe_machine()
    elsewhere = here.model_copy(update={"hostname_hash": "other"})
    monday, also_monday, tuesday, other_machine = (
        vary_record(record(), created=f"2026-11-{time}Z", machine=machine)
        for time, machine in (
            ("23T00:00:00.000", here),
            ("23T23:59:59.999", here),
            ("24T00:00:00.000", here),
            ("23T00:00:00.000", elsewhere),
        )
    )
    assert session_of(monday) == session_of(also_monday)
    assert len({session_of(record) for record in (monday, tuesday, other_machine)}) == 3


def test_a_repeated_launch_of_a_session_has_a_block_of_its_own(record):
    records = [record((0.1,), number) for number in (2, 2, 3)]
    named = [vary_record(each, request={"session": "one"}) for each in records]
    blocks = [*counted_speeds_by_block(named)]
    assert [block[1:] for block in blocks] == [(0, 2, 0), (0, 2, 1), (0, 3, 0)]
    assert {block.session for block in blocks} == {"one"}


def test_a_repeated_launch_without_a_session_is_of_another_session(record):
    blocks = [*counted_speeds_by_block([record((0.1,), number) for number in (1, 2, 1, 2)])]
    assert [block.session[-1] for block in blocks] == ["1", "1", "2", "2"]
    assert [block[1:] for block in blocks] == [(0, 1, 0), (0, 2, 0)] * 2
