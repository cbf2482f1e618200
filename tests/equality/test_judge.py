"""Tolerances come from rounding; missing and non-finite results always fail."""

import math

import numpy as np
import pytest

from xfbench.equality import cases, judge
from xfbench.equality.oracle import Expected
from xfbench.worker import folding
from xfbench.workloads import workloads

[CASE, _] = cases.own_and_scaled_whole_network_cases(workloads()["lenet"], 0)
TRUTH = {
    "rate": np.array(0.01),
    "gradient/conv1/weight": np.array([3.0, 4.0]),
    "output/conv1": np.array([1.0]),
    "test_loss": np.array([2.3]),
}
DRAWS = tuple(
    {"gradient/conv1/weight": deviation, "output/conv1": 0.0, "test_loss": 0.0}
    for deviation in (1e-6, 3e-6)
)
EXPECTED = Expected(CASE, TRUTH, DRAWS)


def compare(precision="float32", **changes):
    measured = {**TRUTH, **changes}
    measured = {key: value for key, value in measured.items() if value is not None}
    return {
        deviation.quantity: deviation for deviation in judge.compare(EXPECTED, precision, measured)
    }


def test_equal_results_pass_and_the_rate_is_not_compared():
    deviations = compare()
    assert set(deviations) == set(TRUTH) - {"rate"}
    assert all(deviation.is_within_tolerance for deviation in deviations.values())


def test_tolerance_is_10_times_the_largest_draw_plus_rounding():
    allowed = compare()["gradient/conv1/weight"].allowed
    assert allowed == pytest.approx(10 * 3e-6 + 32 * 2**-23 * 5)
    assert compare("float64")["gradient/conv1/weight"].allowed == pytest.approx(
        10 * 3e-6 * 2**-29 + 1e-8 * 5
    )


@pytest.mark.parametrize(("factor", "is_within"), [(0.99, True), (1.01, False)])
def test_error_is_judged_by_its_norm(factor, is_within):
    name = "gradient/conv1/weight"
    allowed = compare()[name].allowed
    deviation = compare(**{name: np.array([3.0 + factor * allowed, 4.0])})[name]
    assert deviation.is_within_tolerance == is_within
    assert deviation.excess == pytest.approx(factor, rel=1e-6)
    assert deviation.relative_error == pytest.approx(factor * allowed / 5, rel=1e-6)


@pytest.mark.parametrize(
    "value", [None, np.array([np.nan, 4.0]), np.array([np.inf, 4.0]), np.array([3.0, 4.0, 5.0])]
)
def test_missing_nonfinite_or_misshapen_result_fails(value):
    deviation = compare(**{"gradient/conv1/weight": value})["gradient/conv1/weight"]
    assert not deviation.is_within_tolerance
    assert deviation.excess == math.inf


@pytest.mark.parametrize(("value", "excess"), [(0.0, 0.0), (1e-30, math.inf)])
def test_zero_expectation_accepts_only_zero(value, excess):
    """For example, the gradient of a bias before a batch norm is 0 in every draw."""
    truth = {**TRUTH, "step1/conv1/bias": np.array([0.0])}
    draws = tuple({**draw, "step1/conv1/bias": 0.0} for draw in DRAWS)
    measured = {**truth, "step1/conv1/bias": np.array([value])}
    compared = judge.compare(Expected(CASE, truth, draws), "float32", measured)
    [bias_deviation] = [
        deviation for deviation in compared if deviation.quantity == "step1/conv1/bias"
    ]
    assert bias_deviation.excess == excess
    assert bias_deviation.is_within_tolerance == (value == 0.0)


def test_missing_output_is_not_counted_as_an_error():
    assert "output/conv1" not in compare(**{"output/conv1": None})


def test_deviation_names_its_kind_parameter_layer_and_step():
    deviation = compare()["gradient/conv1/weight"]
    assert (deviation.kind, deviation.name, deviation.layer, deviation.step) == (
        "gradient",
        "conv1/weight",
        "conv1",
        None,
    )


@pytest.mark.parametrize("count", [62, 100, 509])
def test_folded_result_has_about_the_same_distance(count):
    """The results of a kit for a GPU are folded, so that those of deep networks are small."""
    random = np.random.RandomState(count)
    name, truth = "gradient/fc/weight", random.normal(size=count)
    draws = ({name: 1e-6},)
    expected = Expected(CASE, {name: truth}, draws)
    off = truth.copy()
    off[7] += 1e-2
    for result in (truth, off, truth + 1e-3 * random.normal(size=count)):
        [full] = judge.compare(expected, "float32", {name: result})
        [folded] = judge.compare(expected, "float32", {name: folding.fold(result)})
        assert folded.allowed == full.allowed
        assert folded.error == pytest.approx(full.error, rel=0.6, abs=1e-12)
        assert folded.is_within_tolerance == full.is_within_tolerance == (result is truth)


def test_only_tensors_may_be_folded():
    scores = np.arange(100.0)
    expected = Expected(CASE, {"test_scores": scores}, ({"test_scores": 0.0},))
    [deviation] = judge.compare(expected, "float32", {"test_scores": folding.fold(scores)})
    assert deviation.error == math.inf
    assert folding.fold(np.arange(61.0)).tolist() == list(range(61))
