"""Limits of `compare --fail-on`: which comparisons exceed them, and what they could have found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from xfbench.analysis.comparison import CellComparison
from xfbench.base import errors

# A cell is certainly beyond the limit; else, a cell is not checked or too noisy; else, "PASS".
# More launches (pairs, sessions) of each side than this take longer than to find a quiet machine.
_MOST_WORTHWHILE = 50
LimitOutcome: TypeAlias = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True)
class FailLimit:
    """A limit of `--fail-on`: A is "slower" or "faster" than B by at least `min_change`.

    - `text`: the limit as the user wrote it, such as "slower:5%".
    - `must_find`: a change that must be found with a probability of 80 %; None: any.
    """

    text: str
    verdict: Literal["slower", "faster"]
    min_change: float
    must_find: float | None = None

    @classmethod
    def parse(cls, text: str, must_find: float | None = None) -> FailLimit:
        """Return the limit of text such as "slower:5%". "slower" alone means 0 %.

        Raises UsageError if the text is invalid.
        """
        verdict, _, share = text.partition(":")
        min_change = _parse_change(share or "0")
        if must_find is not None and min_change is not None and must_find <= min_change:
            raise errors.UsageError(
                f"--must-find {must_find:.3g}: give more than the {min_change:.3g} of --fail-on, "
                "because a change must be larger than the limit to exceed it certainly"
            )
        if verdict == "slower" and min_change is not None and min_change < 1:
            return cls(text, "slower", min_change, must_find)
        if verdict == "faster" and min_change is not None:
            return cls(text, "faster", min_change, must_find)
        raise errors.UsageError(f"--fail-on {text}: write slower:5% or faster:5%")

    def is_exceeded(self, comparison: CellComparison) -> bool:
        """Return whether the whole interval of the ratio is beyond the limit."""
        if comparison.verdict != self.verdict:
            return False
        ratio = comparison.figures.ratio
        if self.verdict == "faster":
            return ratio.low is not None and ratio.low >= 1 + self.min_change
        return ratio.high is not None and ratio.high <= 1 - self.min_change

    def _is_certainly_opposite(self, comparison: CellComparison) -> bool:
        """Return whether A is certainly faster, so that it cannot be slower, or the reverse."""
        return comparison.verdict == ("faster" if self.verdict == "slower" else "slower")

    def list_problems(
        self, comparisons: Sequence[CellComparison], gaps: Sequence[str]
    ) -> list[str]:
        """Return a line for each cell beyond the limit, and for each that could not be checked.

        `gaps`: lines about cells that were not compared.
        """
        exceeded = [f"{row.a} is {self.verdict}" for row in comparisons if self.is_exceeded(row)]
        unknown = [f"{row.a}: {row.reason}" for row in comparisons if row.verdict is None]
        blind = [
            f"too noisy: {row.a}: only a {self.change_word} of {change:.1%} would probably be "
            f"found, not of {self.must_find:.1%}: {self._advise(row, self.must_find)}"
            for row in comparisons
            if self.must_find
            and not self.is_exceeded(row)
            and not self._is_certainly_opposite(row)
            and (change := self.detectable_change(row) or 0) > self.must_find
        ]
        return [*exceeded, *blind, *(f"not checked: {line}" for line in (*unknown, *gaps))]

    def describe_detectable_change(self, comparisons: Sequence[CellComparison]) -> str:
        """Return which change would have been found in each cell; empty if none is known."""
        changes = [self.detectable_change(row) for row in comparisons]
        known_changes = [change for change in changes if change is not None]
        if not known_changes:
            return ""
        return (
            f"a {self.change_word} of {max(known_changes):.1%} would have been found in each "
            "checked cell with a probability of 80 % or more"
        )

    def document(
        self, comparisons: Sequence[CellComparison], gaps: Sequence[str]
    ) -> dict[str, Any]:
        """Return the outcome as `compare --json` prints it. `gaps`: as in `list_problems`."""
        problems = self.list_problems(comparisons, gaps)
        return {
            "limit": self.text,
            "must_find": self.must_find,
            "passed": not problems,
            "outcome": judge_limits([self], comparisons, gaps).lower(),
            "problems": problems,
            "detectable_changes": [self.detectable_change(row) for row in comparisons],
        }

    @property
    def change_word(self) -> str:
        """Return "slowdown" or "speed-up"."""
        return "slowdown" if self.verdict == "slower" else "speed-up"

    def detectable_change(self, comparison: CellComparison) -> float | None:
        """Return the true change that such launches show with a probability of 80 %.

        It is larger than the limit, because the whole interval must be beyond the limit. Return
        None if nothing can be shown.
        """
        visible = comparison.figures.smallest_visible_difference
        if visible is None or comparison.verdict is None:
            return None
        if self.verdict == "faster":
            return (1 + self.min_change) * (1 + visible) - 1
        return 1 - (1 - self.min_change) / (1 + visible)

    def _advise(self, comparison: CellComparison, change: float) -> str:
        """Return what would show `change`: a quieter machine, or more launches if they are few."""
        advice = "use a quieter machine"
        count = self._count_to_find(comparison, change)
        if count <= _MOST_WORTHWHILE:
            advice += f", or about {comparison.figures.describe_count(count)}"
        if comparison.noisy:
            advice += f" ({comparison.noisy} of {comparison.launches} launches were disturbed)"
        return advice

    def _count_to_find(self, comparison: CellComparison, change: float) -> int:
        """Return about how many launches (pairs, sessions) of each side show `change`.

        The width of an interval is taken to fall with the square root of their number.
        `detectable_change` of `comparison` is not None.
        """
        visible = comparison.figures.smallest_visible_difference
        assert visible is not None
        limit, true_ratio = (
            (1 + self.min_change, 1 + change)
            if self.verdict == "faster"
            else (1 - self.min_change, 1 - change)
        )
        times_as_narrow = math.log1p(visible) / abs(math.log(true_ratio / limit))
        return math.ceil(comparison.figures.ratio.launches * times_as_narrow**2)


def judge_limits(
    limits: Sequence[FailLimit], comparisons: Sequence[CellComparison], gaps: Sequence[str]
) -> LimitOutcome:
    """Return the outcome of all limits together. `gaps`: as in `FailLimit.list_problems`."""
    if any(limit.is_exceeded(row) for limit in limits for row in comparisons):
        return "FAIL"
    if any(limit.list_problems(comparisons, gaps) for limit in limits):
        return "INCONCLUSIVE"
    return "PASS"


def _parse_change(text: str) -> float | None:
    """Return the number of text such as "5%" or "5", as a share; None if it is no such number."""
    with suppress(ValueError):
        change = float(text.removesuffix("%")) / 100
        return change if 0 <= change < math.inf else None
    return None
