"""Successive halving: its rungs, its ranking, and how often it finds the best of what is known.

The simulation has no machine: speeds that are known, launches that differ as real ones do, and
the time that each would take.
"""

import math
import random
from itertools import pairwise, product
from statistics import fmean

import pytest

from tests.tuning.trials import exhaustive, tuned
from xfbench import statistics
from xfbench.tuning import halving, repeating
from xfbench.tuning.effects import estimate_noise, relative_speeds
from xfbench.tuning.halving import (
    FINALISTS,
    Round,
    choose_winner,
    halve,
    is_settled,
    plan_rungs,
    settings_to_repeat,
)

STEPS, WARMUP = 20, 3
STARTUP = 0.5  # of what the steps of the fastest take


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

    def takes(self, setting, steps=STEPS):
        return self.startup + (1 + WARMUP + steps) / self.speed[setting]

    def launch(self, setting, share, drift=0.0):
        """Images per second as it is seen: launches differ, and so do the few steps of one."""
        steps = round(STEPS * share)
        self.seconds += self.takes(setting, steps)
        of_steps = self.random.gauss(0, 0.03 / math.sqrt(steps))
        return self.speed[setting] * math.exp(drift + self.random.gauss(0, self.noise) + of_steps)

    def block(self, settings, share):
        drift = self.random.gauss(0, 0.03)
        return {one: self.launch(one, share, drift) for one in settings}


@pytest.mark.parametrize("noise", [0.02, 0.03, 0.05])
def test_search_is_within_2_percent_at_a_quarter_of_the_time(noise):
    found = []
    for seed in range(10):
        machine = Machine(seed, noise)
        best, *_ = tuned(machine)
        near = machine.speed[best] >= 0.98 * max(machine.speed.values())
        found.append(near and machine.seconds <= exhaustive(machine) / 4)
    assert sum(found) >= 9


class Adding(Machine):
    """Two kernels, and two choices whose worths add up but for a percent."""

    def __init__(self, seed, noise, kernels=2):
        super().__init__(seed, noise, threads=(1, 2), kernels=range(kernels))
        work = {(kernel, count): speed for (kernel, count, _), speed in self.speed.items()}
        worth = [
            {0: 1.0, 1: self.random.uniform(0.95, 1.05)},
            {0: 1.0, **{one: self.random.uniform(0.97, 1.2) for one in (1, 2)}},
        ]
        self.speed = {
            (*own, *others): speed
            * math.prod(of[one] for of, one in zip(worth, others, strict=True))
            * math.exp(self.random.gauss(0, 0.01))
            for own, speed in work.items()
            for others in product(*worth)
        }
        self.default = (0, 2, 0, 0)

    def factors(self, setting):
        return setting[:2], *setting[2:]


@pytest.mark.parametrize("kernels", [2, 3])
def test_additive_choices_need_launches_of_half_the_settings(kernels):
    found = []
    for seed in range(20):
        machine = Adding(seed, 0.02, kernels)
        best, *_ = tuned(machine)
        near = machine.speed[best] >= 0.98 * max(machine.speed.values())
        found.append(near and machine.seconds <= exhaustive(machine) / 4)
    assert sum(found) >= 18


class Moving(Adding):
    """Its two cores are moved apart and together again, for longer than a launch takes."""

    apart, until = False, 0.0

    def block(self, settings, share):
        return {
            one: speed
            for one, (speed, _) in repeating.launch_block(
                settings, lambda one: self.moved(one, share), lambda found: found[1]
            ).items()
        }

    def moved(self, setting, share):
        if self.seconds >= self.until:
            self.apart = not self.apart
            self.until = self.seconds + self.random.expovariate(1 / (8 * self.startup))
        spoiled = self.apart and setting[1] > 1
        return self.launch(setting, share) * (0.57 if spoiled else 1), spoiled


def near_the_best(again, monkeypatch):
    monkeypatch.setattr(repeating, "MAX_REPEATS", again)
    machines = [Moving(seed, 0.01) for seed in range(40)]
    return sum(
        machine.speed[tuned(machine)[0]] >= 0.98 * max(machine.speed.values())
        for machine in machines
    )


