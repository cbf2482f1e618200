"""A search like that of `searching.run_search`, and an exhaustive one, on a machine of known speed.

The machine is simulated (`test_halving.py`) or recorded (`tests/measuring/tune.py`). It has:

- `speed`: images per second by setting
- `default`: the default setting
- `factors(setting)`: the factors of a setting, as in `effects.py`
- `launch_seconds(setting)`: seconds of a launch with the usual steps
- `seconds`: seconds of all launches so far
- `launch(setting, share)`: images per second with that share of the steps; None if invalid
- `block(settings, share)`: images per second of one launch of each setting, without invalid ones
"""

from tests.sample_records import make_block
from xfbench import statistics
from xfbench.tuning.halving import (
    Round,
    choose_winner,
    has_spent_share_of_exhaustive,
    search_by_successive_halving,
    undecided_settings_to_repeat,
)

MIN_LAUNCHES, MAX_LAUNCHES = 5, 20


def search(machine):
    """Return the chosen setting, the confirmation's launches and the seconds before it."""

    def measure(rung, settings):
        speeds = {setting: {} for setting in settings}
        for block in rung.blocks:
            for setting, speed in machine.block(settings, rung.share).items():
                speeds[setting][make_block(block)] = speed
        return Round(
            speeds, {setting: "none counts" for setting, blocks in speeds.items() if not blocks}
        )

    winner, runner_up = search_by_successive_halving(
        [*machine.speed], machine.factors, measure
    ).finalists
    search_seconds = machine.seconds
    finalists = [*dict.fromkeys([winner, runner_up, machine.default])]
    speeds = {setting: {} for setting in finalists}
    repeated, once_seconds = finalists, sum(map(machine.launch_seconds, machine.speed))
    for block in range(MAX_LAUNCHES):
        if block >= MIN_LAUNCHES:
            repeated = undecided_settings_to_repeat(winner, repeated, speeds)
            if has_spent_share_of_exhaustive(
                machine.seconds, once_seconds, speeds.values(), MIN_LAUNCHES, MAX_LAUNCHES
            ):
                break
        if not repeated:
            break
        for setting, speed in machine.block(repeated, 1.0).items():
            speeds[setting][make_block(block)] = speed
    return choose_winner(winner, speeds), speeds, search_seconds


def exhaustive_seconds(machine):
    """Return the seconds to launch each setting until its interval is within 2 %, as `run` does."""
    seconds_before = machine.seconds
    for setting in machine.speed:
        speeds = {}
        for count in range(MAX_LAUNCHES):
            if count >= MIN_LAUNCHES and statistics.is_precise(speeds, 0.02):
                break
            if speed := machine.launch(setting, 1.0):
                speeds[make_block(count)] = speed
    exhaustive = machine.seconds - seconds_before
    machine.seconds = seconds_before
    return exhaustive
