"""Successive halving: its rungs, its ranking, and how often it finds the best setting.

The machines are simulated: speeds are known, launches vary as real ones do, and each launch has a
simulated duration.
"""

import itertools
import math
import random
from itertools import product
from statistics import fmean

import pytest

from tests.sample_records import make_block
from tests.tuning.trials import exhaustive_seconds, search
from xfbench import pairwise
from xfbench.tuning import halving, repeating
from xfbench.tuning.effects import estimate_noise, speeds_relative_to_fastest
from xfbench.tuning.halving import (
    FINALISTS,
    Round,
    are_distinguishable_or_negligible,
    choose_winner,
    plan_rungs,
    search_by_successive_halving,
    undecided_settings_to_repeat,
)

STEPS, WARMUP = 20, 3
STARTUP = 0.5  # as a share of the fastest setting's step time


class Machine:
    """Settings with known speeds: threads, kernels and affinities, from a seed."""

    def __init__(self, seed, noise, threads=(1, 2, 4, 8, 16), kernels=range(3)):
        self.random, self.noise, self.seconds = random.Random(seed), noise, 0.0
        parallel = [self.random.uniform(0.75, 0.99) for _ in kernels]
        quick = [1.0, *(self.random.uniform(0.3, 1.3) for _ in kernels[1:])]
        self.speed = {
            (kernel, count, affinity): quick[kernel]
            / (1 - parallel[kernel] + parallel[kernel] / count)
            * (self.random.uniform(0.96, 1.08) if affinity else 1.0)
            for kernel, count, affinity in product(kernels, threads, (0, 1))
        }
        self.default = (0, threads[-1], 0)
        self.startup = STARTUP * (STEPS + WARMUP) / max(self.speed.values())

    def factors(self, setting):
        kernel, count, affinity = setting
        return (kernel, count), affinity

    def launch_seconds(self, setting, steps=STEPS):
        return self.startup + (1 + WARMUP + steps) / self.speed[setting]

    def launch(self, setting, share, drift=0.0):
        """Return the measured images per second, with noise between launches and between steps."""
        steps = round(STEPS * share)
        self.seconds += self.launch_seconds(setting, steps)
        of_steps = self.random.gauss(0, 0.03 / math.sqrt(steps))
        return self.speed[setting] * math.exp(drift + self.random.gauss(0, self.noise) + of_steps)

    def block(self, settings, share):
        drift = self.random.gauss(0, 0.03)
        return {setting: self.launch(setting, share, drift) for setting in settings}


@pytest.mark.parametrize("noise", [0.02, 0.03, 0.05])
def test_search_is_within_2_percent_at_a_quarter_of_the_time(noise):
    successes = []
    for seed in range(10):
        machine = Machine(seed, noise)
        best, *_ = search(machine)
        near = machine.speed[best] >= 0.98 * max(machine.speed.values())
        successes.append(near and machine.seconds <= exhaustive_seconds(machine) / 4)
    assert sum(successes) >= 9


class Adding(Machine):
    """A machine with kernels and two choices whose effects add up to within about 1 %."""

    def __init__(self, seed, noise, kernels=2):
        super().__init__(seed, noise, threads=(1, 2), kernels=range(kernels))
        work = {(kernel, count): speed for (kernel, count, _), speed in self.speed.items()}
        worth = [
            {0: 1.0, 1: self.random.uniform(0.95, 1.05)},
            {0: 1.0, **{choice: self.random.uniform(0.97, 1.2) for choice in (1, 2)}},
        ]
        self.speed = {
            (*work_choices, *added_choices): speed
            * math.prod(worths[choice] for worths, choice in zip(worth, added_choices, strict=True))
            * math.exp(self.random.gauss(0, 0.01))
            for work_choices, speed in work.items()
            for added_choices in product(*worth)
        }
        self.default = (0, 2, 0, 0)

    def factors(self, setting):
        return setting[:2], *setting[2:]


@pytest.mark.parametrize("kernels", [2, 3])
def test_additive_choices_need_launches_of_half_the_settings(kernels):
    successes = []
    for seed in range(20):
        machine = Adding(seed, 0.02, kernels)
        best, *_ = search(machine)
        near = machine.speed[best] >= 0.98 * max(machine.speed.values())
        successes.append(near and machine.seconds <= exhaustive_seconds(machine) / 4)
    assert sum(successes) >= 18