def test_launches_on_distant_cores_do_not_decide_the_search(monkeypatch):
    assert near_the_best(repeating.MAX_REPEATS, monkeypatch) >= 36
    assert near_the_best(0, monkeypatch) < 32


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_small_search_takes_a_quarter_of_the_exhaustive_time(noise):
    """Three settings of eight are confirmed, each as often as all of them exhaustively."""
    found = []
    for seed in range(10):
        machine = Machine(seed, noise, threads=(1, 2), kernels=range(2))
        best, _, searched = tuned(machine)
        near = machine.speed[best] >= 0.98 * max(machine.speed.values())
        found.append(near and searched <= exhaustive(machine) / 4)
    assert sum(found) >= 9


def test_gain_interval_contains_the_true_gain():
    held = []
    for seed in range(40):
        machine = Machine(seed, 0.04)
        best, speeds, _ = tuned(machine)
        if best != machine.default:
            ratio = statistics.compare(speeds[best], speeds[machine.default]).ratio
            truth = machine.speed[best] / machine.speed[machine.default]
            held.append(ratio.low <= truth <= ratio.high)
    assert len(held) > 20 and fmean(held) >= 0.88


@pytest.mark.parametrize("settings", range(40))
def test_every_rung_has_fewer_settings_and_short_launches(settings):
    found = plan_rungs(settings)
    sizes = [one.settings for one in found]
    assert sizes[:1] == ([settings] if settings > FINALISTS else [])
    assert all(fewer < more for more, fewer in pairwise(sizes))
    assert [one.launches for one in found] == sorted(one.launches for one in found)
    assert all(one.share < 1 for one in found)
    blocks = [block for one in found for block in one.blocks]
    assert blocks == [*range(1, len(blocks) + 1)]


def test_settings_are_ranked_within_their_blocks():
    """The second block was half as fast for all: who missed it is no better for it."""
    speeds = {
        "a": {(1, 0): 100.0, (2, 0): 50.0},
        "b": {(1, 0): 90.0},
        "c": {(1, 0): 80.0, (2, 0): 40.0},
    }
    found = relative_speeds(speeds)
    assert [*found] == ["a", "b", "c"]
    assert found["a"] == 1 and found["c"] == pytest.approx(0.8)
    assert found["b"] == pytest.approx(0.9)
    assert relative_speeds({}) == {}


def alone(setting):
    """Factors of one that tells nothing of another."""
    return (setting,)


def test_eliminated_settings_keep_their_rung_and_reason():
    def measure(rung, left):
        speeds = {one: {(block, 0): 1.0 + one for block in rung.blocks} for one in left}
        dead = {one: "crashed: no more" for one in left if one == 11}
        return Round({one: own for one, own in speeds.items() if one not in dead}, dead)

    found = halve(range(12), alone, measure)
    assert found.finalists == (10, 9) and not found.ended_by_budget
    assert [(rung.number, count) for rung, count in found.rungs] == [(1, 12), (2, 4)]
    assert found.blocks == 3
    by_setting = {one.setting: one for one in found.dropped}
    assert by_setting[11].reason == "crashed: no more" and by_setting[11].relative is None
    assert (by_setting[0].rung, by_setting[7].rung) == (1, 2)
    assert by_setting[0].reason == "slower" and by_setting[0].relative == pytest.approx(1 / 11)
    assert {*by_setting} | {*found.finalists} == {*range(12)}


def test_setting_that_fails_in_a_later_rung_is_eliminated():
    def measure(rung, left):
        dead = {10: "out of memory"} if rung.number == 2 else {}
        speeds = {one: {(block, 0): 1.0 + one for block in rung.blocks} for one in left}
        return Round({one: own for one, own in speeds.items() if one not in dead}, dead)

    found = halve(range(12), alone, measure)
    assert found.finalists == (11, 9)
    assert [one.reason for one in found.dropped if one.setting == 10] == ["out of memory"]


def test_search_out_of_budget_keeps_the_best_settings():
    def measure(rung, left):
        return Round({one: {(1, 0): 1.0 + one} for one in left[:4]}, ended_by_budget=True)

    found = halve(range(12), alone, measure)
    assert found.finalists == (3, 2) and found.ended_by_budget and len(found.rungs) == 1
    reasons = {one.setting: one.reason for one in found.dropped}
    assert reasons[0] == "slower" and reasons[11].startswith("not tried")


