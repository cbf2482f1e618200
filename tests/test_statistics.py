"""Intervals hold as often as they say: simulated launches, whose truth is known."""

import numpy as np
import pytest
from scipy import stats

from tests.sample_records import make_block, vary_record
from xfbench.host.machine import describe_machine
from xfbench.statistics import (
    Comparison,
    Interval,
    are_distinguishable,
    cell_ranks,
    compare,
    counted_speeds_by_block,
    geometric_interval,
    interval_of_launches,
    is_precise,
    launch_throughput,
    log_deviation_interval,
    mean_interval,
    median_interval,
    outliers,
    session_of,
)

SIMULATIONS = 1000
LAUNCH_DEVIATION, STEP_DEVIATION = (
    0.03,
    0.02,
)  # deviations of log speed: from launch to launch, from step to step


def simulate_speeds(random, launches, truth=100.0, steps=20):
    """Steps' speeds, (launches, steps): each launch has its own level, and steps drift along."""
    level = random.normal(0, LAUNCH_DEVIATION, (launches, 1))
    noise = random.normal(0, STEP_DEVIATION, (launches, steps))
    for step in range(1, steps):  # neighbours resemble one another
        noise[:, step] = 0.6 * noise[:, step - 1] + 0.8 * noise[:, step]
    return truth * np.exp(level + noise)


def medians_by_launch(steps):
    return {make_block(n + 1): float(np.median(row)) for n, row in enumerate(steps)}


def measure_coverage(estimate, launches):
    random, hits = np.random.default_rng(1), 0
    for _ in range(SIMULATIONS):
        bounds = estimate(simulate_speeds(random, launches))
        hits += bounds.low <= 100.0 <= bounds.high
    return hits / SIMULATIONS


@pytest.mark.parametrize("launches", [3, 5, 10])
def test_launch_interval_has_95_percent_coverage(launches):
    share = measure_coverage(
        lambda steps: geometric_interval([*medians_by_launch(steps).values()]), launches
    )
    assert 0.93 <= share <= 0.97


@pytest.mark.parametrize("rounds", [6, 15, 30])
def test_median_interval_has_95_percent_coverage(rounds):
    """Of a skewed distribution, as times are: its median is exp(0)."""
    random, hits = np.random.default_rng(2), 0
    for _ in range(SIMULATIONS):
        interval = median_interval([*np.exp(random.normal(0, 1, rounds))])
        hits += interval.low <= 1.0 <= interval.high
    assert 0.94 <= hits / SIMULATIONS <= 0.98


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


def test_mean_interval_uses_student_t():
    interval = mean_interval([1.0, 2.0, 4.0])
    half_width = 4.302653 * np.std([1.0, 2.0, 4.0], ddof=1) / np.sqrt(3)
    assert interval.value == pytest.approx(7 / 3) and interval.launches == 3
    assert (interval.low, interval.high) == pytest.approx((7 / 3 - half_width, 7 / 3 + half_width))
    assert mean_interval([0.5]).low is None
    with pytest.raises(ValueError, match="at least one value is needed"):
        mean_interval([])


def test_median_interval_needs_six_measurements():
    assert median_interval([1, 2, 3, 4, 100]) == Interval(3, None, None, 5)
    assert median_interval([3, 1, 2, 6, 5, 4]) == Interval(3.5, 1, 6, 6)
    with pytest.raises(ValueError, match="value"):
        median_interval([])


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
        interval = geometric_interval(values[:count])
        hits += interval.low <= 1 <= interval.high
    assert hits / SIMULATIONS >= 0.92


def compare_simulated(random, ratio=1.0, launches=5, drift=0.0, blocks_shared=True):
    """Launches of A and of B, `ratio` times slower; the machine's drift is that of the block."""
    block_drift = random.normal(0, drift, launches)
    a = medians_by_launch(simulate_speeds(random, launches) * np.exp(block_drift)[:, None])
    b = medians_by_launch(
        simulate_speeds(random, launches, 100.0 / ratio) * np.exp(block_drift)[:, None]
    )
    if not blocks_shared:
        b = {block._replace(launch=block.launch + 100): value for block, value in b.items()}
    return compare(a, b)


@pytest.mark.parametrize("blocks_shared", [True, False])
def test_identical_cells_are_rarely_distinguishable(blocks_shared):
    random = np.random.default_rng(2)
    comparisons = [
        compare_simulated(random, blocks_shared=blocks_shared) for _ in range(SIMULATIONS)
    ]
    assert all(comparison.paired == blocks_shared for comparison in comparisons)
    verdicts = [comparison.verdict for comparison in comparisons]
    assert 0.93 <= verdicts.count("not_distinguishable") / SIMULATIONS <= 0.97
    assert 0.015 < verdicts.count("faster") / SIMULATIONS < 0.035
    covered = sum(comparison.ratio.low <= 1 <= comparison.ratio.high for comparison in comparisons)
    assert covered == verdicts.count("not_distinguishable")


def test_pairing_by_block_reveals_a_difference_despite_drift():
    random = np.random.default_rng(3)

    def share_faster(blocks_shared):
        comparisons = [compare_simulated(random, 1.1, 5, 0.2, blocks_shared) for _ in range(300)]
        return sum(comparison.verdict == "faster" for comparison in comparisons) / 300

    assert share_faster(True) > 0.9
    assert share_faster(False) < 0.3


def test_smallest_visible_difference_has_80_percent_power():
    random = np.random.default_rng(4)
    smallest_difference = np.median(
        [compare_simulated(random).smallest_visible_difference for _ in range(500)]
    )
    comparisons = [compare_simulated(random, 1 + smallest_difference) for _ in range(SIMULATIONS)]
    assert (
        0.72
        <= sum(comparison.verdict == "faster" for comparison in comparisons) / SIMULATIONS
        <= 0.88
    )


