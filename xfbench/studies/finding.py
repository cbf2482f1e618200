"""The result of an analysis: values with intervals, an answer, and verdicts on claims."""

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
    """A figure of one configuration.

    - `name`: the configuration, without the varied setting.
    - `at`: the value of the varied setting in words; empty if no setting is varied.
    - `x`: the value of the varied setting as a number; None if it is not a number.
    - `interval`: the figure; None if no launch counts or there is nothing to compare with.
    - `fields`: the settings of the configuration, by which claims select values.
    - `reason`: why `interval` is None.
    - `note`: a remark on the figure.
    """

    name: str
    at: str
    x: float | None
    interval: Interval | None
    fields: Mapping[str, Any]
    reason: str | None = None
    note: str = ""

    def matches(self, settings: Mapping[str, Scalar]) -> bool:
        """Return whether `fields` has these values. Values are compared as text."""
        return all(str(self.fields.get(name)) == str(value) for name, value in settings.items())


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of a source, and whether it holds here.

    - `source`: the source.
    - `text`: the claim in words.
    - `verdict`: whether the measured figures agree with the claim.
    - `why`: the figures behind the verdict, or why there are none.
    """

    source: str
    text: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Curve:
    """A line to plot. Each point has x, y, and the lower and upper bound of y (None: unknown)."""

    name: str
    points: tuple[tuple[float, float, float | None, float | None], ...]


@dataclass(frozen=True)
class Finding:
    """The result of one analysis.

    - `sentence`: the answer.
    - `over`: name of the varied setting.
    - `unit`: unit of the values: "times" for ratios, "%" for shares (stored as fractions).
    - `judged`: verdicts on claims.
    - `plot`: how the values are drawn: "bars", "lines" or "none".
    - `beside`: published figures whose quantity starts with this text are drawn too; empty: none.
    - `curves`: lines of a second figure, with the x axis `x_title`; empty: no second figure.
    - `notes`: remarks below the table.
    - `table`: a table that replaces the table of values; empty: no replacement. The first row has
      the headers.
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
        """Whether the finding has a figure or a table."""
        return bool(self.table) or any(value.interval for value in self.values)


def judge_claims_with_bounds(
    claims: Sequence[Claim], values: Sequence[Value], to_text: Callable[[Interval], str]
) -> tuple[JudgedClaim, ...]:
    """Return the verdict on each claim that has bounds (`low`, `high`) instead of `best`.

    `to_text` writes an interval in words.
    """
    return tuple(_judge_bounds(claim, values, to_text) for claim in claims if claim.best is None)


def verdict_if_all_must_agree(agreements: Sequence[Agreement]) -> Verdict:
    """Return the verdict on a claim from the agreement of each figure.

    - "does not hold": a figure disagrees.
    - "holds": there are figures, and all agree.
    - "cannot be told": all other cases.
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
        reason = "no matching cell was measured here"
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
    return JudgedClaim(claim.source, claim.text, verdict_if_all_must_agree(agreements), reason)


def tally_text(agreements: Sequence[Agreement]) -> str:
    """Return how many figures agree, disagree or are undecided, in words; "" without figures."""
    words: dict[Agreement, str] = {
        "yes": "agree",
        "no": "disagree",
        "unknown": "undecided",
    }
    counts = [(agreements.count(agreement), word) for agreement, word in words.items()]
    return ", ".join(f"{count} of {len(agreements)} {word}" for count, word in counts if count)


def _agreement(interval: Interval, claim: Claim) -> Agreement:
    """Return whether the interval lies between the claim's bounds.

    The answer is "unknown" if there are too few launches to be indicative, or if the interval
    crosses a bound.
    """
    if interval.low is None or interval.high is None or interval.evidence_label == "smoke":
        return "unknown"
    low, high = claim.bounds
    if low <= interval.low and interval.high <= high:
        return "yes"
    return "no" if interval.high < low or interval.low > high else "unknown"
