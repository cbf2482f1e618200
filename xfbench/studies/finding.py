"""The result of an analysis: values with intervals, an answer, and verdicts on claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scipy import special

from xfbench.planning.study_form import Claim, Scalar
from xfbench.statistics import Interval
from xfbench.studies.cells import has_value

Verdict = Literal["holds", "does not hold", "cannot be told"]
Agreement = Literal["yes", "no", "unknown"]


@dataclass(frozen=True)
class Value:
    """The result for one configuration.

    The varied setting is the setting `Finding.over`, whose values the analysis compares.

    - `name`: the configuration in words, without the varied setting.
    - `at`: the value of the varied setting in words; empty if no setting is varied.
    - `x`: the value of the varied setting as a number; None if it is not a number.
    - `interval`: the result with its confidence interval; None if there is no result.
    - `fields`: settings of the configuration by name. The `where` of a claim is compared with them.
    - `reason`: why `interval` is None; None if there is a result.
    - `note`: a remark on the result.
    - `is_mostly_noisy`: whether other activity on the machine disturbed more than half of the
      launches, of this configuration or of its baseline.
    """

    name: str
    at: str
    x: float | None
    interval: Interval | None
    fields: Mapping[str, Any]
    reason: str | None = None
    note: str = ""
    is_mostly_noisy: bool = False

    @property
    def label(self) -> str | None:
        """Return "claim", "indicative" or "smoke" as in a leaderboard; None without a result."""
        label = self.interval.label if self.interval else None
        return "indicative" if label == "claim" and self.is_mostly_noisy else label

    def matches(self, settings: Mapping[str, Scalar]) -> bool:
        """Return whether `fields` contains all of `settings` (see `cells.has_value`)."""
        return all(
            has_value(name, self.fields.get(name), value) for name, value in settings.items()
        )


@dataclass(frozen=True)
class JudgedClaim:
    """A published claim, and whether the claim holds on this machine.

    - `source`: key of the publication.
    - `text`: the claim in words.
    - `verdict`: whether the measured values agree with the claim.
    - `why`: the measured values on which the verdict is based, or why there are none.
    """

    source: str
    text: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Curve:
    """A line to plot.

    Each point is (x, y, lower bound of y, upper bound of y). An unknown bound is None.
    """

    name: str
    points: tuple[tuple[float, float, float | None, float | None], ...]


@dataclass(frozen=True)
class Finding:
    """The result of one analysis.

    - `sentence`: the result in one sentence.
    - `over`: name of the setting that varies among `values`; empty if none varies.
    - `unit`: unit of the values. Ratios have the unit "times". Shares have the unit "%" and are
      stored as fractions.
    - `values`: one result per configuration and value of `over`.
    - `judged`: the claims, each with its verdict.
    - `plot`: how the values are drawn: "bars", "lines" or "none".
    - `beside`: start of a quantity's name. The plot also shows the published values of such
      quantities. Empty: no published values.
    - `curves`: the lines of a second plot; empty: no second plot.
    - `x_title`: name of the x axis of the second plot.
    - `notes`: remarks below the table.
    - `table`: rows of text, shown instead of a table of `values`. The first row has the headers.
      Empty: `values` are shown.
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
        """Whether the finding has a value with a result, a remark, or a table of its own."""
        return bool(self.table or self.notes) or any(value.interval for value in self.values)


def judge_claims_with_bounds(
    claims: Sequence[Claim],
    values: Sequence[Value],
    to_text: Callable[[Interval], str],
    *,
    are_joint: bool = False,
) -> tuple[JudgedClaim, ...]:
    """Return the verdict on each claim that states bounds (`low`, `high`).

    Claims that state the best value (`best`) are left out.

    - `to_text`: writes an interval in words.
    - `are_joint`: whether the intervals of `values` hold all together. If each holds by itself, the
      intervals of a claim are widened before one contradicts it. Otherwise one of many would do so
      by chance.
    """
    return tuple(
        _judge_bounds(claim, values, to_text, are_joint) for claim in claims if claim.best is None
    )


