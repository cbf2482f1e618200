"""Adapters against what each framework's users write: `make versus-native`. Not a test.

One process of each framework trains the same network on the same batch through the adapter and
by loops of the framework's own kind, step by step in turn, in random order. A ratio is the median
over rounds of what the own loop's step took to what the adapter's did, with its 95 % interval:
throughput of throughput, above 1 where the adapter is the faster one.
"""

import argparse
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


def main() -> None:
    """Measure, and print the ratios with their intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="caffe,mxnet,tensorflow,torch")
    parser.add_argument("--network", default="convnet,alexnet,googlenet,resnet50")
    parser.add_argument("--rounds", type=int, default=0, help="0: 30, of small networks more")
    chosen = parser.parse_args()
    here = machine.describe()
    print(f"{here.cores} cores {here.cpu_model}")
    lines = []
    for network in chosen.network.split(","):
        for framework, kernel in kernels(chosen.framework.split(",")):
            rounds = chosen.rounds or ROUNDS.get(network, 30)
            asked = (network, rounds, BATCHES[network], here.cores)
            found = inside.answer("versus_steps.py", framework, here.cores, *asked, kernel=kernel)
            ours = np.asarray(found.pop("xfbench"))
            lines += [
                (network, framework, kernel, name, *told(ours, np.asarray(own)))
                for name, own in found.items()
            ]
            print(*lines[-1], file=sys.stderr)
    headers = ["network", "framework", "kernel", "its own", "ms per step", "through xfbench"]
    headers.append("ratio")
    print(tabulate(lines, headers, "github", disable_numparse=True))


def kernels(frameworks: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each framework with its default kernel, and with those that users choose by hand."""
    for name in frameworks:
        yield name, adapter.load(name).default_kernel
        yield from ((name, kernel) for kernel in BY_HAND.get(name, ()))


def told(ours: np.ndarray, own: np.ndarray) -> tuple[str, str, str]:
    """Median milliseconds of a step of each, and the ratio with its interval."""
    ratios = own / ours
    low, high = stats.bootstrap((ratios,), np.median, rng=0).confidence_interval
    medians = (f"{1e3 * np.median(one):.1f}" for one in (own, ours))
    return (*medians, f"{np.median(ratios):.3f} ({low:.3f} – {high:.3f})")


if __name__ == "__main__":
    main()
