"""`run --tuned` against the loop that users write: `make versus-tuned`. Not a test.

What `xfbench tune` found, in a folder of results, is launched as `run --tuned` launches it, with
its certificate, and by turns, in random order, the plain loop trains the same network on a batch as
large in a process of its own, with what a framework has when nobody chooses. A launch, and a
process, counts once, by its median step; a ratio is that of throughputs, pair by pair, above 1
where tuned is the faster one, with its interval of 95 %. Launches are done again, and the loop
waits, while the cores lie apart (docs/findings.md#two-modes). The geometric mean over all rows
closes the table.
"""

import argparse
import json
import random
import statistics as stdlib_statistics
import sys
from pathlib import Path

from tabulate import tabulate

from tests.measuring import inside
from tests.measuring.versus import BATCHES, ROUNDS, nearest_latency_s
from xfbench import pairwise, progress, statistics
from xfbench.environments import environment
from xfbench.execution.launch import LaunchContext
from xfbench.host import core_latency, machine
from xfbench.model import adapter
from xfbench.model.machines import machine_class
from xfbench.model.record import Record
from xfbench.session import Session
from xfbench.statistics import Launches
from xfbench.store.results_folder import Store
from xfbench.store.tuning_results import Tuning, read_sorted_searches
from xfbench.tuning import repeating
from xfbench.tuning.space import SpaceRequest, build_space, describe_setting
from xfbench.tuning.using import is_applicable

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
    parser.add_argument("--launches", type=int, default=5, help="of each")
    arguments = parser.parse_args()
    print(machine_class(machine.describe_machine()))
    session = Session(LaunchContext(Store(arguments.results)), progress.Messages())
    lines, ratios = [], []
    for network in arguments.network.split(","):
        for framework in arguments.framework.split(","):
            tuning = find_tuning(arguments.results, framework, network)
            rounds = arguments.rounds or ROUNDS.get(network, 5)
            records, plain_speeds = measure_pairs(tuning, rounds, arguments.launches, session)
            tuned_speeds = statistics.counted_speeds_by_block(records)
            ratio = pairwise.compare(tuned_speeds, plain_speeds).ratio
            ratios.append(ratio.value)
            interval = f" ({ratio.low:.3f}–{ratio.high:.3f})" if ratio.low and ratio.high else ""
            speeds_by_block = (plain_speeds, tuned_speeds)
            speeds = (
                f"{stdlib_statistics.median(launch_speeds.values()):.4g}"
                for launch_speeds in speeds_by_block
            )
            certified = "yes" if all(record.certificate for record in records) else "no"
            lines.append((network, framework, *speeds, f"{ratio.value:.3f}{interval}"))
            lines[-1] += (describe_setting(tuning.best), certified)
            print_progress(" ".join(lines[-1]))
    headers = ["network", "framework", "plain loop, images/s", "tuned", "ratio", "with"]
    print(tabulate(lines, [*headers, "certified"], "github", disable_numparse=True))
    print(f"geometric mean: {stdlib_statistics.geometric_mean(ratios):.3f}")


def print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def find_tuning(results: Path, framework: str, network: str) -> Tuning:
    """The search that `run --tuned` would use."""
    version = environment.ensure_environment(adapter.load(framework)).version
    cell = build_space(
        SpaceRequest(framework, network, batch_sizes=(BATCHES[network],)), {}
    ).default
    fitting_tunings = [
        tuning
        for tuning in read_sorted_searches(results, print_progress)
        if is_applicable(tuning, cell, version, ())
    ]
    if not fitting_tunings:
        sys.exit(f"first: xfbench tune --framework {framework} --workload {network}")
    return fitting_tunings[-1]


def measure_pairs(
    tuning: Tuning, rounds: int, launches: int, session: Session
) -> tuple[list[Record], Launches]:
    """Records of launches with what was found, and images per second of the plain loop."""
    cell, plain = tuning.best, tuning.default
    session.prepare([cell.framework], allocator_names=[cell.allocator])
    session.certify([cell.request(1)])
    cores = repeating.CoreMonitor(core_latency.read_saved_latencies())
    records, speeds, order = [], {}, random.Random(0)

    def launch(number: int) -> Record:
        [record] = session.launch([cell.request(number)])
        cores.count_launch_and_add_latencies(record)
        return record

    def run_plain_loop(number: int) -> None:
        steps = inside.run_script(
            *("versus_steps.py", plain.framework, plain.threads, "", PLAIN[plain.framework]),
            *(
                plain.workload,
                rounds,
                plain.global_batch_size,
                plain.threads,
                0,
                nearest_latency_s(),
            ),
            *("none", json.dumps({})),
            kernel=plain.kernel,
        )
        [seconds] = steps.values()
        speeds[number, 0] = plain.global_batch_size / stdlib_statistics.median(seconds)

    for number in range(1, launches + 1):
        for is_plain in order.sample(range(2), 2):
            if is_plain:
                run_plain_loop(number)
            else:
                records += repeating.launch_block(
                    [number], launch, cores.decide_and_count_repeat
                ).values()
    return records, speeds


if __name__ == "__main__":
    main()
