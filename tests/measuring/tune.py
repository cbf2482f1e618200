"""What `tune` finds and costs, against exhaustive search: `make tuning`. A benchmark, not a test.

Every setting is launched equally often as `run` does it, in blocks. Then searches are tried, each
from a seed that splits the blocks in halves: by one of them it is known how fast each setting is,
which the search does not see; from the other it has what it launches, each block drawn anew: the
whole launch, or its first steps, for the seconds that those took. Both leave out what was launched
while the cores lay apart (`xfbench/tuning/repeating.py`), and pay for it. The fastest of many by
few launches looks faster than it is, so that being near it is harder here than it would be near
the truth: how often all launches of the search's half come so near is told too,
and how often the search is near the best of all launches, its own among them. `--of-the-best M`:
settings within a tenth of the fastest are launched M times then, which few launches do not tell
apart; replays have the launches that all settings had.

`--searches N`: as many of `xfbench tune` itself then, on the machine, a seed each; each is held
against all launches but its own. Goes on where it was interrupted.
"""

import argparse
import itertools
import math
import random
import statistics as stdlib_statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tabulate import tabulate

from tests.tuning.trials import exhaustive_seconds, search
from xfbench import progress, session, statistics
from xfbench.cli.options import FRAMEWORKS, parse_list, parse_positive_int
from xfbench.host import core_latency, machine
from xfbench.model.machines import machine_class
from xfbench.model.plan import DEFAULT_TIME_LIMIT, Plan
from xfbench.model.request import Cell, Protocol
from xfbench.planning.scheduling import launch_order
from xfbench.statistics import Launches
from xfbench.store.results_folder import Store
from xfbench.store.tuning_results import Tuning, read_sorted_searches
from xfbench.tuning import repeating
from xfbench.tuning.effects import estimate_noise, speeds_relative_to_fastest
from xfbench.tuning.space import (
    OVER_NAMES,
    Space,
    SpaceRequest,
    build_space,
    describe_setting,
    split_work_allocator_affinity,
)
from xfbench.worker.core_latency import near_cores_latency_seconds

# The quick experiment's, and two of ImageNet's with batches that two cores train in seconds.
BATCHES = {"lenet": (), "convnet": (), "alexnet": (16,), "googlenet": (8,)}
MIN_NEAR_SPEED, MAX_TIME_SHARE, MIN_BEST_SPEED = 0.98, 0.25, 0.9


