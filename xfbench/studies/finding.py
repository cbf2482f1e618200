"""What an analysis came to, as a value: figures with intervals, an answer, verdicts on claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from xfbench.planning.study_form import Claim, Scalar
from xfbench.statistics import Interval

Verdict = Literal["holds", "does not hold", "cannot be told"]
Agreement = Literal["yes", "no", "unknown"]


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

    def matches(self, settings: Mapping[str, Scalar]) -> bool:
        """Whether it is one of those that a claim is about."""
        return all(str(self.fields.get(name)) == str(value) for name, value in settings.items())


@dataclass(frozen=True)
class JudgedClaim:
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
    judged: tuple[JudgedClaim, ...]
    plot: str
    beside: str = ""
    curves: tuple[Curve, ...] = ()
    x_title: str = ""
    notes: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()

    @property
    def has_content(self) -> bool:
        """Whether it rests on anything: a figure, or answers in words."""
        return bool(self.table) or any(value.interval for value in self.values)


def judge_claims(
    claims: Sequence[Claim], values: Sequence[Value], to_text: Callable[[Interval], str]
) -> tuple[JudgedClaim, ...]:
    """Each claim about figures that are to lie between two bounds."""
    return tuple(_judge_bounds(claim, values, to_text) for claim in claims if claim.best is None)


def overall_verdict(agreements: Sequence[Agreement]) -> Verdict:
    """It holds where all figures say so, and does not where one says no.

    One of fewer launches than are indicative says neither.
    """
    if "no" in agreements:
        return "does not hold"
    return "holds" if agreements and set(agreements) == {"yes"} else "cannot be told"


def _judge_bounds(
    claim: Claim, values: Sequence[Value], to_text: Callable[[Interval], str]
) -> JudgedClaim:
    matching = [value for value in values if value.matches(claim.where)]
    measured = [(value, value.interval) for value in matching if value.interval]
    if not measured:
        reason = "nothing of it was measured here"
        if matching and matching[0].reason:
            reason = matching[0].reason
        return JudgedClaim(claim.source, claim.text, "cannot be told", reason)
    agreements = [_agreement(interval, claim) for _, interval in measured]
    order: list[Agreement] = ["no", "unknown", "yes"]
    listed = sorted(zip(agreements, measured, strict=True), key=lambda pair: order.index(pair[0]))
    figures = [
        f"{value.name} {value.at}".rstrip() + f": {to_text(interval)}"
        for _, (value, interval) in listed[:3]
    ]
    more = "; …" if len(listed) > 3 else ""
    reason = f"{tally_text(agreements)} ({'; '.join(figures)}{more})"
    return JudgedClaim(claim.source, claim.text, overall_verdict(agreements), reason)


def tally_text(agreements: Sequence[Agreement]) -> str:
    """How many are so, how many otherwise, in words; "" for none."""
    words: dict[Agreement, str] = {
        "yes": "so",
        "no": "otherwise",
        "unknown": "not to be told by so few launches",
    }
    counts = [(agreements.count(agreement), word) for agreement, word in words.items()]
    return ", ".join(f"{count} of {len(agreements)} {word}" for count, word in counts if count)


def _agreement(interval: Interval, claim: Claim) -> Agreement:
    if interval.low is None or interval.high is None or interval.label == "smoke":
        return "unknown"
    low, high = claim.bounds
    if low <= interval.low and interval.high <= high:
        return "yes"
    return "no" if interval.high < low or interval.low > high else "unknown"