class Moving(Adding):
    """A machine whose two cores become distant and near again, for longer than a launch."""

    cores_distant, moves_at = False, 0.0

    def block(self, settings, share):
        return {
            setting: speed
            for setting, (speed, _) in repeating.launch_block(
                settings,
                lambda setting: self.launch_on_cores(setting, share),
                lambda timed_launch: timed_launch[1],
            ).items()
        }

    def launch_on_cores(self, setting, share):
        if self.seconds >= self.moves_at:
            self.cores_distant = not self.cores_distant
            self.moves_at = self.seconds + self.random.expovariate(1 / (8 * self.startup))
        is_spoiled = self.cores_distant and setting[1] > 1
        return self.launch(setting, share) * (0.57 if is_spoiled else 1), is_spoiled


def count_near_optimal(max_repeats, monkeypatch):
    monkeypatch.setattr(repeating, "MAX_REPEATS", max_repeats)
    machines = [Moving(seed, 0.01) for seed in range(40)]
    return sum(
        machine.speed[search(machine)[0]] >= 0.98 * max(machine.speed.values())
        for machine in machines
    )


def test_launches_on_distant_cores_do_not_decide_the_search(monkeypatch):
    assert count_near_optimal(repeating.MAX_REPEATS, monkeypatch) >= 36
    assert count_near_optimal(0, monkeypatch) < 32


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_small_search_takes_a_quarter_of_the_exhaustive_time(noise):
    """The search confirms three of eight settings, each as often as an exhaustive search does."""
    successes = []
    for seed in range(10):
        machine = Machine(seed, noise, threads=(1, 2), kernels=range(2))
        best, _, searched = search(machine)
        near = machine.speed[best] >= 0.98 * max(machine.speed.values())
        successes.append(near and searched <= exhaustive_seconds(machine) / 4)
    assert sum(successes) >= 9


def test_gain_interval_contains_the_true_gain():
    contains_gain = []
    for seed in range(40):
        machine = Machine(seed, 0.04)
        best, speeds, _ = search(machine)
        if best != machine.default:
            ratio = pairwise.compare(speeds[best], speeds[machine.default]).ratio
            truth = machine.speed[best] / machine.speed[machine.default]
            contains_gain.append(ratio.low <= truth <= ratio.high)
    assert len(contains_gain) > 20 and fmean(contains_gain) >= 0.88


@pytest.mark.parametrize("settings", range(40))
def test_every_rung_has_fewer_settings_and_short_launches(settings):
    rungs = plan_rungs(settings)
    sizes = [rung.settings for rung in rungs]
    assert sizes[:1] == ([settings] if settings > FINALISTS else [])
    assert all(fewer < more for more, fewer in itertools.pairwise(sizes))
    assert [rung.launches for rung in rungs] == sorted(rung.launches for rung in rungs)
    assert all(rung.share < 1 for rung in rungs)
    blocks = [block for rung in rungs for block in rung.blocks]
    assert blocks == [*range(1, len(blocks) + 1)]


def test_settings_are_ranked_within_their_blocks():
    """All settings are half as fast in the second block; missing it gives no advantage."""
    speeds = {
        "a": {make_block(1): 100.0, make_block(2): 50.0},
        "b": {make_block(1): 90.0},
        "c": {make_block(1): 80.0, make_block(2): 40.0},
    }
    relative = speeds_relative_to_fastest(speeds)
    assert [*relative] == ["a", "b", "c"]
    assert relative["a"] == 1 and relative["c"] == pytest.approx(0.8)
    assert relative["b"] == pytest.approx(0.9)
    assert speeds_relative_to_fastest({}) == {}


def separate_factors(setting):
    """Return factors that predict no other setting."""
    return (setting,)


def make_measure(failures):
    """Return a function that launches the settings 0 to 11, each faster than the one before.

    `failures` has the reason why a setting fails, by rung and setting.
    """

    def measure(rung, settings):
        reasons = {
            setting: failures[rung.number, setting]
            for setting in settings
            if (rung.number, setting) in failures
        }
        speeds = {
            setting: {make_block(block): 1.0 + setting for block in rung.blocks}
            for setting in settings
            if setting not in reasons
        }
        return Round(speeds, reasons)

    return measure


