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

from xfbench.analysis import statistics
from xfbench.analysis.statistics import Launches
from xfbench.tuning.effects import Factors, estimate_noise, relative_speeds, select_half

T = TypeVar("T", bound=Hashable)

FINALISTS = 2
NEGLIGIBLE = 0.02  # a difference that is not worth more launches
SHARE = 0.25  # of the time of an exhaustive search, after which the confirmation goes no further
_ONE_SIDED = 2 * statistics.CONFIDENCE - 1  # of an interval that 5 % of cases are above
_REDUCTION = 3  # one in so many goes on, and one more where others tell of each
_FEW = 8  # of which each is launched: what is saved is less than what the confirmation takes
_SHARES = (0.25, 0.5)  # of the usual steps, by rung; never all of them
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

    `reasons` says of settings none of whose launches counts why that is. `spent`: the budget
    ended it before all launches were done.
    """

    speeds: Mapping[T, Launches]
    reasons: Mapping[T, str] = field(default_factory=dict)
    spent: bool = False


@dataclass(frozen=True)
class Dropped(Generic[T]):
    """A setting that did not go on after a rung, and why; its speed over the fastest's by then."""

    setting: T
    rung: int
    reason: str
    relative: float | None = None


@dataclass(frozen=True)
class Halved(Generic[T]):
    """What a search came to: the settings that are `left`, the fastest first.

    `rungs` are those that were begun, with how many settings each had. `spent`: the budget
    ended it.
    """

    left: tuple[T, ...]
    dropped: tuple[Dropped[T], ...]
    rungs: tuple[tuple[Rung, int], ...]
    spent: bool

    @property
    def blocks(self) -> int:
        """How many there were."""
        return sum(rung.launches for rung, _ in self.rungs)


def plan_rungs(settings: int, first: int | None = None) -> list[Rung]:
    """What a search among so many settings takes until FINALISTS are left: none for so few.

    Further ones may follow, of as many settings as the last at most: see FURTHER.
    `first`: how many of them are launched in the first rung, if not all.
    """
    planned: list[Rung] = []
    is_partial = first is not None and first < settings  # of each by others' launches too
    while settings > FINALISTS:
        number = len(planned) + 1
        share = _SHARES[min(number, len(_SHARES)) - 1]
        begun = 1 + sum(one.launches for one in planned)
        launched = first if first and not planned else settings
        often = max(1, number - 1) if is_partial else number
        kept = _REDUCTION + 1 if is_partial and not planned else _REDUCTION
        planned.append(Rung(number, launched, often, share, begun))
        settings = max(FINALISTS, math.ceil(settings / kept))
    return planned


def first_rung_settings(settings: Sequence[T], factors: Callable[[T], Factors]) -> list[T]:
    """The settings that are launched in the first rung."""
    return (
        select_half({one: factors(one) for one in settings})
        if len(settings) > _FEW
        else [*settings]
    )


def halve(
    settings: Sequence[T],
    factors: Callable[[T], Factors],
    measure: Callable[[Rung, Sequence[T]], Round[T]],
) -> Halved[T]:
    """Search among the settings; `measure` does a rung's launches of those that it is given."""
    left, launched = [*settings], first_rung_settings(settings, factors)
    made_of = {one: factors(one) for one in settings}
    speeds: dict[T, dict[tuple[int, int], float]] = {one: {} for one in left}
    dropped: list[Dropped[T]] = []
    done: list[tuple[Rung, int]] = []
    plan = plan_rungs(len(left), len(launched))
    planned, spent = len(plan), False
    while plan and len(left) > FINALISTS and not spent:
        rung = plan.pop(0)
        found = measure(rung, launched)
        done.append((rung, len(launched)))
        spent = found.spent
        for one in launched:
            speeds[one].update(found.speeds.get(one, {}))
        stand = relative_speeds(speeds, made_of)
        for one in left:
            if reason := _drop_reason(one, found, launched, speeds, stand):
                dropped.append(Dropped(one, rung.number, reason))
        gone = {one.setting for one in dropped}
        ranked = {one: stand[one] for one in stand if one in left and one not in gone}
        if not plan and not spent and len(done) < planned + MAX_EXTRA_RUNGS:
            plan = _plan_extra_rung(rung, ranked, speeds, made_of)
        keep = plan[0].settings if plan and not spent else FINALISTS
        left = [*ranked][:keep]
        for one in [*ranked][keep:]:
            reason = "slower" if speeds[one] else "slower, as others with its choices tell"
            dropped.append(Dropped(one, rung.number, reason, ranked[one] / ranked[left[0]]))
        launched = left
    return Halved(tuple(left), tuple(dropped), tuple(done), spent)


