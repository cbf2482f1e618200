"""Verdicts on claims whose bounds an interval just reaches."""

import pytest

from xfbench.analysis.statistics import Interval
from xfbench.studies.finding import Value, judge_claims
from xfbench.studies.form import Claim


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.0, 2.0, "holds"),  # just the interval itself
        (1.01, 2.0, "cannot be told"),
        (1.0, 1.99, "cannot be told"),
        (2.0, 3.0, "cannot be told"),  # the ends alone have a value in common
        (0.0, 1.0, "cannot be told"),
        (2.01, 3.0, "does not hold"),
        (0.0, 0.99, "does not hold"),
    ],
)
def test_a_claims_bounds_belong_to_it(low, high, verdict):
    value = Value("a", "", None, Interval(1.5, 1.0, 2.0, 5), {})
    claim = Claim(source="X", text="t", low=low, high=high)
    [judged_claim] = judge_claims([claim], [value], str)
    assert judged_claim.verdict == verdict