def test_fastest_settings_reach_the_next_rung_and_become_finalists():
    outcome = search_by_successive_halving(range(12), separate_factors, make_measure({}))
    assert outcome.finalists == (11, 10) and not outcome.ended_by_budget
    assert [(rung.number, count) for rung, count in outcome.rungs] == [(1, 12), (2, 4)]
    assert outcome.blocks == 3
    eliminated = {eliminated.setting for eliminated in outcome.dropped}
    assert eliminated | {*outcome.finalists} == {*range(12)}


def test_eliminated_settings_keep_their_rung_and_reason():
    measure = make_measure({(1, 11): "crashed: no more"})
    outcome = search_by_successive_halving(range(12), separate_factors, measure)
    eliminated = {eliminated.setting: eliminated for eliminated in outcome.dropped}
    failed, slowest, slower = eliminated[11], eliminated[0], eliminated[7]
    assert (failed.rung, failed.reason, failed.relative) == (1, "crashed: no more", None)
    assert (slowest.rung, slowest.reason) == (1, "slower")
    assert slowest.relative == pytest.approx(1 / 11)
    assert (slower.rung, slower.reason) == (2, "slower")


def test_setting_that_fails_in_a_later_rung_is_eliminated():
    measure = make_measure({(2, 10): "out of memory"})
    outcome = search_by_successive_halving(range(12), separate_factors, measure)
    assert outcome.finalists == (11, 9)
    assert [eliminated.reason for eliminated in outcome.dropped if eliminated.setting == 10] == [
        "out of memory"
    ]


def test_search_out_of_budget_keeps_the_best_settings():
    def measure(rung, settings):
        return Round(
            {setting: {make_block(1): 1.0 + setting} for setting in settings[:4]},
            ended_by_budget=True,
        )

    outcome = search_by_successive_halving(range(12), separate_factors, measure)
    assert outcome.finalists == (3, 2) and outcome.ended_by_budget and len(outcome.rungs) == 1
    reasons = {eliminated.setting: eliminated.reason for eliminated in outcome.dropped}
    assert reasons[0] == "slower" and reasons[11].startswith("not tried")


def test_search_without_valid_launches_has_no_winner():
    outcome = search_by_successive_halving(
        range(5),
        separate_factors,
        lambda rung, settings: Round({}, dict.fromkeys(settings, "failed: why")),
    )
    assert outcome.finalists == () and {eliminated.reason for eliminated in outcome.dropped} == {
        "failed: why"
    }


def test_two_settings_are_not_searched():
    outcome = search_by_successive_halving(
        ["a", "b"], separate_factors, lambda rung, settings: pytest.fail("it was")
    )
    assert outcome.finalists == ("a", "b") and outcome.rungs == ()


def speeds_by_launch(*speeds):
    return {make_block(number): speed for number, speed in enumerate(speeds)}


STEADY = speeds_by_launch(100, 101, 99, 100, 100)


@pytest.mark.parametrize(
    ("rival", "expected"),
    [
        (speeds_by_launch(90, 91, 89, 90, 90), True),  # slower
        (speeds_by_launch(110, 111, 109, 110, 110), True),  # faster: it becomes the winner
        (speeds_by_launch(100, 101, 100, 100, 99), True),  # not faster by 2 %
        (speeds_by_launch(100, 120, 90, 110, 95), False),
        ({}, True),  # more launches would not help
    ],
)
def test_comparison_is_settled_if_launches_would_not_change_it(rival, expected):
    assert are_distinguishable_or_negligible(STEADY, [rival]) is expected
    assert not are_distinguishable_or_negligible(
        STEADY, [rival, speeds_by_launch(100, 130, 80, 120, 90)]
    )


def test_a_settled_search_has_the_winner_that_is_chosen():
    """The rival is faster by 5 %. With two rivals, its launches do not show that yet."""
    speeds = {
        "w": speeds_by_launch(100, 101, 99, 100, 102),
        "r": speeds_by_launch(104, 109, 101, 110, 104),
        "d": speeds_by_launch(70, 72, 69, 75, 60),
    }
    assert choose_winner("w", speeds) == "w"
    assert undecided_settings_to_repeat("w", ["w", "r"], speeds) == ["w", "r"]
    assert choose_winner("w", {name: speeds[name] for name in "wr"}) == "r"
    assert undecided_settings_to_repeat("w", ["w", "r"], {n: speeds[n] for n in "wr"}) == []


