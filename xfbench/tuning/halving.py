"""Which of many settings is the fastest: successive halving, and how its winner is confirmed.

Values in, values out: what a setting is, how it is launched and what a launch costs is the
caller's (see `searching.py`, and the simulation in the tests). In each rung every setting that
is left is launched in blocks, one launch of each a block, and the better part goes on to longer
and more launches (Jamieson and Talwalkar 2016). Settings are ranked by all their launches so
far, within blocks, so that what the machine did meanwhile falls out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Generic, TypeVar

from xfbench import statistics
from xfbench.statistics import Launches

T = TypeVar("T", bound=Hashable)

FINALISTS = 2
WITHIN = 0.02  # a difference that is not worth more launches
_KEPT = 3  # one in so many goes on
_SHARES = (0.25, 0.5)  # of the usual steps, by rung; never all of them


@dataclass(frozen=True)
class Rung:
    """At most so many settings, launched so often each, with this share of the usual steps.

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


def rungs(settings: int) -> list[Rung]:
    """What a search among so many settings takes until FINALISTS are left: none for so few."""
    found: list[Rung] = []
    while settings > FINALISTS:
        number = len(found) + 1
        share = _SHARES[min(number, len(_SHARES)) - 1]
        first = 1 + sum(one.launches for one in found)
        found.append(Rung(number, settings, number, share, first))
        settings = max(FINALISTS, math.ceil(settings / _KEPT))
    return found


def relative(speeds: Mapping[T, Launches]) -> dict[T, float]:
    """Each setting's speed over the fastest's, the fastest first; all need a launch.

    Geometric means over launches, each relative to its block's level, which is that of the settings
    with a launch in every block, so that who misses one is neither better nor worse for it.
    """
    logs = {
        one: {block: math.log(speed) for block, speed in own.items()} for one, own in speeds.items()
    }
    blocks = {block for own in logs.values() for block in own}
    whole = [own for own in logs.values() if own.keys() == blocks] or [*logs.values()]
    level = {block: fmean(own[block] for own in whole if block in own) for block in blocks}
    mean = {one: fmean(own[block] - level[block] for block in own) for one, own in logs.items()}
    most = max(mean.values(), default=0.0)
    order = sorted(mean, key=lambda one: -mean[one])
    return {one: math.exp(mean[one] - most) for one in order}


def halve(settings: Sequence[T], measure: Callable[[Rung, Sequence[T]], Round[T]]) -> Halved[T]:
    """Search among the settings; `measure` does a rung's launches of those that are left."""
    left = list(settings)
    speeds: dict[T, dict[tuple[int, int], float]] = {one: {} for one in left}
    dropped: list[Dropped[T]] = []
    done: list[tuple[Rung, int]] = []
    plan = rungs(len(left))
    spent = False
    for rung, following in itertools.pairwise([*plan, None]):
        if rung is None or len(left) <= FINALISTS:
            break
        found = measure(rung, left)
        done.append((rung, len(left)))
        spent = found.spent
        for one in left:
            speeds[one].update(found.speeds.get(one, {}))
            if not speeds[one] or one in found.reasons:
                reason = found.reasons.get(one, "not tried: the budget was spent")
                dropped.append(Dropped(one, rung.number, reason))
        gone = {one.setting for one in dropped}
        standing = relative({one: speeds[one] for one in left if one not in gone})
        keep = following.settings if following and not spent else FINALISTS
        left = [*standing][:keep]
        for one in [*standing][len(left) :]:
            dropped.append(Dropped(one, rung.number, "slower", standing[one]))
    return Halved(tuple(left), tuple(dropped), tuple(done), spent)


def settled(winner: Launches, rivals: Sequence[Launches]) -> bool:
    """Whether more launches would hardly change who is taken; not while the winner has none.

    Of each rival that has launches it is known that it is faster, or slower, or at least that it is
    not faster by more than WITHIN.
    """
    for found in (statistics.compare(rival, winner) for rival in rivals if rival and winner):
        high = found.ratio.high
        if high is None:
            return False
        if found.verdict == "not_distinguishable" and high > 1 + WITHIN:
            return False
    return bool(winner)


def taken(winner: T, speeds: Mapping[T, Launches]) -> T:
    """Whom the confirmation confirms: the search's winner unless others are certainly faster.

    Then the fastest of these, and so where the winner has no launch that counts.
    """
    own = speeds.get(winner)
    rivals = {one: theirs for one, theirs in speeds.items() if one != winner and theirs}
    if not rivals:
        return winner
    if not own:
        return next(iter(relative(rivals)))
    found = [statistics.compare(theirs, own) for theirs in rivals.values()]
    shown = statistics.distinguishable([one.p for one in found])
    faster = [
        one
        for one, against, certain in zip(rivals, found, shown, strict=True)
        if certain and against.ratio.value > 1
    ]
    return next(iter(relative({one: rivals[one] for one in faster})), winner)