def main() -> None:
    """Measure, and print a row for each framework and network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="a folder for all of it")
    parser.add_argument("--framework", default=FRAMEWORKS)
    parser.add_argument("--workload", default=",".join(BATCHES))
    parser.add_argument("--launches", type=parse_positive_int, default=10, help="of each setting")
    parser.add_argument(
        "--of-the-best", type=parse_positive_int, default=0, help="of those near the best"
    )
    parser.add_argument(
        "--steps", type=parse_positive_int, help="timed steps of a launch, else as `run`"
    )
    parser.add_argument("--trials", type=parse_positive_int, default=200)
    parser.add_argument("--searches", type=int, default=0, help="of `tune` itself")
    parser.add_argument("--over", action="append", default=[], help="as `tune` has it")
    arguments = parser.parse_args()
    over = {
        name: values.split(",")
        for name, _, values in (option.partition("=") for option in arguments.over)
    }
    assert {*over} <= {*OVER_NAMES}, over
    print(machine_class(machine.describe_machine()))
    replay_rows: list[list] = []
    search_rows: list[list] = []
    for framework, workload in itertools.product(
        parse_list(arguments.framework, str, "--framework") or (),
        parse_list(arguments.workload, str, "--workload") or (),
    ):
        sizes = BATCHES.get(workload, ())
        space_request = SpaceRequest(
            framework, workload, batch_sizes=sizes, over=over, steps=arguments.steps
        )
        space = build_space(space_request, {})
        store = Store(arguments.results)
        cells = [*dict.fromkeys([*space.cells, space.default])]
        launches_by_cell = measure_launches(space, cells, arguments.launches, store)
        best_cells = [
            cell for cell, speed in rank_speeds(launches_by_cell).items() if speed >= MIN_BEST_SPEED
        ]
        launches_by_cell |= measure_launches(
            space, best_cells, max(arguments.launches, arguments.of_the_best), store
        )
        equal_counts = select_blocks(launches_by_cell, range(1, 1 + arguments.launches))
        replays = [
            RecordedMachine(equal_counts, space.default, seed) for seed in range(arguments.trials)
        ]
        speeds_by_all = rank_speeds(launches_by_cell)
        trials = [run_trial(replay, speeds_by_all) for replay in replays]
        facts = [
            len(launches_by_cell),
            f"{launch_spread(launches_by_cell):.1%}",
            describe_setting(next(iter(speeds_by_all))),
        ]
        facts.append(format_share([speed_by_half(replay) >= MIN_NEAR_SPEED for replay in replays]))
        replay_rows.append([framework, workload, *facts, *summarise_trials(trials)])
        print(*replay_rows[-1], file=sys.stderr, flush=True)
        if arguments.searches:
            tune_options = [
                "--framework",
                framework,
                "--workload",
                workload,
                *build_tune_options(arguments, sizes),
            ]
            tunings = run_searches(tune_options, arguments.results, arguments.searches)
            search_rows.append(
                [framework, workload, *summarise_searches(tunings, launches_by_cell, replays)]
            )
            print(*search_rows[-1], file=sys.stderr, flush=True)
    head = ["framework", "network", "settings", "launches differ by", "best of all"]
    head += ["within 2 %: all of a half", "the search", "of all", "farthest"]
    head += ["search, of its time", "with the confirmation", "both held"]
    print(tabulate(replay_rows, head, tablefmt="github", disable_numparse=True))
    if search_rows:
        head = ["framework", "network", "searches", "within 2 %", "farthest", "of its time", "both"]
        print(tabulate(search_rows, head, tablefmt="github", disable_numparse=True))


def build_tune_options(arguments: argparse.Namespace, sizes: tuple[int, ...]) -> list[str]:
    """The rest of `tune`'s command line."""
    batch = ["--batch-size", *map(str, sizes)] if sizes else []
    steps = ["--steps", str(arguments.steps)] if arguments.steps else []
    return [
        *batch,
        *steps,
        *(word for over_option in arguments.over for word in ("--over", over_option)),
    ]


def measure_launches(space: Space, cells: Sequence[Cell], count: int, store: Store) -> dict:
    """Records of these settings, by block, unless no launch of one counts."""
    pairs = tuple((cell, Protocol.fixed(count)) for cell in cells)
    plan = Plan(
        requests=tuple(launch_order(pairs)),
        protocols=pairs,
        pythons={},
        verify=False,
        strict=False,
        time_limit=DEFAULT_TIME_LIMIT,
        data_folders=dict(space.data_folders),
        resume=True,
    )
    finished = session.find_done(plan, store)
    records_by_cell = defaultdict(dict)
    for record in [*finished, *session.run(plan, store, progress.choose_listener())]:
        records_by_cell[record.request.cell()][record.request.launch] = record
    return {
        cell: cell_launches
        for cell, cell_launches in records_by_cell.items()
        if statistics.counted_speeds_by_block(cell_launches.values())
    }


