"""Changes of the level of step times: on series whose truth is known."""

import numpy as np
import pytest

from xfbench.worker.steady import count_warmup_values, has_level_change


def make_step_times(random, count, spread=0.05, autocorrelation=0.0):
    """Step times around 1 s; neighbours resemble one another as much as that."""
    logs = random.normal(0, spread, count)
    for n in range(1, count):
        logs[n] = autocorrelation * logs[n - 1] + np.sqrt(1 - autocorrelation**2) * logs[n]
    return np.exp(logs)


def share_of_series_with_change(count, spread, autocorrelation):
    random = np.random.default_rng(1)
    series = [make_step_times(random, count, spread, autocorrelation) for _ in range(300)]
    return sum(has_level_change(values) or count_warmup_values(values) for values in series) / 300


@pytest.mark.parametrize("count", [6, 10, 15, 20, 50, 200, 1000])
@pytest.mark.parametrize(("spread", "autocorrelation"), [(0.02, 0), (0.1, 0), (0.02, 0.5)])
def test_steady_series_has_no_change(count, spread, autocorrelation):
    assert share_of_series_with_change(count, spread, autocorrelation) <= 0.01


@pytest.mark.parametrize(("count", "limit"), [(15, 0.12), (20, 0.12), (50, 0.12), (200, 0.03)])
def test_strongly_correlated_steps_are_rarely_taken_for_a_change(count, limit):
    assert share_of_series_with_change(count, 0.1, 0.8) <= limit


@pytest.mark.parametrize(("count", "slow_count"), [(10, 3), (20, 3), (20, 9), (60, 6), (400, 180)])
def test_slow_warmup_is_detected_to_its_end(count, slow_count):
    random = np.random.default_rng(2)
    found = 0
    for _ in range(50):
        values = make_step_times(random, count, 0.03)
        values[:slow_count] *= 1.4
        found += abs(count_warmup_values(values) - slow_count) <= max(1, count // 40)
    assert found >= 48


def test_faster_steps_at_the_start_are_not_warmup():
    values = make_step_times(np.random.default_rng(3), 60, 0.03)
    values[:20] *= 0.6
    assert count_warmup_values(values) == 0 and has_level_change(values)


def test_slow_steps_beyond_the_first_half_are_not_warmup():
    values = make_step_times(np.random.default_rng(3), 60, 0.03)
    values[:40] *= 1.4
    assert count_warmup_values(values) == 0 and has_level_change(values)


def test_slow_steps_at_the_end_are_a_change():
    """In a real launch, the last 45 of 209 steps were 30 % slower."""
    values = make_step_times(np.random.default_rng(3), 209, 0.03, 0.3)
    values[-45:] *= 1.3
    assert count_warmup_values(values) == 0 and has_level_change(values)


def test_slow_step_or_short_burst_is_not_a_change():
    values = make_step_times(np.random.default_rng(4), 60, 0.02)
    values[30] = 50.0
    assert not has_level_change(values) and count_warmup_values(values) == 0
    values[20:26] *= 1.5
    assert not has_level_change(values) and count_warmup_values(values) == 0


def test_small_shift_is_not_a_change():
    values = make_step_times(np.random.default_rng(5), 400, 0.01)
    values[:100] *= 1.04
    assert not has_level_change(values) and count_warmup_values(values) == 0


def test_change_without_noise_is_a_change():
    assert count_warmup_values([2.0] * 4 + [1.0] * 8) == 4
    assert has_level_change([1.0] * 8 + [2.0] * 4)


@pytest.mark.parametrize("values", [[], [1.0], [5.0] * 9, [2.0, 1.0, 1.0, 1.0, 1.0], [0.0] * 30])
def test_few_or_equal_steps_have_no_change(values):
    assert count_warmup_values(values) == 0 and not has_level_change(values)