def test_single_launch_settles_no_comparison():
    assert not are_distinguishable_or_negligible(speeds_by_launch(100.0), [speeds_by_launch(50.0)])
    assert not are_distinguishable_or_negligible({}, [STEADY])


def test_rival_may_be_2_percent_faster_with_5_percent_risk():
    """1.02 is above the one-sided 95 % bound, but below the end of the 95 % interval."""
    rival = speeds_by_launch(102, 99, 100, 102, 99, 101, 100)
    winner = speeds_by_launch(99, 101, 100, 100, 100, 99, 101)
    bounds = [
        pairwise.compare(rival, winner, confidence=confidence).ratio.high
        for confidence in (0.9, 0.95)
    ]
    assert bounds[0] < 1.02 < bounds[1]
    assert are_distinguishable_or_negligible(winner, [rival])


@pytest.mark.parametrize(
    ("by", "often"),
    [
        (1.001, 5),  # precise after the fewest launches
        (1.05, 10),
        (1.5, 20),
    ],
)
def test_quarter_of_the_exhaustive_time_is_enough(by, often):
    """If launches differ by the factor `by`, each setting needs `often` launches."""
    differ = speeds_by_launch(100, 100 * by, 100, 100 * by, 100, 100 * by)
    speeds = {"w": differ, "d": differ, "none": {}}.values()
    seconds = often * 300.0 / 4  # one launch of every setting takes 300 s
    assert not halving.has_spent_share_of_exhaustive(seconds - 1, 300.0, speeds, 5, 20)
    assert halving.has_spent_share_of_exhaustive(seconds + 1, 300.0, speeds, 5, 20)
    assert not halving.has_spent_share_of_exhaustive(1e9, 300.0, [speeds_by_launch(100)], 5, 20)


def test_winner_stays_unless_a_rival_is_certainly_faster():
    certain, similar = (
        speeds_by_launch(110, 111, 109, 110, 110),
        speeds_by_launch(101, 99, 101, 100, 101),
    )
    assert choose_winner("w", {"w": STEADY, "r": similar}) == "w"
    assert choose_winner("w", {"w": STEADY, "r": certain, "d": similar}) == "r"
    fastest = speeds_by_launch(*(2 * speed for speed in certain.values()))
    assert choose_winner("w", {"w": STEADY, "r": certain, "d": fastest}) == "d"
    assert choose_winner("w", {"w": {}, "r": similar, "d": certain}) == "d"
    assert choose_winner("w", {"w": STEADY, "r": {}}) == "w"
    slower = speeds_by_launch(90, 91, 89, 90, 90)
    assert choose_winner("w", {"w": STEADY, "r": slower}) == "w"
    assert choose_winner("w", {}) == "w"


def test_rungs_increase_launches_and_step_share():
    def describe_rungs(*counts):
        return [(rung.settings, rung.launches, rung.share) for rung in halving.plan_rungs(*counts)]

    assert describe_rungs(30) == [(30, 1, 0.25), (10, 2, 0.5), (4, 3, 0.5)]
    assert describe_rungs(30, 30) == describe_rungs(30)
    # Launches of half the settings predict the other half.
    assert describe_rungs(36, 18) == [(18, 1, 0.25), (9, 1, 0.5), (3, 2, 0.5)]
    assert describe_rungs(24, 12) == [(12, 1, 0.25), (6, 1, 0.5)]


def build_measure(speeds, launched_settings):
    """Return a function that measures a rung and adds its settings to `launched_settings`."""

    def measure(rung, settings):
        launched_settings.append([*settings])
        return Round(
            {setting: {make_block(b): speeds[setting] for b in rung.blocks} for setting in settings}
        )

    return measure


def test_launches_of_half_the_settings_predict_the_rest():
    speed_factors = {
        "a": 1.0,
        "b": 3.0,
        "c": 2.0,
        "x": 1.0,
        "y": 1.1,
        "z": 1.2,
        "near": 1.0,
        "far": 0.9,
    }
    speeds = {
        setting: math.prod(map(speed_factors.get, setting))
        for setting in product("abc", "xyz", ("near", "far"))
    }
    launched_settings = []
    outcome = search_by_successive_halving(
        [*speeds], lambda setting: setting, build_measure(speeds, launched_settings)
    )
    assert [len(settings) for settings in launched_settings] == [9, 5]
    assert outcome.finalists == (("b", "z", "near"), ("b", "y", "near"))
    assert launched_settings[1][0] == outcome.finalists[0] and not {*outcome.finalists} <= {
        *launched_settings[0]
    }
    slowest = next(
        eliminated for eliminated in outcome.dropped if eliminated.setting == ("a", "x", "far")
    )
    assert slowest.relative == pytest.approx(0.9 / 3.6)
    reasons = {
        eliminated.setting: eliminated.reason
        for eliminated in outcome.dropped
        if eliminated.rung == 1
    }
    assert {reasons[setting] for setting in reasons if setting in launched_settings[0]} == {
        "slower"
    }
    assert {reasons[setting] for setting in reasons if setting not in launched_settings[0]} == {
        "slower (estimated from similar settings)"
    }


