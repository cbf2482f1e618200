"""`run --tuned` against the loop that users write: `make versus-tuned`. Not a test.

What `xfbench tune` found, in a folder of results, and the plain loop, with what a framework has
when nobody chooses, train the same network from the same weights on the same batch: each in
processes of its own, since an allocator is a process's, by turns, in random order. A process
counts once, by its median step; a ratio is that of throughputs, pair by pair, above 1 where tuned
is the faster one, with its interval of 95 %. The geometric mean over all rows closes the table.
"""

import argparse
import json
import random
import statistics as stdlib_statistics
import sys
from pathlib import Path

from tabulate import tabulate

from tests.benchmarks import inside
from tests.benchmarks.versus import BATCHES, ROUNDS, near
from xfbench import adapter, environment, machine, statistics
from xfbench.grouping import machine_class
from xfbench.tuning.saved import Tuning, of_folder
from xfbench.tuning.space import Asked, space, told
from xfbench.tuning.using import fits

# The loop that each framework's tutorials and examples have.
PLAIN = {
    "caffe": "the solver's own step",
    "mxnet": "Gluon, hybridized",
    "tensorflow": "tf.function",
    "torch": "plain loop",
}


def main() -> None:
    """Measure, and print a row for each framework and network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="the folder of `xfbench tune --results`")
    parser.add_argument("--framework", default=",".join(PLAIN))
    parser.add_argument("--network", default="convnet,alexnet,googlenet,resnet50")
    parser.add_argument("--rounds", type=int, default=0, help="steps; 0: 5, of small networks more")
    parser.add_argument("--launches", type=int, default=5, help="processes of each")
    chosen = parser.parse_args()
    print(machine_class(machine.describe()))
    lines, ratios = [], []
    for network in chosen.network.split(","):
        for framework in chosen.framework.split(","):
            found = searched(chosen.results, framework, network)
            rounds = chosen.rounds or ROUNDS.get(network, 5)
            of_tuned, of_plain = pairs(found, rounds, chosen.launches)
            ratio = statistics.compare(of_tuned, of_plain).ratio
            ratios.append(ratio.value)
            interval = f" ({ratio.low:.3f}–{ratio.high:.3f})" if ratio.low and ratio.high else ""
            proven = "yes" if found.verified else "not asked for"
            speeds = (f"{1e3 / median(one):.1f}" for one in (of_plain, of_tuned))
            lines.append(
                (network, framework, *speeds, f"{ratio.value:.3f}{interval}", told(found.best))
            )
            lines[-1] += (proven,)
            print(*lines[-1], file=sys.stderr, flush=True)
    headers = ["network", "framework", "plain loop, ms per step", "tuned", "ratio", "with"]
    print(tabulate(lines, [*headers, "certified"], "github", disable_numparse=True))
    print(f"geometric mean: {stdlib_statistics.geometric_mean(ratios):.3f}")


def searched(results: Path, framework: str, network: str) -> Tuning:
    """The search that `run --tuned` would use."""
    version = environment.ensure(adapter.load(framework)).version
    cell = space(Asked(framework, network, batch_sizes=(BATCHES[network],)), {}).default
    fitting = [one for one in of_folder(results, print) if fits(one, cell, version, ())]
    if not fitting:
        sys.exit(f"first: xfbench tune --framework {framework} --workload {network}")
    return fitting[-1]


def pairs(found: Tuning, rounds: int, launches: int) -> tuple[dict, dict]:
    """Steps per second of processes that train tuned, and of those of the plain loop."""
    best, default = found.best, found.default
    speeds: tuple[dict, dict] = {}, {}
    order = random.Random(0)
    for number in range(launches):
        for which in order.sample(range(2), 2):
            cell, kernels, own = (
                (best, best.kernel, "none") if which == 0 else (default, "", PLAIN[best.framework])
            )
            steps = inside.answer(
                *("versus_steps.py", cell.framework, cell.threads, kernels, own, cell.workload),
                *(rounds, cell.global_batch_size, cell.threads, 0, *near()),
                *("none", json.dumps({})),
                kernel=cell.kernel,
                allocator=cell.allocator,
            )
            [seconds] = steps.values()
            speeds[which][number, 0] = 1 / stdlib_statistics.median(seconds)
    return speeds


def median(speeds: dict) -> float:
    return stdlib_statistics.median(speeds.values())


if __name__ == "__main__":
    main()