def _plan_extra_rung(
    rung: Rung,
    ranked: Mapping[T, float],
    speeds: Mapping[T, Launches],
    factors: Mapping[T, Factors],
) -> list[Rung]:
    """A launch more of those that may still be finalists, where launches do not tell them apart.

    That is where the difference of two settings has a standard error of more than WITHIN, by how
    much launches of one were seen to differ; who is behind by less may still be one.
    """
    deviation = estimate_noise(speeds, factors)
    if deviation is None or len(ranked) <= FINALISTS:
        return []
    launches = stdlib_statistics.fmean(max(1, len(speeds[one])) for one in ranked)
    error = deviation * math.sqrt(2 / launches)
    last = [*ranked.values()][FINALISTS - 1]
    near = sum(stands >= last * math.exp(-error) for stands in ranked.values())
    if error <= NEGLIGIBLE or near <= FINALISTS:
        return []
    return [Rung(rung.number + 1, near, 1, _SHARES[-1], rung.first + rung.launches)]


def _drop_reason(
    setting: T,
    rung_round: Round[T],
    launched: Sequence[T],
    speeds: Mapping[T, Launches],
    stand: Mapping[T, float],
) -> str | None:
    """Why a setting cannot go on, whatever its speed."""
    if setting in rung_round.reasons:
        return rung_round.reasons[setting]
    if not speeds[setting] and (setting in launched or rung_round.spent):
        return "not tried: the budget was spent"
    return None if setting in stand else "not tried: no launch with its kernel and threads counted"


def is_settled(winner: Launches, rivals: Sequence[Launches]) -> bool:
    """Whether more launches would hardly change who is taken; not while the winner has none.

    Of each rival that has launches it is known that it is faster, or slower, or at least that it is
    not faster by more than WITHIN.
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
    rivals = [one for one in compared if one != winner]
    still = [one for one in rivals if not is_settled(speeds[winner], [speeds[one]])]
    return [winner, *still] if still or not speeds[winner] else []


def has_spent_share(
    spent: float, all_once: float, speeds: Iterable[Launches], least: int, most: int
) -> bool:
    """Whether a search has taken its SHARE of an exhaustive one's time: `spent` seconds.

    That would launch everything, which takes `all_once` seconds, as `run` does it: `least` to
    `most` times, until within WITHIN by how much these launches of one setting each differ.
    """
    logs = [[math.log(one) for one in own.values()] for own in speeds if len(own) > 1]
    if not logs:
        return False
    deviation = math.sqrt(stdlib_statistics.fmean(map(stdlib_statistics.variance, logs)))
    often = statistics.required_launches(NEGLIGIBLE, deviation, least, most)
    return spent >= SHARE * often * all_once


def choose_winner(winner: T, speeds: Mapping[T, Launches]) -> T:
    """Whom the confirmation confirms: the search's winner unless others are certainly faster.

    Then the fastest of these, and so where the winner has no launch that counts.
    """
    own = speeds.get(winner)
    rivals = {one: theirs for one, theirs in speeds.items() if one != winner and theirs}
    if not rivals:
        return winner
    if not own:
        return next(iter(relative_speeds(rivals)))
    comparisons = [statistics.compare(theirs, own) for theirs in rivals.values()]
    shown = statistics.are_distinguishable([one.p for one in comparisons])
    faster = [
        one
        for one, against, certain in zip(rivals, comparisons, shown, strict=True)
        if certain and against.ratio.value > 1
    ]
    return next(iter(relative_speeds({one: rivals[one] for one in faster})), winner)
