"""Adapters against what each framework's users write: `make versus-native`. Not a test.

One process of each framework trains the same network on the same batch through the adapter and
by loops of the framework's own kind, step by step in turn, in random order. A ratio is the median
over rounds of what the own loop's step took to what the adapter's did, with its 95 % interval:
throughput of throughput, above 1 where the adapter is the faster one. With `--ranks 2`, several
processes of one thread each, joined by the adapter's strategy and by the loop's own.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

import numpy as np
from scipy import stats
from tabulate import tabulate

from tests.benchmarks import inside
from xfbench import adapter, machine

BATCHES = {"convnet": 100, "lenet": 64, "alexnet": 16, "googlenet": 8, "resnet50": 8}
ROUNDS = {"convnet": 200, "lenet": 400}
BY_HAND = {"torch": ["channels_last"]}
TOGETHER = {"caffe": "mpi", "mxnet": "dist_sync", "tensorflow": "mirrored", "torch": "ddp"}


def main() -> None:
    """Measure, and print the ratios with their intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="caffe,mxnet,tensorflow,torch")
    parser.add_argument("--network", default="convnet,alexnet,googlenet,resnet50")
    parser.add_argument("--rounds", type=int, default=0, help="0: 30, of small networks more")
    parser.add_argument("--ranks", type=int, default=1, help="which share a batch and the cores")
    chosen = parser.parse_args()
    here, ranks = machine.describe(), chosen.ranks
    print(f"{here.cores} cores {here.cpu_model}" + f", {ranks} ranks" * (ranks > 1))
    lines = []
    for network in chosen.network.split(","):
        for framework, kernel in kernels(chosen.framework.split(","), ranks):
            rounds = chosen.rounds or ROUNDS.get(network, 30)
            found = measure(framework, kernel, network, rounds, ranks, here.cores)
            ours = np.asarray(found.pop("xfbench"))
            for name, own in found.items():
                lines.append((network, framework, kernel, name, *told(ours, np.asarray(own))))
                print(*lines[-1], file=sys.stderr)
    headers = ["network", "framework", "kernel", "its own", "ms per step", "through xfbench"]
    headers.append("ratio")
    print(tabulate(lines, headers, "github", disable_numparse=True))


def kernels(frameworks: Sequence[str], ranks: int) -> Iterator[tuple[str, str]]:
    """Each framework with its default kernel; on one rank those chosen by hand as well."""
    for name in frameworks:
        yield name, adapter.load(name).default_kernel
        if ranks == 1:
            yield from ((name, kernel) for kernel in BY_HAND.get(name, ()))


def measure(
    framework: str, kernel: str, network: str, rounds: int, ranks: int, cores: int
) -> dict[str, list[float]]:
    """Seconds of each step, by name: "xfbench", and the loops of the framework's own kind."""
    strategy, threads = TOGETHER[framework] if ranks > 1 else "none", max(cores // ranks, 1)
    options = adapter.load(framework).strategy(strategy).resolved({}, "cpu")
    asked = (network, rounds, BATCHES[network] // ranks, threads, strategy, json.dumps(options))
    found: dict[str, list[float]] = inside.answer(
        *("versus_steps.py", framework, threads, *asked),
        kernel=kernel,
        ranks=ranks,
        strategy=strategy,
    )
    return found


def told(ours: np.ndarray, own: np.ndarray) -> tuple[str, str, str]:
    """Median milliseconds of a step of each, and the ratio with its interval."""
    ratios = own / ours
    low, high = stats.bootstrap((ratios,), np.median, rng=0).confidence_interval
    medians = (f"{1e3 * np.median(one):.1f}" for one in (own, ours))
    return (*medians, f"{np.median(ratios):.3f} ({low:.3f} – {high:.3f})")


if __name__ == "__main__":
    main()
