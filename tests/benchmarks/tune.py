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

from tests.tuning.trials import exhaustive, tuned
from xfbench.analysis import statistics
from xfbench.analysis.statistics import Launches
from xfbench.cli.options import FRAMEWORKS, parse_list, positive_int
from xfbench.host import handover, machine
from xfbench.plan import Plan
from xfbench.records.machines import machine_class
from xfbench.request import Cell, Protocol
from xfbench.results import lookup
from xfbench.results.store import Store
from xfbench.running import progress
from xfbench.running.launch import DEFAULT_TIME_LIMIT
from xfbench.scheduling import launch_order
from xfbench.tuning import repeating
from xfbench.tuning.effects import estimate_noise, relative_speeds
from xfbench.tuning.saved import Tuning, read_folder
from xfbench.tuning.space import (
    OVER_NAMES,
    Space,
    SpaceRequest,
    build_space,
    describe_setting,
    split_factors,
)
from xfbench.worker import distance

# The quick experiment's, and two of ImageNet's with batches that two cores train in seconds.
BATCHES = {"lenet": (), "convnet": (), "alexnet": (16,), "googlenet": (8,)}
NEAR, SHARE, CLOSE = 0.98, 0.25, 0.9


def main() -> None:
    """Measure, and print a row for each framework and network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="a folder for all of it")
    parser.add_argument("--framework", default=FRAMEWORKS)
    parser.add_argument("--workload", default=",".join(BATCHES))
    parser.add_argument("--launches", type=positive_int, default=10, help="of each setting")
    parser.add_argument(
        "--of-the-best", type=positive_int, default=0, help="of those near the best"
    )
    parser.add_argument("--steps", type=positive_int, help="timed steps of a launch, else as `run`")
    parser.add_argument("--trials", type=positive_int, default=200)
    parser.add_argument("--searches", type=int, default=0, help="of `tune` itself")
    parser.add_argument("--over", action="append", default=[], help="as `tune` has it")
    chosen = parser.parse_args()
    over = {
        name: values.split(",") for name, _, values in (one.partition("=") for one in chosen.over)
    }
    assert {*over} <= {*OVER_NAMES}, over
    print(machine_class(machine.describe()))
    rows: list[list] = []
    own: list[list] = []
    for framework, workload in itertools.product(
        parse_list(chosen.framework, str, "--framework") or (),
        parse_list(chosen.workload, str, "--workload") or (),
    ):
        sizes = BATCHES.get(workload, ())
        asked = SpaceRequest(framework, workload, batch_sizes=sizes, over=over, steps=chosen.steps)
        searched = build_space(asked, {})
        store = Store(chosen.results)
        cells = [*dict.fromkeys([*searched.cells, searched.default])]
        launched = launches(searched, cells, chosen.launches, store)
        best = [one for one, speed in speeds(launched).items() if speed >= CLOSE]
        launched |= launches(searched, best, max(chosen.launches, chosen.of_the_best), store)
        alike = of_blocks(launched, range(1, 1 + chosen.launches))
        replays = [Recorded(alike, searched.default, seed) for seed in range(chosen.trials)]
        by_all = speeds(launched)
        trials = [trial(one, by_all) for one in replays]
        facts = [len(launched), f"{spread(launched):.1%}", describe_setting(next(iter(by_all)))]
        facts.append(often([by_half(one) >= NEAR for one in replays]))
        rows.append([framework, workload, *facts, *summary(trials)])
        print(*rows[-1], file=sys.stderr, flush=True)
        if chosen.searches:
            line = ["--framework", framework, "--workload", workload, *again(chosen, sizes)]
            found = searches(line, chosen.results, chosen.searches)
            own.append([framework, workload, *on_machine(found, launched, replays)])
            print(*own[-1], file=sys.stderr, flush=True)
    head = ["framework", "network", "settings", "launches differ by", "best of all"]
    head += ["within 2 %: all of a half", "the search", "of all", "farthest"]
    head += ["search, of its time", "with the confirmation", "both held"]
    print(tabulate(rows, head, tablefmt="github", disable_numparse=True))
    if own:
        head = ["framework", "network", "searches", "within 2 %", "farthest", "of its time", "both"]
        print(tabulate(own, head, tablefmt="github", disable_numparse=True))


def again(chosen: argparse.Namespace, sizes: tuple[int, ...]) -> list[str]:
    """The rest of `tune`'s command line."""
    batch = ["--batch-size", *map(str, sizes)] if sizes else []
    steps = ["--steps", str(chosen.steps)] if chosen.steps else []
    return [*batch, *steps, *(word for one in chosen.over for word in ("--over", one))]


