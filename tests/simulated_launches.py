"""Simulated launches of cells, whose true speed is known."""

import numpy as np

from tests.sample_records import make_block

SIMULATIONS = 1000
LAUNCH_DEVIATION = 0.03  # deviation of the logarithm of the speed from launch to launch
STEP_DEVIATION = 0.02  # and from step to step


def simulate_speeds(random, launches, truth=100.0, steps=20):
    """Steps' speeds, (launches, steps): each launch has its own level, and steps drift along."""
    level = random.normal(0, LAUNCH_DEVIATION, (launches, 1))
    noise = random.normal(0, STEP_DEVIATION, (launches, steps))
    for step in range(1, steps):  # neighbours resemble one another
        noise[:, step] = 0.6 * noise[:, step - 1] + 0.8 * noise[:, step]
    return truth * np.exp(level + noise)


def medians_by_launch(steps):
    return {make_block(n + 1): float(np.median(row)) for n, row in enumerate(steps)}


def simulate_sessions(random, sessions, launches=5, deviation=0.03, name="", ratio=1.0):
    """Launches of several sessions, whose levels differ with `deviation`."""
    return {
        make_block(n, f"{name}{session}"): value * ratio
        for session in range(sessions)
        for n, value in enumerate(
            100 * np.exp(random.normal(random.normal(0, deviation), 0.01, launches))
        )
    }