def test_search_without_valid_launches_has_no_winner():
    found = halve(range(5), alone, lambda rung, left: Round({}, dict.fromkeys(left, "failed: why")))
    assert found.finalists == () and {one.reason for one in found.dropped} == {"failed: why"}


def test_two_settings_are_not_searched():
    found = halve(["a", "b"], alone, lambda rung, left: pytest.fail("it was"))
    assert found.finalists == ("a", "b") and found.rungs == ()


def launches(*speeds):
    return {(block, 0): speed for block, speed in enumerate(speeds)}


STEADY = launches(100, 101, 99, 100, 100)


@pytest.mark.parametrize(
    ("rival", "expected"),
    [
        (launches(90, 91, 89, 90, 90), True),  # slower
        (launches(110, 111, 109, 110, 110), True),  # faster: it will be taken
        (launches(100, 101, 100, 100, 99), True),  # not by 2 %
        (launches(100, 120, 90, 110, 95), False),
        ({}, True),  # there is nothing to wait for
    ],
)
def test_comparison_is_settled_if_launches_would_not_change_it(rival, expected):
    assert is_settled(STEADY, [rival]) is expected
    assert not is_settled(STEADY, [rival, launches(100, 130, 80, 120, 90)])


def test_single_launch_settles_no_comparison():
    assert not is_settled(launches(100.0), [launches(50.0)])
    assert not is_settled({}, [STEADY])


def test_rival_may_be_2_percent_faster_with_5_percent_risk():
    """Above the one-sided bound of 95 % is 1.02; the interval's end of 95 % is not."""
    rival = launches(102, 99, 100, 102, 99, 101, 100)
    winner = launches(99, 101, 100, 100, 100, 99, 101)
    bounds = [statistics.compare(rival, winner, confidence=one).ratio.high for one in (0.9, 0.95)]
    assert bounds[0] < 1.02 < bounds[1]
    assert is_settled(winner, [rival])


@pytest.mark.parametrize(
    ("by", "often"),
    [
        (1.001, 5),  # these are precise at once
        (1.05, 10),
        (1.5, 20),
    ],
)
def test_quarter_of_the_exhaustive_time_is_enough(by, often):
    """Launches that differ `by` so many times need so many of each setting."""
    differ = launches(100, 100 * by, 100, 100 * by, 100, 100 * by)
    speeds = {"w": differ, "d": differ, "none": {}}.values()
    seconds = often * 300.0 / 4  # all of them take 300 once
    assert not halving.has_spent_share(seconds - 1, 300.0, speeds, 5, 20)
    assert halving.has_spent_share(seconds + 1, 300.0, speeds, 5, 20)
    assert not halving.has_spent_share(1e9, 300.0, [launches(100)], 5, 20)


def test_winner_stays_unless_a_rival_is_certainly_faster():
    surely, perhaps = launches(110, 111, 109, 110, 110), launches(101, 99, 101, 100, 101)
    assert choose_winner("w", {"w": STEADY, "r": perhaps}) == "w"
    assert choose_winner("w", {"w": STEADY, "r": surely, "d": perhaps}) == "r"
    faster = launches(*(2 * one for one in surely.values()))
    assert choose_winner("w", {"w": STEADY, "r": surely, "d": faster}) == "d"
    assert choose_winner("w", {"w": {}, "r": perhaps, "d": surely}) == "d"
    assert choose_winner("w", {"w": STEADY, "r": {}}) == "w"
    slower = launches(90, 91, 89, 90, 90)
    assert choose_winner("w", {"w": STEADY, "r": slower}) == "w"
    assert choose_winner("w", {}) == "w"


def test_rungs_increase_launches_and_step_share():
    def told(*counts):
        return [(one.settings, one.launches, one.share) for one in halving.plan_rungs(*counts)]

    assert told(30) == [(30, 1, 0.25), (10, 2, 0.5), (4, 3, 0.5)]
    assert told(30, 30) == told(30)
    # Half of them tell of the other half.
    assert told(36, 18) == [(18, 1, 0.25), (9, 1, 0.5), (3, 2, 0.5)]
    assert told(24, 12) == [(12, 1, 0.25), (6, 1, 0.5)]