def launches(searched: Space, cells: Sequence[Cell], count: int, store: Store) -> dict:
    """Records of these settings, by block, unless no launch of one counts."""
    pairs = tuple((cell, Protocol.fixed(count)) for cell in cells)
    whole = Plan(
        requests=tuple(launch_order(pairs)),
        protocols=pairs,
        pythons={},
        verify=False,
        strict=False,
        time_limit=DEFAULT_TIME_LIMIT,
        data_folders=dict(searched.data_folders),
    )
    done = lookup.finished_records(whole.requests, store)
    of_cells = defaultdict(dict)
    for record in [*done, *progress.measure(whole, store, done)]:
        of_cells[record.request.cell()][record.request.launch] = record
    return {cell: own for cell, own in of_cells.items() if statistics.launch_speeds(own.values())}


class Recorded:
    """The machine as its launches tell it: see `tests.tuning.trials`."""

    def __init__(self, launched: dict, default, seed: int) -> None:
        self.random, self.launched, self.default = random.Random(seed), launched, default
        self.seconds = 0.0
        every = [one for own in launched.values() for one in own.values()]
        self.cores = repeating.CoreMonitor(
            [one for record in every for one in handover.record_latencies(record)]
        )
        blocks = sorted({block for own in launched.values() for block in own})
        self.random.shuffle(blocks)
        self.blocks, known = blocks[::2], blocks[1::2]
        self.speed = speeds(of_blocks(launched, known))

    factors = staticmethod(split_factors)

    def takes(self, cell) -> float:
        own = self.launched[cell].values()
        return stdlib_statistics.median(one.conditions.seconds for one in own)

    def launch(self, cell, share: float) -> float | None:
        return self.block([cell], share).get(cell)

    def block(self, settings, share: float) -> dict:
        block, begun = self.random.choice(self.blocks), set()

        def launch(cell):
            again = cell in begun
            begun.add(cell)
            return self.one(cell, share, self.random.choice(self.blocks) if again else block)

        found = repeating.launch_block(settings, launch, self.cores.should_repeat)
        given = {cell: statistics.launch_speeds([one]) for cell, one in found.items()}
        return {cell: next(iter(own.values())) for cell, own in given.items() if own}

    def one(self, cell, share: float, block: int):
        record = self.launched[cell].get(block)
        if record is None or record.measurement is None:
            return None
        shorter, saved = first(record, share)
        self.seconds += record.conditions.seconds - saved
        self.cores.add_record(record)
        return shorter


def of_blocks(launched: dict, blocks: Iterable[int]) -> dict:
    """The launches of these blocks alone."""
    return {
        cell: {block: own[block] for block in blocks if block in own}
        for cell, own in launched.items()
    }


def speeds(launched: dict) -> dict:
    """Each setting's speed over the fastest's, the fastest first, by all these launches."""
    found = {cell: counted(own) for cell, own in launched.items()}
    return relative_speeds({cell: own for cell, own in found.items() if own})


def counted(records: dict) -> Launches:
    """Speeds, by block, of those whose cores were as near as in the others; all where none is."""
    nearest = distance.nearest_seconds(
        [seen for one in records.values() for seen in handover.record_latencies(one)]
    )
    near = {
        block: one
        for block, one in records.items()
        if not repeating.has_distant_cores(one, nearest)
    }
    return {
        (block, 0): speed
        for block, one in (near or records).items()
        for speed in statistics.launch_speeds([one]).values()
    }