def verdict_if_all_must_agree(agreements: Sequence[Agreement]) -> Verdict:
    """Return the verdict on a claim.

    `agreements` says for each measured value whether it agrees with the claim.

    - "does not hold": at least one value disagrees.
    - "holds": there is at least one value, and all values agree.
    - "cannot be told": all other cases.
    """
    if "no" in agreements:
        return "does not hold"
    return "holds" if agreements and set(agreements) == {"yes"} else "cannot be told"


def _judge_bounds(
    claim: Claim, values: Sequence[Value], to_text: Callable[[Interval], str], are_joint: bool
) -> JudgedClaim:
    matching = [value for value in values if value.matches(claim.where)]
    measured = [(value, value.interval) for value in matching if value.interval]
    if not measured:
        reason = "no matching cell was measured here"
        if matching and matching[0].reason:
            reason = matching[0].reason
        return JudgedClaim(claim.source, claim.text, "cannot be told", reason)
    family = 1 if are_joint else len(measured)
    agreements = [_agreement(interval, claim, family) for _, interval in measured]
    order: list[Agreement] = ["no", "unknown", "yes"]
    _, (value, interval) = min(
        zip(agreements, measured, strict=True), key=lambda pair: order.index(pair[0])
    )
    example = f"{value.name} {value.at}".rstrip() + f": {to_text(interval)}"
    reason = f"{tally_text(agreements)}. {'Example: ' if len(measured) > 1 else ''}{example}"
    if all(interval.low is None or interval.confidence is None for _, interval in measured):
        reason += ". There are too few launches or sessions for an interval"
    return JudgedClaim(claim.source, claim.text, verdict_if_all_must_agree(agreements), reason)


def tally_text(agreements: Sequence[Agreement]) -> str:
    """Return a text with the numbers of values that agree, disagree and are undecided.

    Return "" if `agreements` is empty.
    """
    words: dict[Agreement, str] = {
        "yes": "agree",
        "no": "disagree",
        "unknown": "undecided",
    }
    counts = [(agreements.count(agreement), word) for agreement, word in words.items()]
    return ", ".join(f"{count} of {len(agreements)} {word}" for count, word in counts if count)


def _agreement(interval: Interval, claim: Claim, family: int) -> Agreement:
    """Return whether the interval agrees with the bounds of the claim.

    - "yes": the interval lies between the bounds.
    - "no": the interval lies outside the bounds, also if it is widened so that `family` intervals
      hold together.
    - "unknown": the interval crosses a bound, has no ends, or is based on too few launches. The
      range of fewer than five launches is no confidence interval.
    """
    if interval.low is None or interval.high is None or interval.confidence is None:
        return "unknown"
    if interval.label == "smoke":
        return "unknown"
    low, high = claim.bounds
    if low <= interval.low and interval.high <= high:
        return "yes"
    factor = _widening_factor(interval.confidence, interval.launches, family)
    widened_low, widened_high = (
        _widen(interval.value, end, factor) for end in (interval.low, interval.high)
    )
    return "no" if widened_high < low or widened_low > high else "unknown"


def _widen(value: float, end: float, factor: float) -> float:
    """Return an end of an interval that is `factor` times as far from the value.

    Positive figures are widened as their logarithms, because their intervals are those of
    logarithms.
    """
    if min(value, end) > 0:
        return value * float((end / value) ** factor)
    return value + factor * (end - value)


def _widening_factor(confidence: float, launches: int, family: int) -> float:
    """Return by how much Student's t makes an interval wider if `family` hold together."""
    freedom = max(1, launches - 1)
    single_t, joint_t = (
        float(special.stdtrit(freedom, 1 - (1 - confidence) / count / 2)) for count in (1, family)
    )
    return joint_t / single_t
