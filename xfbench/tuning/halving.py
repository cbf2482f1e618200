"""Which of many settings is the fastest: successive halving, and how its winner is confirmed.

Values in, values out: what a setting is, how it is launched and what a launch costs is the
caller's (see `searching.py`, and the simulation in the tests). In each rung settings are launched
in blocks, one launch of each a block, and the better part goes on to longer and more launches
(Jamieson and Talwalkar 2016). In the first, half of them stand for all; settings are ranked by all
launches so far (`effects.py`). Where launches of one setting differ so much that those planned do
not tell the best apart, there are further rungs.
"""

from __future__ import annotations

import math
import statistics as stdlib_statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from xfbench import statistics
from xfbench.statistics import Launches
from xfbench.tuning.effects import Factors, estimate_noise, relative_speeds, select_half

T = TypeVar("T", bound=Hashable)

FINALISTS = 2
NEGLIGIBLE = 0.02  # a difference that is not worth more launches
MAX_TIME_SHARE = (
    0.25  # of the time of an exhaustive search, after which the confirmation goes no further
)
_ONE_SIDED = 2 * statistics.CONFIDENCE - 1  # of an interval that 5 % of cases are above
_REDUCTION = 3  # one in so many goes on, and one more where others tell of each
_MAX_FULL_FIRST_RUNG = (
    8  # of which each is launched: what is saved is less than what the confirmation takes
)
_STEP_SHARES = (0.25, 0.5)  # of the usual steps, by rung; never all of them
MAX_EXTRA_RUNGS = 4  # rungs beyond those that are planned, at most


@dataclass(frozen=True)
class Rung:
    """So many settings at most are launched, so often each, with this share of the usual steps.

    Blocks are counted through the whole search; `first` is the number of the rung's first.
    """

    number: int
    settings: int
    launches: int
    share: float
    first: int

    @property
    def blocks(self) -> range:
        return range(self.first, self.first + self.launches)


@dataclass(frozen=True)
class Round(Generic[T]):
    """What a rung gave: images per second of each launch that counts, by its block.

    `reasons` says of settings none of whose launches counts why that is. `ended_by_budget`:
    the budget ended the rung before all launches were done.
    """

    speeds: Mapping[T, Launches]
    reasons: Mapping[T, str] = field(default_factory=dict)
    ended_by_budget: bool = False


@dataclass(frozen=True)
class Dropped(Generic[T]):
    """A setting that did not go on after a rung, and why; its speed over the fastest's by then."""

    setting: T
    rung: int
    reason: str
    relative: float | None = None


@dataclass(frozen=True)
class Halved(Generic[T]):
    """What a search came to: the `finalists`, the fastest first.

    `rungs` are those that were begun, with how many settings each had. `ended_by_budget`: the
    budget ended the search.
    """

    finalists: tuple[T, ...]
    dropped: tuple[Dropped[T], ...]
    rungs: tuple[tuple[Rung, int], ...]
    ended_by_budget: bool

    @property
    def blocks(self) -> int:
        """How many there were."""
        return sum(rung.launches for rung, _ in self.rungs)


def plan_rungs(settings: int, first: int | None = None) -> list[Rung]:
    """What a search among so many settings takes until FINALISTS are left: none for so few.

    Further ones may follow, of as many settings as the last at most: see MAX_EXTRA_RUNGS.
    `first`: how many of them are launched in the first rung, if not all.
    """
    planned: list[Rung] = []
    is_partial = first is not None and first < settings  # of each by others' launches too
    while settings > FINALISTS:
        number = len(planned) + 1
        share = _STEP_SHARES[min(number, len(_STEP_SHARES)) - 1]
        first_block = 1 + sum(rung.launches for rung in planned)
        launched_settings = first if first and not planned else settings
        launches = max(1, number - 1) if is_partial else number
        reduction = _REDUCTION + 1 if is_partial and not planned else _REDUCTION
        planned.append(Rung(number, launched_settings, launches, share, first_block))
        settings = max(FINALISTS, math.ceil(settings / reduction))
    return planned


def first_rung_settings(settings: Sequence[T], factors: Callable[[T], Factors]) -> list[T]:
    """The settings that are launched in the first rung."""
    return (
        select_half({setting: factors(setting) for setting in settings})
        if len(settings) > _MAX_FULL_FIRST_RUNG
        else [*settings]
    )


