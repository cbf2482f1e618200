"""Comparisons hold as often as they say: simulated launches, whose truth is known."""

import itertools

import numpy as np
import pytest
from scipy import stats

from tests.sample_records import make_block, vary_record
from tests.simulated_launches import (
    SIMULATIONS,
    medians_by_launch,
    simulate_sessions,
    simulate_speeds,
)
from xfbench import pairwise
from xfbench.pairwise import (
    Comparison,
    compare,
    compare_all,
    judge_order,
    list_looks,
    rank_cells,
)
from xfbench.statistics import Interval, counted_speeds_by_block


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


def test_indistinguishable_cells_share_ranks():
    random = np.random.default_rng(6)
    speeds = [200.0, 100.0, 100.5, 30.0]
    cells = [medians_by_launch(simulate_speeds(random, 8, truth)) for truth in speeds]
    assert rank_cells(cells).ranks == ((1, 1), (2, 3), (2, 3), (4, 4))
    assert rank_cells([{make_block(1): 3.0}, {make_block(1): 1.0}]).ranks == ((1, 2), (1, 2))
    assert rank_cells([{make_block(1): 3.0}]).ranks == ((1, 1),)
    assert rank_cells([]).ranks == ()


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


@pytest.mark.parametrize(
    ("blocks", "paired"),
    [
        ((1, 2, 3), True),
        ((5,), False),
        ((4, 5, 6), False),
        ((2, 3, 4, 5, 6), True),
        ((3, 4, 5, 6, 7), False),
    ],
)
def test_launches_are_paired_if_most_blocks_match(blocks, paired):
    a = {make_block(n): 100.0 + n % 2 for n in range(1, 6)}
    b = {make_block(n): 90.0 + n % 3 for n in blocks}
    assert compare(a, b).paired == paired


def test_launches_without_a_partner_do_not_turn_drift_into_a_difference():
    """The machine becomes slower in the blocks of B alone. Welch's test would call A faster."""
    random = np.random.default_rng(11)
    slower = {make_block(n): 80.0 * np.exp(random.normal(0, 0.01)) for n in range(5, 20)}
    a, b = ({make_block(n): 100.0 * np.exp(random.normal(0, 0.01)) for n in range(5)} for _ in "ab")
    assert compare(a, {**b, **slower}).verdict == "not_distinguishable"
    logs = [np.log([*values]) for values in (a.values(), {**b, **slower}.values())]
    assert stats.ttest_ind(*logs, equal_var=False).pvalue < 0.001


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


def simulate_table(random, cells, blocks, spread=0.03, drift=0.05):
    """Logarithms of speeds, (blocks, cells), of equal cells on a machine that drifts."""
    return random.normal(0, spread, (blocks, cells)) + random.normal(0, drift, (blocks, 1))


def to_cells(logs):
    return [
        {make_block(n): float(speed) for n, speed in enumerate(column)}
        for column in 100 * np.exp(np.transpose(logs))
    ]


@pytest.mark.parametrize("blocks", [3, 5, 10])
@pytest.mark.parametrize("cells", [2, 4, 7])
@pytest.mark.parametrize("noise", ["equal", "three cells noisier", "one launch in ten far off"])
def test_all_verdicts_of_a_table_are_right_together(cells, blocks, noise):
    random = np.random.default_rng(14)
    families_with_errors = 0
    for _ in range(400):
        logs = simulate_table(random, cells, blocks)
        if noise == "three cells noisier":
            logs[:, :3] += random.normal(0, 0.06, (blocks, min(3, cells)))
        elif noise == "one launch in ten far off":
            logs -= (random.random(logs.shape) < 0.1) * random.exponential(0.3, logs.shape)
        pairs = [*itertools.combinations(to_cells(logs), 2)]
        families_with_errors += any(
            comparison.verdict != "not_distinguishable" for comparison in compare_all(pairs)
        )
    assert families_with_errors <= 34  # three standard deviations above 5 % of 400


@pytest.mark.parametrize("cells", [2, 4, 7])
def test_ten_percent_are_found_with_five_blocks_at_a_spread_of_three_percent(cells):
    random = np.random.default_rng(15)
    found = []
    for _ in range(300):
        logs = simulate_table(random, cells, 5)
        logs[:, 0] += np.log(1.1)
        comparisons = compare_all([*itertools.combinations(to_cells(logs), 2)])
        found += [comparison.verdict == "faster" for comparison in comparisons[: cells - 1]]
    assert np.mean(found) >= 0.88  # 91 % in 6,000 draws


def test_outliers_hide_a_difference_less_than_in_a_paired_t_test():
    random = np.random.default_rng(16)
    found, found_by_t_test = [], []
    for _ in range(200):
        logs = simulate_table(random, 4, 10)
        logs -= (random.random(logs.shape) < 0.1) * random.exponential(0.3, logs.shape)
        logs[:, 0] += np.log(1.1)
        comparisons = compare_all([*itertools.combinations(to_cells(logs), 2)])
        found += [comparison.verdict == "faster" for comparison in comparisons[:3]]
        p_values = [stats.ttest_rel(logs[:, 0], logs[:, n]).pvalue for n in (1, 2, 3)]
        found_by_t_test += [p < 0.05 / 6 for p in p_values]
    assert np.mean(found) > np.mean(found_by_t_test) + 0.2