def measured(speeds, asked):
    """A rung's launches of settings with these speeds; `asked` is told which."""

    def measure(rung, settings):
        asked.append([*settings])
        return Round({one: {(b, 0): speeds[one] for b in rung.blocks} for one in settings})

    return measure


def test_launches_of_half_the_settings_predict_the_rest():
    worth = {"a": 1.0, "b": 3.0, "c": 2.0, "x": 1.0, "y": 1.1, "z": 1.2, "near": 1.0, "far": 0.9}
    speeds = {one: math.prod(map(worth.get, one)) for one in product("abc", "xyz", ("near", "far"))}
    asked = []
    found = halve([*speeds], lambda one: one, measured(speeds, asked))
    assert [len(one) for one in asked] == [9, 5]
    assert found.finalists == (("b", "z", "near"), ("b", "y", "near"))
    assert asked[1][0] == found.finalists[0] and not {*found.finalists} <= {*asked[0]}
    last = next(one for one in found.dropped if one.setting == ("a", "x", "far"))
    assert last.relative == pytest.approx(0.9 / 3.6)
    reasons = {one.setting: one.reason for one in found.dropped if one.rung == 1}
    assert {reasons[one] for one in reasons if one in asked[0]} == {"slower"}
    assert {reasons[one] for one in reasons if one not in asked[0]} == {
        "slower (estimated from similar settings)"
    }


def search_where_launches_differ(by, seed):
    """Six settings within 6 %, six of half their speed; what was found, and each rung's."""
    machine, asked = random.Random(seed), []
    speeds = {number: 1 - number / 100 if number < 6 else 0.5 for number in range(12)}

    def measure(rung, settings):
        asked.append([*settings])
        drawn = {one: {} for one in settings}
        for block, one in product(rung.blocks, settings):
            drawn[one][block, 0] = speeds[one] * math.exp(machine.gauss(0, by))
        return Round(drawn)

    return halve([*speeds], alone, measure), asked


def test_noisy_launches_add_further_rungs():
    further = []
    for seed in range(20):
        found, asked = search_where_launches_differ(0.06, seed)
        assert [len(one) for one in asked[:2]] == [12, 4]
        assert all({*more} <= {*before} for before, more in pairwise(asked))
        assert len(found.finalists) == FINALISTS and max(found.finalists) < 6
        blocks = [block for rung, _ in found.rungs for block in rung.blocks]
        assert blocks == [*range(1, found.blocks + 1)]
        assert [rung.number for rung, _ in found.rungs] == [*range(1, len(asked) + 1)]
        further.append(len(asked) - 2)
    assert max(further) == halving.MAX_EXTRA_RUNGS and sum(map(bool, further)) >= 10


def test_quiet_launches_keep_the_planned_rungs():
    for seed in range(20):
        found, asked = search_where_launches_differ(0.002, seed)
        assert [len(one) for one in asked] == [12, 4] and found.finalists == (0, 1)


def test_clearly_slower_setting_is_not_launched_again():
    speeds = {"a": (100, 120, 90, 110), "b": (101, 95, 119, 92), "c": (50, 61, 44, 57)}

    def measure(rung, settings):
        return Round({one: {(b, 0): speeds[one][b - 1] for b in rung.blocks} for one in settings})

    found = halve([*speeds], lambda one: ("work", one), measure)
    assert {*found.finalists} == {"a", "b"} and [count for _, count in found.rungs] == [3]


def test_noise_is_estimated_from_repeated_launches():
    drawn = random.Random(2)
    speeds = {
        one: {(block, 0): one * (1 + block) * math.exp(drawn.gauss(0, 0.03)) for block in range(30)}
        for one in (1, 2, 3)
    }
    separate = {one: (one,) for one in speeds}
    assert estimate_noise(speeds, separate) == pytest.approx(0.03, rel=0.2)
    one_of_each = {one: {(0, 0): own[0, 0]} for one, own in speeds.items()}
    assert estimate_noise(one_of_each, separate) is None and estimate_noise({}, separate) is None
    # One launch of each tells it where choices tell of several.
    added = {
        (a, b): {(0, 0): a * b * math.exp(drawn.gauss(0, 0.03))}
        for a, b in product(range(1, 7), repeat=2)
    }
    assert estimate_noise(added, {one: one for one in added}) == pytest.approx(0.03, rel=0.3)