def search_where_launches_differ(noise, seed):
    """Search six settings within 6 % and six at half speed; return the outcome and each rung's."""
    generator, launched_settings = random.Random(seed), []
    speeds = {number: 1 - number / 100 if number < 6 else 0.5 for number in range(12)}

    def measure(rung, settings):
        launched_settings.append([*settings])
        drawn = {setting: {} for setting in settings}
        for block, setting in product(rung.blocks, settings):
            drawn[setting][block, 0] = speeds[setting] * math.exp(generator.gauss(0, noise))
        return Round(drawn)

    return search_by_successive_halving([*speeds], separate_factors, measure), launched_settings


def test_noisy_launches_add_further_rungs():
    extra_rungs = []
    for seed in range(20):
        outcome, launched_settings = search_where_launches_differ(0.06, seed)
        assert [len(settings) for settings in launched_settings[:2]] == [12, 4]
        assert all(
            {*later} <= {*earlier} for earlier, later in itertools.pairwise(launched_settings)
        )
        assert len(outcome.finalists) == FINALISTS and max(outcome.finalists) < 6
        blocks = [block for rung, _ in outcome.rungs for block in rung.blocks]
        assert blocks == [*range(1, outcome.blocks + 1)]
        assert [rung.number for rung, _ in outcome.rungs] == [*range(1, len(launched_settings) + 1)]
        extra_rungs.append(len(launched_settings) - 2)
    assert max(extra_rungs) == halving.MAX_EXTRA_RUNGS and sum(map(bool, extra_rungs)) >= 10


def test_quiet_launches_keep_the_planned_rungs():
    for seed in range(20):
        outcome, launched_settings = search_where_launches_differ(0.002, seed)
        assert [len(settings) for settings in launched_settings] == [
            12,
            4,
        ] and outcome.finalists == (0, 1)


def test_clearly_slower_setting_is_not_launched_again():
    speeds = {"a": (100, 120, 90, 110), "b": (101, 95, 119, 92), "c": (50, 61, 44, 57)}

    def measure(rung, settings):
        return Round(
            {
                setting: {make_block(b): speeds[setting][b - 1] for b in rung.blocks}
                for setting in settings
            }
        )

    outcome = search_by_successive_halving([*speeds], lambda setting: ("work", setting), measure)
    assert {*outcome.finalists} == {"a", "b"} and [count for _, count in outcome.rungs] == [3]


def test_noise_is_estimated_from_repeated_launches():
    generator = random.Random(2)
    speeds = {
        setting: {
            make_block(block): setting * (1 + block) * math.exp(generator.gauss(0, 0.03))
            for block in range(30)
        }
        for setting in (1, 2, 3)
    }
    separate = {setting: (setting,) for setting in speeds}
    assert estimate_noise(speeds, separate) == pytest.approx(0.03, rel=0.2)
    single_launches = {
        setting: {make_block(0): blocks[make_block(0)]} for setting, blocks in speeds.items()
    }
    assert (
        estimate_noise(single_launches, separate) is None and estimate_noise({}, separate) is None
    )
    # One launch of each setting suffices if several settings share each choice.
    additive = {
        (a, b): {make_block(0): a * b * math.exp(generator.gauss(0, 0.03))}
        for a, b in product(range(1, 7), repeat=2)
    }
    assert estimate_noise(additive, {setting: setting for setting in additive}) == pytest.approx(
        0.03, rel=0.3
    )


