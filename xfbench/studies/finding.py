"""What an analysis came to, as a value: figures with intervals, an answer, verdicts on claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from xfbench.analysis.statistics import Interval
from xfbench.studies.form import Claim, Scalar

Verdict = Literal["holds", "does not hold", "cannot be told"]
Told = Literal["yes", "no", "unknown"]


@dataclass(frozen=True)
class Value:
    """One figure: of which configuration, at which value `at` of the setting that is varied.

    `interval` is None where there is no launch that counts, or nothing to compare it with;
    `reason` then says why. `fields` are its settings, by which claims choose.
    """

    name: str
    at: str
    x: float | None
    interval: Interval | None
    fields: Mapping[str, Any]
    reason: str | None = None
    note: str = ""

    def matches(self, where: Mapping[str, Scalar]) -> bool:
        """Whether it is one of those that a claim is about."""
        return all(str(self.fields.get(name)) == str(value) for name, value in where.items())


@dataclass(frozen=True)
class Judged:
    """A source's finding, whether it holds here, and by which figures."""

    source: str
    text: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Curve:
    """Points of a line beside the values: x, figure, low, high."""

    name: str
    points: tuple[tuple[float, float, float | None, float | None], ...]


@dataclass(frozen=True)
class Finding:
    """One analysis of a study: `sentence` is the answer, `values` what it rests on.

    `over` names the setting that `at` is of, `unit` what the values are in: "times" for ratios,
    "%" for shares, which are kept as parts of one. `curves` are drawn instead of the
    values where there are any, over `x_title`. `table` is another than that of the values, its
    headers first.
    """

    title: str
    sentence: str
    over: str
    unit: str
    values: tuple[Value, ...]
    judged: tuple[Judged, ...]
    plot: str
    beside: str = ""
    curves: tuple[Curve, ...] = ()
    x_title: str = ""
    notes: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()

    @property
    def says_something(self) -> bool:
        """Whether it rests on anything: a figure, or answers in words."""
        return bool(self.table) or any(one.interval for one in self.values)


def judge(
    claims: Sequence[Claim], values: Sequence[Value], words: Callable[[Interval], str]
) -> tuple[Judged, ...]:
    """Each claim about figures that are to lie between two bounds."""
    return tuple(_bounded(one, values, words) for one in claims if one.best is None)


def verdict(told: Sequence[Told]) -> Verdict:
    """It holds where all figures say so, and does not where one says no.

    One of fewer launches than are indicative says neither.
    """
    if "no" in told:
        return "does not hold"
    return "holds" if told and set(told) == {"yes"} else "cannot be told"


def _bounded(claim: Claim, values: Sequence[Value], words: Callable[[Interval], str]) -> Judged:
    about = [one for one in values if one.matches(claim.where)]
    known = [(one, one.interval) for one in about if one.interval]
    if not known:
        why = "nothing of it was measured here"
        if about and about[0].reason:
            why = about[0].reason
        return Judged(claim.source, claim.text, "cannot be told", why)
    told = [_inside(interval, claim) for _, interval in known]
    order: list[Told] = ["no", "unknown", "yes"]
    listed = sorted(zip(told, known, strict=True), key=lambda pair: order.index(pair[0]))
    figures = [f"{one.name} {one.at}".rstrip() + f": {words(i)}" for _, (one, i) in listed[:3]]
    more = "; …" if len(listed) > 3 else ""
    why = f"{tally(told)} ({'; '.join(figures)}{more})"
    return Judged(claim.source, claim.text, verdict(told), why)


def tally(told: Sequence[Told]) -> str:
    """How many are so, how many otherwise, in words; "" for none."""
    words: dict[Told, str] = {
        "yes": "so",
        "no": "otherwise",
        "unknown": "not to be told by so few launches",
    }
    counts = [(told.count(one), said) for one, said in words.items()]
    return ", ".join(f"{count} of {len(told)} {said}" for count, said in counts if count)


def _inside(interval: Interval, claim: Claim) -> Told:
    if interval.low is None or interval.high is None or interval.label == "smoke":
        return "unknown"
    low, high = claim.bounds
    if low <= interval.low and interval.high <= high:
        return "yes"
    return "no" if interval.high < low or interval.low > high else "unknown"