class RecordedMachine:
    """The machine as its launches tell it: see `tests.tuning.trials`."""

    def __init__(self, launches_by_cell: dict, default, seed: int) -> None:
        self.random, self.launches_by_cell, self.default = (
            random.Random(seed),
            launches_by_cell,
            default,
        )
        self.seconds = 0.0
        all_records = [
            record
            for cell_launches in launches_by_cell.values()
            for record in cell_launches.values()
        ]
        self.cores = repeating.CoreMonitor(
            [
                latency_s
                for record in all_records
                for latency_s in core_latency.latencies_of_record(record)
            ]
        )
        blocks = sorted(
            {block for cell_launches in launches_by_cell.values() for block in cell_launches}
        )
        self.random.shuffle(blocks)
        self.blocks, evaluation_blocks = blocks[::2], blocks[1::2]
        self.speed = rank_speeds(select_blocks(launches_by_cell, evaluation_blocks))

    factors = staticmethod(split_work_allocator_affinity)

    def launch_seconds(self, cell) -> float:
        cell_launches = self.launches_by_cell[cell].values()
        return stdlib_statistics.median(record.conditions.seconds for record in cell_launches)

    def launch(self, cell, share: float) -> float | None:
        return self.block([cell], share).get(cell)

    def block(self, settings, share: float) -> dict:
        block, started = self.random.choice(self.blocks), set()

        def launch(cell):
            is_repeated = cell in started
            started.add(cell)
            return self.measure_launch(
                cell, share, self.random.choice(self.blocks) if is_repeated else block
            )

        records = repeating.launch_block(settings, launch, self.cores.decide_and_count_repeat)
        speeds_by_cell = {
            cell: statistics.counted_speeds_by_block([record]) for cell, record in records.items()
        }
        return {
            cell: next(iter(block_speeds.values()))
            for cell, block_speeds in speeds_by_cell.items()
            if block_speeds
        }

    def measure_launch(self, cell, share: float, block: int):
        record = self.launches_by_cell[cell].get(block)
        if record is None or record.measurement is None:
            return None
        short_record, saved_s = keep_first_steps(record, share)
        self.seconds += record.conditions.seconds - saved_s
        self.cores.count_launch_and_add_latencies(record)
        return short_record


def select_blocks(launches_by_cell: dict, blocks: Iterable[int]) -> dict:
    """The launches of these blocks alone."""
    return {
        cell: {block: cell_launches[block] for block in blocks if block in cell_launches}
        for cell, cell_launches in launches_by_cell.items()
    }


def rank_speeds(launches_by_cell: dict) -> dict:
    """Each setting's speed over the fastest's, the fastest first, by all these launches."""
    speeds_by_cell = {
        cell: counted_speeds(cell_launches) for cell, cell_launches in launches_by_cell.items()
    }
    return speeds_relative_to_fastest(
        {cell: cell_speeds for cell, cell_speeds in speeds_by_cell.items() if cell_speeds}
    )


def counted_speeds(records: dict) -> Launches:
    """Speeds, by block, of those whose cores were as near as in the others; all where none is."""
    nearest = near_cores_latency_seconds(
        [
            latency_s
            for record in records.values()
            for latency_s in core_latency.latencies_of_record(record)
        ]
    )
    near_records = {
        block: record
        for block, record in records.items()
        if not repeating.has_distant_cores(record, nearest)
    }
    return {
        statistics.Block("", 0, block, 0): speed
        for block, record in (near_records or records).items()
        for speed in statistics.counted_speeds_by_block([record]).values()
    }


def keep_first_steps(record, share: float):
    """The record of its first steps alone, and the seconds that the others took."""
    measurement, window = record.measurement, record.measurement.window
    count = max(1, round(len(measurement.step_seconds) * share))
    short_measurement = measurement.model_copy(
        update={"step_seconds": measurement.step_seconds[:count]}
    )
    dropped_steps_s = measurement.step_seconds[count:]
    return record.model_copy(update={"measurement": short_measurement}), window * sum(
        dropped_steps_s
    )


def speed_by_half(recorded: RecordedMachine) -> float:
    """How near to the best it is what looks the fastest by all that the search may launch."""
    return recorded.speed[
        next(iter(rank_speeds(select_blocks(recorded.launches_by_cell, recorded.blocks))))
    ]


def run_trial(recorded: RecordedMachine, speeds_by_all: dict) -> tuple[float, float, float, float]:
    """How near its choice is to the best, by one half and `speeds_by_all`; its share of the time.

    That is the search's alone, and all, over exhaustive search's.
    """
    exhaustive_s = exhaustive_seconds(recorded)
    chosen_cell, _, search_s = search(recorded)
    speeds_of_chosen = recorded.speed[chosen_cell], speeds_by_all[chosen_cell]
    return *speeds_of_chosen, search_s / exhaustive_s, recorded.seconds / exhaustive_s