def test_clearly_slower_setting_is_not_confirmed_again():
    slower, near = speeds_by_launch(90, 91, 89, 90, 90), speeds_by_launch(100, 120, 90, 110, 95)
    assert undecided_settings_to_repeat(
        "w", ["w", "r", "d"], {"w": STEADY, "r": near, "d": slower}
    ) == [
        "w",
        "r",
    ]
    assert undecided_settings_to_repeat("w", ["w", "d"], {"w": STEADY, "d": slower}) == []
    assert undecided_settings_to_repeat(
        "w", ["w"], {"w": STEADY}
    ) == [] and undecided_settings_to_repeat("w", ["w"], {"w": {}}) == ["w"]


def test_failed_kernel_and_threads_give_no_prediction():
    def measure(rung, settings):
        dead = {setting: "crashed: no more" for setting in settings if setting[0] == "a"}
        return Round(
            {
                setting: {make_block(b): 1.0 for b in rung.blocks}
                for setting in settings
                if setting not in dead
            },
            dead,
        )

    outcome = search_by_successive_halving(
        [*product("abc", "xyz", "nf")], lambda setting: setting, measure
    )
    assert {
        eliminated.setting[0] for eliminated in outcome.dropped if eliminated.relative is None
    } == {"a"}
    reasons = {eliminated.reason for eliminated in outcome.dropped if eliminated.setting[0] == "a"}
    assert reasons == {
        "crashed: no more",
        "not tried: no launch with its kernel and threads counts",
    }


def search_with_known_noise(deviation, speeds):
    """Search twelve settings with these speeds; return the outcome and the sizes of extra rungs.

    The best four settings come first. In every block but the first, each launch is off by the same
    factor, up or down. After two rungs the eight residuals have six degrees of freedom, so the
    estimated noise is `deviation`.
    """
    offset = deviation * math.sqrt(6 / 8)
    sizes = []

    def measure(rung, settings):
        sizes.append(len(settings))
        drawn = {setting: {} for setting in settings}
        for setting, block in product(settings, rung.blocks):
            sign = 0 if block == 1 else (-1) ** (block + setting)
            drawn[setting][block, 0] = math.exp(offset * sign) * speeds[setting]
        return Round(drawn)

    outcome = search_by_successive_halving(range(12), separate_factors, measure)
    assert sizes[:2] == [12, 4]
    return outcome, sizes[2:]


# Two settings with three launches each then differ with a standard error of 2 %.
AT_THE_LIMIT = 0.02 / math.sqrt(2 / 3)


@pytest.mark.parametrize(("times", "is_repeated"), [(0.95, False), (1.05, True)])
def test_best_settings_are_launched_again_if_errors_matter(times, is_repeated):
    _, further = search_with_known_noise(times * AT_THE_LIMIT, [1.0] * 4 + [0.5] * 8)
    assert bool(further) == is_repeated


@pytest.mark.parametrize(("near", "further"), [(2, []), (3, [3])])
def test_only_close_rivals_among_the_best_are_launched_again(near, further):
    speeds = [1.0] * near + [0.7] * (4 - near) + [0.3] * 8
    outcome, sizes = search_with_known_noise(2 * AT_THE_LIMIT, speeds)
    assert sizes[:1] == further
    assert {*outcome.finalists} <= {*range(near)}


@pytest.mark.parametrize(("launches", "share"), [(1, 6 / 8), (2, 10 / 12), (5, 22 / 24)])
def test_residual_of_a_setting_counts_more_with_more_launches(launches, share):
    """Two choices together add 10 % that an additive model does not explain.

    Least squares leaves a quarter of it as the residual of each setting. Half of the residual
    counts with one launch, and two thirds with two.
    """
    factors = {choices: ("work", *choices) for choices in product("ab", "xy")}
    speeds = {
        setting: {
            make_block(block): 1.1 if setting == ("b", "y") else 1.0 for block in range(launches)
        }
        for setting in factors
    }
    relative = speeds_relative_to_fastest(speeds, factors)
    assert relative["b", "y"] == 1
    assert relative["b", "x"] == pytest.approx(1.1**-share)


def test_one_degree_of_freedom_gives_no_noise():
    speeds = {
        setting: {make_block(block): 1 + setting + 0.1 * block * setting for block in range(3)}
        for setting in (0, 1)
    }
    two_blocks = {
        setting: {key: blocks[key] for key in [*blocks][:2]} for setting, blocks in speeds.items()
    }
    separate = {setting: (setting,) for setting in speeds}
    assert estimate_noise(two_blocks, separate) is None
    assert estimate_noise(speeds, separate) > 0