def first(record, share: float):
    """The record of its first steps alone, and the seconds that the others took."""
    measured, window = record.measurement, record.measurement.window
    count = max(1, round(len(measured.step_seconds) * share))
    kept = measured.model_copy(update={"step_seconds": measured.step_seconds[:count]})
    others = measured.step_seconds[count:]
    return record.model_copy(update={"measurement": kept}), window * sum(others)


def by_half(recorded: Recorded) -> float:
    """How near to the best it is what looks the fastest by all that the search may launch."""
    return recorded.speed[next(iter(speeds(of_blocks(recorded.launched, recorded.blocks))))]


def trial(recorded: Recorded, by_all: dict) -> tuple[float, float, float, float]:
    """How near what it took is to the best, by one half and `by_all`; what it took of the time.

    That is the search's alone, and all, over exhaustive search's.
    """
    whole = exhaustive(recorded)
    taken, _, searched = tuned(recorded)
    near = recorded.speed[taken], by_all[taken]
    return *near, searched / whole, recorded.seconds / whole


def searches(words: list[str], results: Path, count: int) -> list[tuple[Tuning, dict]]:
    """What `xfbench tune` finds with each of so many seeds, and launches by cell and block.

    Without certificates, as the exhaustive search is.
    """
    found = []
    for seed in range(count):
        folder = results / "searches" / f"{'-'.join(words[1:4:2])}-{seed}"
        if not read_folder(folder, print):
            line = [sys.executable, "-m", "xfbench", "tune", "--no-verify", "--resume", *words]
            subprocess.run([*line, "--seed", str(seed), "--results", folder], check=True)
        launched = defaultdict(dict)
        for record in Store(folder).records():
            launched[record.request.cell()][seed, record.request.launch] = record
        found.append((read_folder(folder, print)[-1], launched))
    return found


def on_machine(
    found: list[tuple[Tuning, dict]], launched: dict, replays: list[Recorded]
) -> list[str]:
    """How near to the best each of these is, and what it took of an exhaustive search's time.

    The best is known by all launches of usual length but the search's own: those that every setting
    had before, and those of the other searches' confirmations, which are of the best ones.
    """
    whole = stdlib_statistics.median(map(exhaustive, replays))
    near, shares = [], []
    for one, own in found:
        known = {cell: dict(others) for cell, others in launched.items()}
        for _, confirmed in found:
            for cell in known if confirmed is not own else ():
                known[cell].update(confirmed.get(cell, {}))
        near.append(speeds(known)[one.best])
        shares.append(one.machine_seconds / whole)
    held = sum(one >= NEAR and share <= SHARE for one, share in zip(near, shares, strict=True))
    time = f"{stdlib_statistics.median(shares):.0%}, {max(shares):.0%} at most"
    return [f"{len(found)}", f"{sum(one >= NEAR for one in near)}", f"{min(near):.3f}", time, held]


def spread(launched: dict) -> float:
    """How much launches of one setting differ, beside their blocks: relative standard deviation."""
    found = {cell: counted(own) for cell, own in launched.items()}
    return estimate_noise(found, {cell: (cell,) for cell in found}) or math.nan


def summary(trials: list) -> list[str]:
    """What is told of them."""
    near, by_all, search, whole = zip(*trials, strict=True)
    held = [one >= NEAR and share <= SHARE for one, share in zip(near, search, strict=True)]
    shares = (f"{stdlib_statistics.median(one):.0%}" for one in (search, whole))
    often_near = (often([one >= NEAR for one in of]) for of in (near, by_all))
    return [*often_near, f"{min(near):.3f}", *shares, often(held)]


def often(held: list[bool]) -> str:
    """In how many of all trials something held."""
    return f"{sum(held) / len(held):.0%}"


if __name__ == "__main__":
    main()
