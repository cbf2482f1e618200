"""Successive halving: search for the fastest of many settings, and confirm the winner.

These functions launch nothing. The caller passes the settings, and a function that launches them
(see `searching.py`, and the simulation in the tests).

The search is a sequence of rungs:

1. A rung launches its settings in blocks. A block has one launch of each setting.
2. After the rung, the settings are ranked by the launches of all rungs so far (`effects.py`).
3. The fastest settings go on to the next rung. There, each setting has more or longer launches
   (Jamieson and Talwalkar 2016).

If there are many settings, the first rung launches only about half of them. If noise hides which
settings are fastest after the planned rungs, extra rungs follow.
"""

from __future__ import annotations

import math
import statistics as stdlib_statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from xfbench import pairwise, statistics
from xfbench.statistics import Block, Launches
from xfbench.tuning.effects import (
    Factors,
    estimate_noise,
    select_balanced_half,
    speeds_relative_to_fastest,
)

T = TypeVar("T", bound=Hashable)

FINALISTS = 2
NEGLIGIBLE = 0.02  # a relative difference that is not worth more launches
# The confirmation stops after this fraction of the time of an exhaustive search.
MAX_TIME_SHARE = 0.25
# An interval with this confidence has a one-sided 95 % bound as its upper bound.
_ONE_SIDED = 2 * statistics.CONFIDENCE - 1
_REDUCTION = 3  # one of 3 settings goes on; after a partial first rung, one of 4
# Up to this number of settings, launching half would save less time than the confirmation takes.
_MAX_FULL_FIRST_RUNG = 8
# Steps of a launch in the first rung and in later rungs, as fractions of the full number of steps.
_STEP_SHARES = (0.25, 0.5)
MAX_EXTRA_RUNGS = 4  # maximum number of rungs beyond the planned ones


@dataclass(frozen=True)
class Rung:
    """One stage of the search.

    - `number`: number of the rung, from 1.
    - `settings`: maximum number of settings that the rung launches.
    - `launches`: number of launches of each setting, which is the number of blocks.
    - `share`: timed steps of a launch, as a fraction of the steps in the confirmation.
    - `first`: number of the rung's first block. The numbers continue from rung to rung.
    """

    number: int
    settings: int
    launches: int
    share: float
    first: int

    @property
    def blocks(self) -> range:
        """The numbers of the rung's blocks."""
        return range(self.first, self.first + self.launches)


@dataclass(frozen=True)
class Round(Generic[T]):
    """The outcome of a rung.

    - `speeds`: images per second of each launch that counts, by setting and block.
    - `reasons`: settings that were launched but have no launch that counts, each with the reason.
    - `ended_by_budget`: whether the budget ended the rung before all its launches were done.
    """

    speeds: Mapping[T, Launches]
    reasons: Mapping[T, str] = field(default_factory=dict)
    ended_by_budget: bool = False


@dataclass(frozen=True)
class Dropped(Generic[T]):
    """A setting that was dropped after a rung.

    - `rung`: number of the rung.
    - `reason`: why the setting was dropped.
    - `relative`: speed of the setting, divided by the speed of the setting that was fastest after
      the rung; None: unknown.
    """

    setting: T
    rung: int
    reason: str
    relative: float | None = None


@dataclass(frozen=True)
class HalvingOutcome(Generic[T]):
    """The outcome of a search.

    - `finalists`: the remaining settings, fastest first.
    - `dropped`: all other settings.
    - `rungs`: the rungs that started, each with the number of settings it launched.
    - `ended_by_budget`: whether the budget ended the search.
    """

    finalists: tuple[T, ...]
    dropped: tuple[Dropped[T], ...]
    rungs: tuple[tuple[Rung, int], ...]
    ended_by_budget: bool

    @property
    def blocks(self) -> int:
        """The number of blocks in all rungs."""
        return sum(rung.launches for rung, _ in self.rungs)


def plan_rungs(setting_count: int, first_rung_count: int | None = None) -> list[Rung]:
    """Return the rungs that reduce `setting_count` settings to FINALISTS.

    If there are at most FINALISTS settings, return an empty list. `first_rung_count` is the number
    of settings that the first rung launches (None: all). Up to MAX_EXTRA_RUNGS extra rungs may
    follow the returned rungs. An extra rung has at most as many settings as the rung before it.
    """
    planned: list[Rung] = []
    # The launches of a partial first rung predict the other settings.
    is_partial = first_rung_count is not None and first_rung_count < setting_count
    while setting_count > FINALISTS:
        number = len(planned) + 1
        share = _STEP_SHARES[min(number, len(_STEP_SHARES)) - 1]
        first_block = 1 + sum(rung.launches for rung in planned)
        launched_settings = first_rung_count if first_rung_count and not planned else setting_count
        launches = max(1, number - 1) if is_partial else number
        reduction = _REDUCTION + 1 if is_partial and not planned else _REDUCTION
        planned.append(Rung(number, launched_settings, launches, share, first_block))
        setting_count = max(FINALISTS, math.ceil(setting_count / reduction))
    return planned


