"""A search as `searching.run_search` does it, and an exhaustive one, on a machine that is known.

The machine is simulated (`test_halving.py`) or recorded (`tests/benchmarks/tune.py`). It has
`speed`, by setting; `default`, one of them; `factors(setting)`, as `effects.py` has them;
`takes(setting)`, the seconds of a usual launch; `seconds`, what its launches took so far;
`launch(setting, share)`, with that share of the usual steps: images per second, or None where it
does not count; and `block(settings, share)`, one launch of each after the other: images per second
of those that count.
"""

from xfbench.analysis import statistics
from xfbench.tuning.halving import Round, choose_winner, halve, has_spent_share, settings_to_repeat

MIN_LAUNCHES, MAX_LAUNCHES = 5, 20


def search(machine):
    """The setting taken, the launches of the confirmation, and the seconds before it."""

    def measure(rung, settings):
        speeds = {setting: {} for setting in settings}
        for block in rung.blocks:
            for setting, speed in machine.block(settings, rung.share).items():
                speeds[setting][block, 0] = speed
        return Round(
            speeds, {setting: "none counts" for setting, blocks in speeds.items() if not blocks}
        )

    winner, runner_up = halve([*machine.speed], machine.factors, measure).finalists
    search_seconds = machine.seconds
    finalists = [*dict.fromkeys([winner, runner_up, machine.default])]
    speeds = {setting: {} for setting in finalists}
    repeated, once_seconds = finalists, sum(map(machine.launch_seconds, machine.speed))
    for block in range(MAX_LAUNCHES):
        if block >= MIN_LAUNCHES:
            repeated = settings_to_repeat(winner, repeated, speeds)
            if has_spent_share(
                machine.seconds, once_seconds, speeds.values(), MIN_LAUNCHES, MAX_LAUNCHES
            ):
                break
        if not repeated:
            break
        for setting, speed in machine.block(repeated, 1.0).items():
            speeds[setting][block, 0] = speed
    return choose_winner(winner, speeds), speeds, search_seconds


def exhaustive_seconds(machine):
    """Seconds that it takes to launch everything as `run` does: until within 2 %."""
    seconds_before = machine.seconds
    for setting in machine.speed:
        speeds = []
        for count in range(MAX_LAUNCHES):
            if count >= MIN_LAUNCHES and statistics.is_precise(speeds, 0.02):
                break
            speeds += [speed for speed in [machine.launch(setting, 1.0)] if speed]
    exhaustive = machine.seconds - seconds_before
    machine.seconds = seconds_before
    return exhaustive
