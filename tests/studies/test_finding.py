"""Tests of verdicts on claims whose bounds equal an end of the interval."""

import pytest

from xfbench.planning.study_form import Claim
from xfbench.statistics import Interval
from xfbench.studies.finding import Value, judge_claims_with_bounds


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.0, 2.0, "holds"),  # the interval itself
        (1.01, 2.0, "cannot be told"),
        (1.0, 1.99, "cannot be told"),
        (2.0, 3.0, "cannot be told"),  # only an end is shared
        (0.0, 1.0, "cannot be told"),
        (2.01, 3.0, "does not hold"),
        (0.0, 0.99, "does not hold"),
    ],
)
def test_claim_bounds_are_inclusive(low, high, verdict):
    value = Value("a", "", None, Interval(1.5, 1.0, 2.0, 5), {})
    claim = Claim(source="X", text="t", low=low, high=high)
    [judged_claim] = judge_claims_with_bounds([claim], [value], str)
    assert judged_claim.verdict == verdict