def halve(
    settings: Sequence[T],
    factors: Callable[[T], Factors],
    measure: Callable[[Rung, Sequence[T]], Round[T]],
) -> Halved[T]:
    """Search among the settings; `measure` does a rung's launches of those that it is given."""
    remaining, to_launch = [*settings], first_rung_settings(settings, factors)
    setting_factors = {setting: factors(setting) for setting in settings}
    speeds: dict[T, dict[tuple[int, int], float]] = {setting: {} for setting in remaining}
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
        relative = relative_speeds(speeds, setting_factors)
        for setting in remaining:
            if reason := _drop_reason(setting, rung_round, to_launch, speeds, relative):
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
            reason = "slower" if speeds[setting] else "slower, as others with its choices tell"
            dropped.append(
                Dropped(setting, rung.number, reason, ranked[setting] / ranked[remaining[0]])
            )
        to_launch = remaining
    return Halved(tuple(remaining), tuple(dropped), tuple(done_rungs), ended_by_budget)


def _plan_extra_rung(
    rung: Rung,
    ranked: Mapping[T, float],
    speeds: Mapping[T, Launches],
    factors: Mapping[T, Factors],
) -> list[Rung]:
    """A launch more of those that may still be finalists, where launches do not tell them apart.

    That is the case if the difference of two settings has a standard error above NEGLIGIBLE. A
    setting that is behind by less than the standard error may still be a finalist.
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


def _drop_reason(
    setting: T,
    rung_round: Round[T],
    launched_settings: Sequence[T],
    speeds: Mapping[T, Launches],
    relative: Mapping[T, float],
) -> str | None:
    """Why a setting cannot go on, whatever its speed."""
    if setting in rung_round.reasons:
        return rung_round.reasons[setting]
    if not speeds[setting] and (setting in launched_settings or rung_round.ended_by_budget):
        return "not tried: the budget was spent"
    return (
        None if setting in relative else "not tried: no launch with its kernel and threads counted"
    )


def is_settled(winner: Launches, rivals: Sequence[Launches]) -> bool:
    """Whether more launches would hardly change who is taken; not while the winner has none.

    Of each rival that has launches it is known that it is faster, or slower, or at least that it is
    not faster by more than NEGLIGIBLE.
    """
    for rival in filter(None, rivals if winner else ()):
        comparison = statistics.compare(rival, winner, confidence=_ONE_SIDED)
        high = comparison.ratio.high
        if high is None:
            return False
        if comparison.verdict == "not_distinguishable" and high > 1 + NEGLIGIBLE:
            return False
    return bool(winner)


def settings_to_repeat(winner: T, compared: Sequence[T], speeds: Mapping[T, Launches]) -> list[T]:
    """Of those compared, who is launched again: the winner, and who might still be taken instead.

    Nobody where that is settled of all.
    """
    rivals = [setting for setting in compared if setting != winner]
    unsettled = [rival for rival in rivals if not is_settled(speeds[winner], [speeds[rival]])]
    return [winner, *unsettled] if unsettled or not speeds[winner] else []


def has_spent_share(
    spent_s: float,
    all_once_s: float,
    speeds: Iterable[Launches],
    min_launches: int,
    max_launches: int,
) -> bool:
    """Whether a search has taken MAX_TIME_SHARE of an exhaustive one's time.

    An exhaustive search launches everything once in `all_once_s` seconds. It repeats that
    `min_launches` to `max_launches` times, until the mean is within NEGLIGIBLE by how much these
    launches of one setting differ.
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
    return spent_s >= MAX_TIME_SHARE * launches_per_setting * all_once_s


def choose_winner(winner: T, speeds: Mapping[T, Launches]) -> T:
    """Whom the confirmation confirms: the search's winner unless others are certainly faster.

    Then the fastest of these, and so where the winner has no launch that counts.
    """
    winner_launches = speeds.get(winner)
    rivals = {
        setting: launches for setting, launches in speeds.items() if setting != winner and launches
    }
    if not rivals:
        return winner
    if not winner_launches:
        return next(iter(relative_speeds(rivals)))
    comparisons = [statistics.compare(launches, winner_launches) for launches in rivals.values()]
    are_certain = statistics.are_distinguishable([comparison.p for comparison in comparisons])
    faster = [
        rival
        for rival, comparison, is_certain in zip(rivals, comparisons, are_certain, strict=True)
        if is_certain and comparison.ratio.value > 1
    ]
    return next(iter(relative_speeds({rival: rivals[rival] for rival in faster})), winner)