def test_clearly_slower_setting_is_not_confirmed_again():
    slower, near = launches(90, 91, 89, 90, 90), launches(100, 120, 90, 110, 95)
    assert settings_to_repeat("w", ["w", "r", "d"], {"w": STEADY, "r": near, "d": slower}) == [
        "w",
        "r",
    ]
    assert settings_to_repeat("w", ["w", "d"], {"w": STEADY, "d": slower}) == []
    assert settings_to_repeat("w", ["w"], {"w": STEADY}) == [] and settings_to_repeat(
        "w", ["w"], {"w": {}}
    ) == ["w"]


def test_failed_kernel_and_threads_give_no_prediction():
    def measure(rung, settings):
        dead = {one: "crashed: no more" for one in settings if one[0] == "a"}
        return Round(
            {one: {(b, 0): 1.0 for b in rung.blocks} for one in settings if one not in dead}, dead
        )

    found = halve([*product("abc", "xyz", "nf")], lambda one: one, measure)
    assert {one.setting[0] for one in found.dropped if one.relative is None} == {"a"}
    reasons = {one.reason for one in found.dropped if one.setting[0] == "a"}
    assert reasons == {
        "crashed: no more",
        "not tried: no launch with its kernel and threads counts",
    }


def search_with_known_noise(deviation, speeds):
    """A search among twelve settings with these speeds, the best four first; sizes of its rungs.

    In every block but the first, each launch is off by the same factor, up or down. After two
    rungs the eight residuals have six degrees of freedom, so that `deviation` is what is seen.
    """
    apart = deviation * math.sqrt(6 / 8)
    sizes = []

    def measure(rung, settings):
        sizes.append(len(settings))
        drawn = {one: {} for one in settings}
        for one, block in product(settings, rung.blocks):
            sign = 0 if block == 1 else (-1) ** (block + one)
            drawn[one][block, 0] = math.exp(apart * sign) * speeds[one]
        return Round(drawn)

    found = halve(range(12), alone, measure)
    assert sizes[:2] == [12, 4]
    return found, sizes[2:]


# The difference of two settings, of three launches each, has a standard error of 2 %.
AT_THE_LIMIT = 0.02 / math.sqrt(2 / 3)


@pytest.mark.parametrize(("times", "again"), [(0.95, False), (1.05, True)])
def test_the_best_are_launched_again_when_errors_matter(times, again):
    _, further = search_with_known_noise(times * AT_THE_LIMIT, [1.0] * 4 + [0.5] * 8)
    assert bool(further) == again


@pytest.mark.parametrize(("near", "further"), [(2, []), (3, [3])])
def test_of_the_best_only_those_that_are_near_are_launched_again(near, further):
    speeds = [1.0] * near + [0.7] * (4 - near) + [0.3] * 8
    found, sizes = search_with_known_noise(2 * AT_THE_LIMIT, speeds)
    assert sizes[:1] == further
    assert {*found.finalists} <= {*range(near)}


@pytest.mark.parametrize(("launches", "share"), [(1, 6 / 8), (2, 10 / 12), (5, 22 / 24)])
def test_the_more_launches_a_setting_has_the_more_its_own_count(launches, share):
    """Two choices add up, and together give 10 % more.

    Least squares has a quarter of it left in each setting. Of that half counts with one launch,
    two thirds with two.
    """
    factors = {one: ("work", *one) for one in product("ab", "xy")}
    speeds = {
        one: {(block, 0): 1.1 if one == ("b", "y") else 1.0 for block in range(launches)}
        for one in factors
    }
    found = relative_speeds(speeds, factors)
    assert found["b", "y"] == 1
    assert found["b", "x"] == pytest.approx(1.1**-share)


def test_one_degree_of_freedom_gives_no_noise():
    speeds = {
        one: {(block, 0): 1 + one + 0.1 * block * one for block in range(3)} for one in (0, 1)
    }
    two_blocks = {one: {key: own[key] for key in [*own][:2]} for one, own in speeds.items()}
    separate = {one: (one,) for one in speeds}
    assert estimate_noise(two_blocks, separate) is None
    assert estimate_noise(speeds, separate) > 0
