"""A search as `searching.run_search` does it, and an exhaustive one, on a machine that is known.

The machine is simulated (`test_halving.py`) or recorded (`tests/benchmarks/tune.py`). It has
`speed`, by setting; `default`, one of them; `factors(setting)`, as `effects.py` has them;
`takes(setting)`, the seconds of a usual launch; `seconds`, what its launches took so far;
`launch(setting, share)`, with that share of the usual steps: images per second, or None where it
does not count; and `block(settings, share)`, one launch of each after the other: images per second
of those that count.
"""

from xfbench import statistics
from xfbench.tuning.halving import Round, choose_winner, halve, has_spent_share, settings_to_repeat

LEAST, MOST = 5, 20


def tuned(machine):
    """The setting taken, the launches of the confirmation, and the seconds before it."""

    def measure(rung, left):
        speeds = {one: {} for one in left}
        for block in rung.blocks:
            for one, speed in machine.block(left, rung.share).items():
                speeds[one][block, 0] = speed
        return Round(speeds, {one: "none counts" for one, own in speeds.items() if not own})

    winner, runner_up = halve([*machine.speed], machine.factors, measure).finalists
    searched = machine.seconds
    compared = [*dict.fromkeys([winner, runner_up, machine.default])]
    speeds = {one: {} for one in compared}
    wanted, all_once = compared, sum(map(machine.takes, machine.speed))
    for block in range(MOST):
        if block >= LEAST:
            wanted = settings_to_repeat(winner, wanted, speeds)
            if has_spent_share(machine.seconds, all_once, speeds.values(), LEAST, MOST):
                break
        if not wanted:
            break
        for one, speed in machine.block(wanted, 1.0).items():
            speeds[one][block, 0] = speed
    return choose_winner(winner, speeds), speeds, searched


def exhaustive(machine):
    """Seconds that it takes to launch everything as `run` does: until within 2 %."""
    before = machine.seconds
    for one in machine.speed:
        speeds = []
        for count in range(MOST):
            if count >= LEAST and statistics.is_precise(speeds, 0.02):
                break
            speeds += [speed for speed in [machine.launch(one, 1.0)] if speed]
    taken_by_all = machine.seconds - before
    machine.seconds = before
    return taken_by_all