def first_rung_settings(settings: Sequence[T], factors: Callable[[T], Factors]) -> list[T]:
    """Return the settings that the first rung launches: all, or about half if there are many."""
    return (
        select_balanced_half({setting: factors(setting) for setting in settings})
        if len(settings) > _MAX_FULL_FIRST_RUNG
        else [*settings]
    )


def search_by_successive_halving(
    settings: Sequence[T],
    factors: Callable[[T], Factors],
    measure: Callable[[Rung, Sequence[T]], Round[T]],
) -> HalvingOutcome[T]:
    """Search for the fastest settings and return the outcome.

    - `factors`: returns the factors of a setting (see `effects.py`).
    - `measure`: launches the given settings as the given rung says.
    """
    remaining, to_launch = [*settings], first_rung_settings(settings, factors)
    setting_factors = {setting: factors(setting) for setting in settings}
    speeds: dict[T, dict[Block, float]] = {setting: {} for setting in remaining}
    dropped: list[Dropped[T]] = []
    done_rungs: list[tuple[Rung, int]] = []
    plan = plan_rungs(len(remaining), len(to_launch))
    planned_count, ended_by_budget = len(plan), False
    while plan and len(remaining) > FINALISTS and not ended_by_budget:
        rung = plan.pop(0)
        rung_round = measure(rung, to_launch)
        done_rungs.append((rung, len(to_launch)))
        ended_by_budget = rung_round.ended_by_budget
        for setting in to_launch:
            speeds[setting].update(rung_round.speeds.get(setting, {}))
        relative = speeds_relative_to_fastest(speeds, setting_factors)
        for setting in remaining:
            if reason := _unrankable_reason(setting, rung_round, to_launch, speeds, relative):
                dropped.append(Dropped(setting, rung.number, reason))
        dropped_settings = {drop.setting for drop in dropped}
        ranked = {
            setting: relative[setting]
            for setting in relative
            if setting in remaining and setting not in dropped_settings
        }
        if not plan and not ended_by_budget and len(done_rungs) < planned_count + MAX_EXTRA_RUNGS:
            plan = _plan_extra_rung(rung, ranked, speeds, setting_factors)
        remaining_count = plan[0].settings if plan and not ended_by_budget else FINALISTS
        remaining = [*ranked][:remaining_count]
        for setting in [*ranked][remaining_count:]:
            reason = "slower" if speeds[setting] else "slower (estimated from similar settings)"
            dropped.append(
                Dropped(setting, rung.number, reason, ranked[setting] / ranked[remaining[0]])
            )
        to_launch = remaining
    return HalvingOutcome(tuple(remaining), tuple(dropped), tuple(done_rungs), ended_by_budget)


def _plan_extra_rung(
    rung: Rung,
    ranked: Mapping[T, float],
    speeds: Mapping[T, Launches],
    factors: Mapping[T, Factors],
) -> list[Rung]:
    """Return a list with one extra rung, or an empty list if none is needed.

    `ranked` has the relative speeds of the remaining settings, fastest first. Without an extra
    rung, the first FINALISTS settings become the finalists. A setting is close to them if it is
    slower than the slowest finalist by at most one standard error. This is the standard error of
    the relative difference in speed between two settings.

    An extra rung is needed if other settings are close to the finalists and the standard error is
    larger than NEGLIGIBLE. The extra rung launches the finalists and the close settings once each.
    """
    deviation = estimate_noise(speeds, factors)
    if deviation is None or len(ranked) <= FINALISTS:
        return []
    launches = stdlib_statistics.fmean(max(1, len(speeds[setting])) for setting in ranked)
    standard_error = deviation * math.sqrt(2 / launches)
    finalist_speed = [*ranked.values()][FINALISTS - 1]
    near_count = sum(
        speed >= finalist_speed * math.exp(-standard_error) for speed in ranked.values()
    )
    if standard_error <= NEGLIGIBLE or near_count <= FINALISTS:
        return []
    return [Rung(rung.number + 1, near_count, 1, _STEP_SHARES[-1], rung.first + rung.launches)]


def _unrankable_reason(
    setting: T,
    rung_round: Round[T],
    launched_settings: Sequence[T],
    speeds: Mapping[T, Launches],
    relative: Mapping[T, float],
) -> str | None:
    """Return why a setting must be dropped without a comparison of its speed; None if it may stay.

    A setting must be dropped in any of these cases:

    - None of its launches in the rung counts.
    - The budget ended before the first launch of the setting.
    - Its speed cannot be estimated, because no launch of a setting with the same work counts.
    """
    if setting in rung_round.reasons:
        return rung_round.reasons[setting]
    if not speeds[setting] and (setting in launched_settings or rung_round.ended_by_budget):
        return "not tried: the budget ran out"
    return (
        None if setting in relative else "not tried: no launch with its kernel and threads counts"
    )