def test_single_launch_has_no_interval_and_zero_is_an_error():
    comparison = compare({make_block(1): 2.0}, {make_block(1): 1.0})
    assert comparison == Comparison(Interval(2.0, None, None, 1), None, None, False)
    assert comparison.verdict == "not_distinguishable"
    with pytest.raises(ValueError, match="launch"):
        compare({}, {make_block(1): 1.0})


def test_holm_correction_limits_the_family_error_rate():
    assert are_distinguishable([0.001, 0.02, 0.04, None]) == [True, True, True, False]
    assert are_distinguishable([0.001, 0.03, 0.04]) == [True, False, False]
    assert are_distinguishable([None, None]) == [False, False]
    random = np.random.default_rng(5)
    families_with_errors = sum(
        any(are_distinguishable([compare_simulated(random).p for _ in range(6)]))
        for _ in range(SIMULATIONS // 2)
    )
    assert families_with_errors / (SIMULATIONS // 2) < 0.07


def test_indistinguishable_cells_share_ranks():
    random = np.random.default_rng(6)
    speeds = [200.0, 100.0, 100.5, 30.0]
    cells = [medians_by_launch(simulate_speeds(random, 8, truth)) for truth in speeds]
    assert cell_ranks(cells) == [(1, 1), (2, 3), (2, 3), (4, 4)]
    assert cell_ranks([{make_block(1): 3.0}, {make_block(1): 1.0}]) == [(1, 2), (1, 2)]
    assert cell_ranks([{make_block(1): 3.0}]) == [(1, 1)]
    assert cell_ranks([]) == []


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


def test_launches_of_different_sessions_are_not_paired(record):
    """The first launches of two days, or of two sessions of a day, are no pair."""
    records = [
        vary_record(record((0.1 * n,), n), request={"session": session})
        for session in ("one", "two")
        for n in (1, 2, 3)
    ]
    of_one, of_two = (counted_speeds_by_block(group) for group in (records[:3], records[3:]))
    assert compare(of_one, of_one).paired and not compare(of_one, of_two).paired
    assert {block.session for block in counted_speeds_by_block(records)} == {"one", "two"}


def simulate_sessions(random, sessions, launches=5, deviation=0.03, name="", ratio=1.0):
    """Launches of several sessions, whose levels differ with `deviation`."""
    return {
        make_block(n, f"{name}{session}"): value * ratio
        for session in range(sessions)
        for n, value in enumerate(
            100 * np.exp(random.normal(random.normal(0, deviation), 0.01, launches))
        )
    }


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
    assert interval_of_launches(launches) == geometric_interval([*launches.values()])


@pytest.mark.parametrize("sessions", [1, 2, 3, 5])
def test_equal_cells_of_different_sessions_are_rarely_distinguishable(sessions):
    random = np.random.default_rng(11)
    comparisons = [
        compare(*(simulate_sessions(random, sessions, name=name) for name in "AB"))
        for _ in range(SIMULATIONS)
    ]
    false_verdicts = sum(c.verdict != "not_distinguishable" for c in comparisons)
    assert false_verdicts <= 0.06 * SIMULATIONS
    assert all((c.p is None) == (c.ratio.low is None) == (sessions < 3) for c in comparisons)


def test_different_cells_of_different_sessions_are_distinguishable():
    random = np.random.default_rng(12)
    comparison = compare(
        simulate_sessions(random, 5, name="A", ratio=1.3), simulate_sessions(random, 5, name="B")
    )
    assert comparison.verdict == "faster"


@pytest.mark.parametrize("sessions", [1, 2, 3])
def test_cells_of_common_sessions_are_compared_within_them(sessions):
    """The levels of the sessions differ by 30 %, and the cells by 5 %."""
    random = np.random.default_rng(13)
    a = simulate_sessions(random, sessions, deviation=0.3)
    b = {block: value * 0.95 * np.exp(random.normal(0, 0.003)) for block, value in a.items()}
    comparison = compare(a, b)
    assert comparison.verdict == "faster" and comparison.paired
    assert comparison.ratio.value == pytest.approx(1 / 0.95, rel=0.01)
    only_b = simulate_sessions(random, 2, name="another", ratio=9.0)
    assert compare(a, {**b, **only_b}).ratio == comparison.ratio


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


@pytest.mark.parametrize(("blocks", "paired"), [((1, 2, 3), True), ((4, 5, 6), False)])
def test_launches_are_paired_only_if_all_blocks_match(blocks, paired):
    a = {make_block(n): 100.0 + n % 2 for n in range(1, 6)}
    b = {make_block(n): 90.0 + n % 3 for n in blocks}
    assert compare(a, b).paired == paired


def test_unpaired_cells_are_compared_by_welchs_test():
    random = np.random.default_rng(8)
    a, b = random.normal(5.0, 0.01, 3), random.normal(5.02, 0.05, 8)
    comparison = compare(
        {make_block(n): float(np.exp(value)) for n, value in enumerate(a)},
        {make_block(n + 100): float(np.exp(value)) for n, value in enumerate(b)},
    )
    expected = stats.ttest_ind(a, b, equal_var=False)
    low, high = expected.confidence_interval(0.95)
    assert comparison.p == pytest.approx(expected.pvalue)
    assert (comparison.ratio.low, comparison.ratio.high) == pytest.approx(
        (np.exp(low), np.exp(high))
    )


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.0, "not_distinguishable"), (2.0, "faster"), (0.5, "slower")]
)
def test_launches_without_noise_are_judged_by_their_ratio(ratio, verdict):
    a, b = ({make_block(n): speed for n in range(3)} for speed in (64.0 * ratio, 64.0))
    assert compare(a, b).verdict == verdict