def test_intervals_of_a_family_are_wider_than_those_of_one_pair():
    a, b, c = to_cells(simulate_table(np.random.default_rng(17), 3, 5))
    single, joint = compare(a, b), compare_all([(a, b), (b, c), (a, c)])[0]
    assert single.ratio.confidence == pytest.approx(0.95)
    assert joint.ratio.confidence == pytest.approx(1 - 0.05 / 3)
    assert joint.ratio.value == pytest.approx(single.ratio.value)


def test_order_is_known_if_cells_differ_or_hardly_do():
    random = np.random.default_rng(18)
    logs = simulate_table(random, 3, 5, spread=0.001)
    logs[:, 0] += 0.3
    assert judge_order(to_cells(logs), 0.02, most=20) == "known"
    assert judge_order(to_cells(logs), 0.00001, most=20) == "hidden"  # equal cells
    noisy = simulate_table(random, 3, 5, spread=0.1)
    assert judge_order(to_cells(noisy), 0.02, most=200) == "open"
    assert judge_order(to_cells(logs[:1]), 0.02, most=20) == "open"
    assert judge_order(to_cells(logs[:, :1]), 0.02, most=20) == "known"


def test_order_that_more_launches_would_hardly_tell_is_hidden():
    """Two cells that differ by a third of a standard error need nine times the launches."""
    random = np.random.default_rng(25)
    noisy = simulate_table(random, 2, 12, spread=0.1)
    noisy -= noisy.mean(axis=0)
    assert judge_order(to_cells(noisy), 0.001, most=20) == "hidden"
    assert judge_order(to_cells(noisy), 0.001, most=12) == "hidden"
    assert judge_order(to_cells(noisy), 0.001, most=2000) == "open"
    assert judge_order(to_cells(noisy), 0.1, most=200) == "known"  # equal but for a tenth
    nearly_distinct = noisy + np.array([0.0, 0.06])
    assert judge_order(to_cells(nearly_distinct), 0.001, most=40) == "open"


def test_predicted_power_is_how_often_launches_decide():
    """Of comparisons that look alike after 8 launches, so many are decided after 20."""
    random = np.random.default_rng(26)
    predictions, decisions = [], []
    for _ in range(400):
        ratio = np.array([0.0, random.normal(0, 0.05)])
        logs = simulate_table(random, 2, 20, spread=0.05) + ratio
        [early] = pairwise._compute_differences([to_cells(logs[:8])])
        predictions.append(pairwise._predict_power(early, 0.95, 0.0, 20))
        decisions.append(compare(*to_cells(logs)).verdict != "not_distinguishable")
    predictions, decisions = np.array(predictions), np.array(decisions)
    assert abs(predictions.mean() - decisions.mean()) < 0.07
    assert decisions[predictions < 0.2].mean() < 0.25
    assert decisions[predictions > 0.8].mean() > 0.75


def test_looks_become_rarer():
    assert list_looks(3, 20) == [3, 4, 6, 8, 11, 15]
    assert list_looks(1, 4) == [1, 2, 3]
    assert list_looks(5, 5) == []


def test_ranking_has_the_ratios_that_decide_the_ranks():
    logs = simulate_table(np.random.default_rng(19), 3, 5) + np.log([1.0, 0.5, 0.25])
    ranking = rank_cells(to_cells(logs))
    assert ranking.ranks == ((1, 1), (2, 2), (3, 3))
    assert ranking.relative[0] is None
    assert [ratio.value for ratio in ranking.relative[1:]] == pytest.approx([0.5, 0.25], rel=0.1)
    assert all(ratio.low < ratio.value < ratio.high < 1 for ratio in ranking.relative[1:])


def test_looking_at_the_order_after_each_block_is_rarely_wrong():
    """Without the correction for the looks, one run in five ends with a false verdict."""
    random = np.random.default_rng(22)
    ends = {1: 0, 18: 0}
    for _ in range(150):
        logs = simulate_table(random, 2, 20, spread=0.02)
        cells = {count: to_cells(logs[:count]) for count in range(3, 21)}
        differs = {
            count: compare(*pair).verdict != "not_distinguishable" for count, pair in cells.items()
        }
        for looks in ends:
            stop = next(
                (
                    n
                    for n, pair in cells.items()
                    if judge_order(pair, 0.02, most=20, looks=looks) == "known"
                ),
                20,
            )
            ends[looks] += differs[stop]
    assert ends[18] <= 18  # three standard deviations above 5 %
    assert ends[1] > 1.5 * ends[18]


def test_a_noisy_pair_is_not_judged_by_pairs_that_have_no_cell_in_common():
    """For example, a noisy network among three quiet ones."""
    random = np.random.default_rng(23)
    families_with_errors = 0
    for _ in range(400):
        pairs = [
            tuple(to_cells(random.normal(0, spread, (5, 2)))) for spread in (0.01, 0.01, 0.01, 0.05)
        ]
        families_with_errors += any(
            comparison.verdict != "not_distinguishable" for comparison in compare_all(pairs)
        )
    assert families_with_errors <= 34


def test_a_single_common_launch_does_not_replace_many_sessions():
    random = np.random.default_rng(24)
    a = simulate_sessions(random, 4, launches=2, name="A", ratio=1.5)
    b = simulate_sessions(random, 4, launches=2, name="B")
    common = make_block(0, "common")
    assert compare(a, b).verdict == "faster"
    assert compare({**a, common: 150.0}, {**b, common: 100.0}).verdict == "faster"
    few = compare({common: 150.0}, {common: 100.0})
    assert (few.ratio.low, few.verdict) == (None, "not_distinguishable")
