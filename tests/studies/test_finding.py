"""Tests of verdicts on claims whose bounds equal an end of the interval."""

import numpy as np
import pytest
from scipy import stats

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


def judge_simulated(random, truth, count, *, are_joint=False):
    """Return the verdict on "at least 1" from `count` values of five launches each."""
    values = []
    for _ in range(count):
        launches = random.normal(truth, 0.05, 5)
        half = stats.t.ppf(0.975, 4) * launches.std(ddof=1) / np.sqrt(5)
        mean = launches.mean()
        values.append(Value("a", "", None, Interval(mean, mean - half, mean + half, 5), {}))
    claim = Claim(source="X", text="t", low=1.0)
    [judged] = judge_claims_with_bounds([claim], values, str, are_joint=are_joint)
    return judged.verdict


def test_one_of_many_equal_values_rarely_contradicts_a_true_claim():
    """Each interval by itself would contradict it in 2.5 %, and one of 40 in 64 %."""
    random = np.random.default_rng(5)
    verdicts = [judge_simulated(random, 1.0, 40) for _ in range(300)]
    assert verdicts.count("does not hold") <= 0.05 * 300
    as_if_joint = [judge_simulated(random, 1.0, 40, are_joint=True) for _ in range(100)]
    assert as_if_joint.count("does not hold") > 0.4 * 100


def test_a_clear_contradiction_among_many_values_is_found():
    random = np.random.default_rng(6)
    verdicts = [judge_simulated(random, 0.7, 40) for _ in range(20)]
    assert set(verdicts) == {"does not hold"}