def are_distinguishable_or_negligible(winner: Launches, rivals: Sequence[Launches]) -> bool:
    """Return whether more launches would hardly change the choice between winner and rivals.

    Return True if one of these conditions holds for each rival that has launches:

    - The rival is significantly faster or slower than the winner, all rivals together.
    - With 95 % confidence, the rival is faster than the winner by at most NEGLIGIBLE.

    Return False if the winner has no launch, or if there are too few launches for a confidence
    interval.
    """
    return bool(winner) and all(_are_settled(winner, [*filter(None, rivals)]))


def _are_settled(winner: Launches, rivals: Sequence[Launches]) -> list[bool]:
    """Return for each rival whether it differs from the winner, or is negligibly faster.

    Whether it differs is the verdict that `choose_winner` uses.
    """

    def is_negligible(rival: Launches) -> bool:
        high = pairwise.compare(rival, winner, confidence=_ONE_SIDED).ratio.high
        return high is not None and high <= 1 + NEGLIGIBLE

    comparisons = pairwise.compare_all([(rival, winner) for rival in rivals])
    return [
        comparison.verdict != "not_distinguishable" or is_negligible(rival)
        for rival, comparison in zip(rivals, comparisons, strict=True)
    ]


def undecided_settings_to_repeat(
    winner: T, compared: Sequence[T], speeds: Mapping[T, Launches]
) -> list[T]:
    """Return the settings to launch again: the winner and each rival that is not settled.

    `speeds` also has the settings that were settled earlier. A rival without launches is settled.
    Return an empty list if the winner has launches and all rivals are settled.
    """
    rivals = [setting for setting in compared if setting != winner]
    if not speeds[winner]:
        return [winner, *rivals]
    with_launches = [setting for setting in speeds if setting != winner and speeds[setting]]
    are_settled = _are_settled(speeds[winner], [speeds[setting] for setting in with_launches])
    is_settled = dict(zip(with_launches, are_settled, strict=True))
    unsettled = [rival for rival in rivals if not is_settled.get(rival, True)]
    return [winner, *unsettled] if unsettled else []


def has_spent_share_of_exhaustive(
    spent_s: float,
    all_settings_once_s: float,
    speeds: Iterable[Launches],
    min_launches: int,
    max_launches: int,
) -> bool:
    """Return whether a search has taken MAX_TIME_SHARE of the time of an exhaustive search.

    - `spent_s`: seconds that the search has taken.
    - `all_settings_once_s`: seconds in which an exhaustive search launches each setting once.
    - `speeds`: for each setting, the speeds of its launches. They show how noisy launches are.
    - `min_launches`, `max_launches`: limits of the launches per setting in an exhaustive search.

    An exhaustive search launches every setting until the mean speed of the setting is known. Known
    means: the half-width of its confidence interval is at most the fraction NEGLIGIBLE.
    """
    logs = [
        [math.log(speed) for speed in launches.values()] for launches in speeds if len(launches) > 1
    ]
    if not logs:
        return False
    deviation = math.sqrt(stdlib_statistics.fmean(map(stdlib_statistics.variance, logs)))
    launches_per_setting = statistics.required_launches(
        NEGLIGIBLE, deviation, min_launches, max_launches
    )
    return spent_s >= MAX_TIME_SHARE * launches_per_setting * all_settings_once_s


def choose_winner(winner: T, speeds: Mapping[T, Launches]) -> T:
    """Return `winner`, or a rival that is better according to the confirmation.

    - `winner`: the fastest setting of the rungs.
    - `speeds`: the launches of the confirmation. The other settings in `speeds` are the rivals.

    If rivals are significantly faster than `winner`, return the fastest of these rivals. If
    `winner` has no launch that counts, return the fastest rival that has one.
    """
    winner_launches = speeds.get(winner)
    rivals = {
        setting: launches for setting, launches in speeds.items() if setting != winner and launches
    }
    if not rivals:
        return winner
    if not winner_launches:
        return next(iter(speeds_relative_to_fastest(rivals)))
    comparisons = pairwise.compare_all(
        [(launches, winner_launches) for launches in rivals.values()]
    )
    faster = [
        rival
        for rival, comparison in zip(rivals, comparisons, strict=True)
        if comparison.verdict == "faster"
    ]
    return next(
        iter(speeds_relative_to_fastest({rival: rivals[rival] for rival in faster})), winner
    )
