"""What `tune` finds and costs, against exhaustive search: `make tuning`. A benchmark, not a test.

Every setting is launched as `run` does it, in blocks, until within 2 %; then `tune` is tried with
other orders of its launches, each try in a results folder of its own. How fast what it took is, is
what the exhaustive launches say. Goes on where it was interrupted.
"""

import argparse
import itertools
import sys
from collections import defaultdict
from pathlib import Path

from tabulate import tabulate

from xfbench import machine, plan, runner, statistics
from xfbench.cli.options import FRAMEWORKS, positive, words
from xfbench.grouping import machine_class
from xfbench.plan import Plan
from xfbench.request import Protocol
from xfbench.results.store import Store
from xfbench.tuning import searching
from xfbench.tuning.space import Asked, Space, space, told

# The quick experiment's, and two of ImageNet's with batches that two cores train in seconds.
BATCHES = {"lenet": (), "convnet": (), "alexnet": (16,), "googlenet": (8,)}
NEAR, SHARE = 0.98, 0.25


def main() -> None:
    """Measure, and print a row for each framework and network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="a folder for all of it")
    parser.add_argument("--framework", default=FRAMEWORKS)
    parser.add_argument("--workload", default=",".join(BATCHES))
    parser.add_argument("--trials", type=positive, default=10)
    chosen = parser.parse_args()
    print(machine_class(machine.describe()))
    rows, held = [], []
    for framework, workload in itertools.product(
        words(chosen.framework, str, "--framework") or (),
        words(chosen.workload, str, "--workload") or (),
    ):
        asked = Asked(framework, workload, batch_sizes=BATCHES.get(workload, ()))
        searched = space(asked, {})
        speeds, seconds = exhaustively(searched, Store(chosen.results / "exhaustive"))
        best = max(speeds, key=speeds.__getitem__)
        for seed in range(chosen.trials):
            store = Store(chosen.results / f"trial-{seed}")
            choices = searching.Choices(seed=seed, resume=True)
            found = searching.search(searched, choices, store, say)
            found.write(store.folder)
            near = speeds.get(found.best, 0.0) / speeds[best]
            search = found.search_seconds / seconds
            whole = found.machine_seconds / seconds
            held.append((near >= NEAR, search <= SHARE, whole <= SHARE))
            gain = found.over_default
            taken = [told(found.best), gain and f"{gain.value:.2f}", f"{near:.3f}"]
            costs = [f"{search:.0%}", f"{whole:.0%}"]
            rows.append([framework, workload, len(speeds), told(best), seed, *taken, *costs])
            say(str(rows[-1]))
    head = ["framework", "network", "settings", "best of all", "seed", "found", "of the default"]
    head += ["of the best", "search, of its time", "with the confirmation"]
    print(tabulate(rows, head, tablefmt="github", disable_numparse=True))
    near, of_search, of_all = (sum(column) for column in zip(*held, strict=True))
    print(f"{len(held)} trials: within 2 % of the best {near}, at a quarter of the time or less ")
    print(f"{of_search} (search), {of_all} (with the confirmation)")


def say(line: str) -> None:
    """How far it is."""
    print(line, file=sys.stderr, flush=True)


def exhaustively(searched: Space, store: Store) -> tuple[dict, float]:
    """Images per second of every cell that may win, and the seconds of all launches."""
    pairs = tuple((cell, Protocol()) for cell in searched.cells)
    whole = Plan(
        requests=tuple(runner.plan(pairs)),
        protocols=pairs,
        pythons={},
        verify=True,
        strict=False,
        time_limit=runner.DEFAULT_TIME_LIMIT,
        data_folders=dict(searched.data_folders),
    )
    done = runner.done(whole.requests, store)
    records = [*done, *plan.measure(whole, store, done)]
    of_cells = defaultdict(list)
    for record in records:
        of_cells[record.request.cell()].append(record)
    seconds = sum(record.conditions.seconds or 0.0 for record in records if record.conditions)
    found = {
        cell: statistics.geometric_interval([*counted.values()]).value
        for cell, own in of_cells.items()
        if (counted := statistics.launches(own)) and all(one.certificate for one in own)
    }
    return found, seconds


if __name__ == "__main__":
    main()
