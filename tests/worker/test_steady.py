"""From which step on times are steady: on series whose truth is known."""

import numpy as np
import pytest

from xfbench.worker.steady import count_values_before_steady


def make_step_times(random, count, spread=0.05, autocorrelation=0.0):
    """Step times around 1 s; neighbours resemble one another as much as that."""
    logs = random.normal(0, spread, count)
    for n in range(1, count):
        logs[n] = autocorrelation * logs[n - 1] + np.sqrt(1 - autocorrelation**2) * logs[n]
    return np.exp(logs)


@pytest.mark.parametrize("count", [10, 20, 50, 200, 1000])
@pytest.mark.parametrize(("spread", "autocorrelation"), [(0.02, 0), (0.1, 0), (0.02, 0.5)])
def test_steady_series_is_recognized(count, spread, autocorrelation):
    random = np.random.default_rng(1)
    first_steady_steps = [
        count_values_before_steady(make_step_times(random, count, spread, autocorrelation))
        for _ in range(300)
    ]
    assert sum(start > 0 for start in first_steady_steps) <= 6


@pytest.mark.parametrize("count", [20, 60, 400])
def test_slow_warmup_is_detected_to_its_end(count):
    random, slow_count = np.random.default_rng(2), int(0.45 * count)
    for _ in range(50):
        values = make_step_times(random, count, 0.03)
        values[:slow_count] *= 1.4
        assert count_values_before_steady(values) == pytest.approx(
            slow_count, abs=max(1, count // 20)
        )


def test_drifting_steps_are_not_steady_in_the_first_half():
    drift = np.linspace(1, 2, 60) * make_step_times(np.random.default_rng(3), 60, 0.02)
    assert count_values_before_steady(drift) >= 30


def test_slow_step_or_short_burst_is_not_a_change():
    values = make_step_times(np.random.default_rng(4), 60, 0.02)
    values[30] = 50.0
    assert count_values_before_steady(values) == 0
    values[20:26] *= 1.5
    assert count_values_before_steady(values) == 0


@pytest.mark.parametrize("values", [[], [1.0], [5.0] * 9, [2.0] * 4 + [1.0] * 4, [0.0] * 30])
def test_few_or_equal_steps_count_as_steady(values):
    assert count_values_before_steady(values) == 0