def run_searches(tune_options: list[str], results: Path, count: int) -> list[tuple[Tuning, dict]]:
    """What `xfbench tune` finds with each of so many seeds, and launches by cell and block.

    Without certificates, as the exhaustive search is.
    """
    tunings = []
    for seed in range(count):
        folder = results / "searches" / f"{'-'.join(tune_options[1:4:2])}-{seed}"
        if not read_sorted_searches(folder, print):
            command = [
                sys.executable,
                "-m",
                "xfbench",
                "tune",
                "--no-verify",
                "--resume",
                *tune_options,
            ]
            subprocess.run([*command, "--seed", str(seed), "--results", folder], check=True)
        launches_by_cell = defaultdict(dict)
        for record in Store(folder).records():
            launches_by_cell[record.request.cell()][seed, record.request.launch] = record
        tunings.append((read_sorted_searches(folder, print)[-1], launches_by_cell))
    return tunings


def summarise_searches(
    tunings: list[tuple[Tuning, dict]], launches_by_cell: dict, replays: list[RecordedMachine]
) -> list[str]:
    """How near to the best each of these is, and what it took of an exhaustive search's time.

    The best is known by all launches of usual length but the search's own: those that every setting
    had before, and those of the other searches' confirmations, which are of the best ones.
    """
    exhaustive_s = stdlib_statistics.median(map(exhaustive_seconds, replays))
    relative_bests, shares = [], []
    for tuning, own_launches in tunings:
        other_launches = {
            cell: dict(cell_launches) for cell, cell_launches in launches_by_cell.items()
        }
        for _, search_launches in tunings:
            for cell in other_launches if search_launches is not own_launches else ():
                other_launches[cell].update(search_launches.get(cell, {}))
        relative_bests.append(rank_speeds(other_launches)[tuning.best])
        shares.append(tuning.machine_seconds / exhaustive_s)
    successes = sum(
        speed >= MIN_NEAR_SPEED and share <= MAX_TIME_SHARE
        for speed, share in zip(relative_bests, shares, strict=True)
    )
    time = f"{stdlib_statistics.median(shares):.0%}, {max(shares):.0%} at most"
    return [
        f"{len(tunings)}",
        f"{sum(speed >= MIN_NEAR_SPEED for speed in relative_bests)}",
        f"{min(relative_bests):.3f}",
        time,
        successes,
    ]


def launch_spread(launches_by_cell: dict) -> float:
    """How much launches of one setting differ, beside their blocks: relative standard deviation."""
    speeds_by_cell = {
        cell: counted_speeds(cell_launches) for cell, cell_launches in launches_by_cell.items()
    }
    return estimate_noise(speeds_by_cell, {cell: (cell,) for cell in speeds_by_cell}) or math.nan


def summarise_trials(trials: list) -> list[str]:
    """What is told of them."""
    speeds_by_half, speeds_by_all, search_shares, total_shares = zip(*trials, strict=True)
    successes = [
        speed >= MIN_NEAR_SPEED and share <= MAX_TIME_SHARE
        for speed, share in zip(speeds_by_half, search_shares, strict=True)
    ]
    shares = (
        f"{stdlib_statistics.median(trial_shares):.0%}"
        for trial_shares in (search_shares, total_shares)
    )
    often_near = (
        format_share([speed >= MIN_NEAR_SPEED for speed in trial_speeds])
        for trial_speeds in (speeds_by_half, speeds_by_all)
    )
    return [*often_near, f"{min(speeds_by_half):.3f}", *shares, format_share(successes)]


def format_share(outcomes: list[bool]) -> str:
    """In how many of all trials something held."""
    return f"{sum(outcomes) / len(outcomes):.0%}"


if __name__ == "__main__":
    main()
