"""Adapters against what each framework's users write: `make versus-native`. Not a test.

A process trains the same network from the same weights on the same batch through the adapter and by
loops of the framework's own kind, step by step in turn, in random order. Its ratio is the median
over rounds of what the own loop's step took to what the adapter's did: throughput of throughput,
above 1 where the adapter is the faster one. Where a process has its memory decides a percent, so
there are several, and every other one makes the own loops first; the interval, of 95 %, is that
of their ratios. Rounds during which a hypervisor has moved the cores apart are done again. With
`--ranks 2`, several processes of one thread each are joined by the adapter's strategy and by the
loop's own.
"""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Sequence

import numpy as np
from tabulate import tabulate

from tests.measuring import inside
from xfbench import statistics
from xfbench.host import core_latency, machine
from xfbench.model import adapter
from xfbench.worker.core_latency import near_cores_latency_seconds

BATCHES = {"convnet": 100, "lenet": 64, "alexnet": 16, "googlenet": 8, "resnet50": 8}
ROUNDS = {"convnet": 30, "lenet": 60}
KERNELS = {"torch": ("onednn", "channels_last", "inductor")}  # of the others their default
STRATEGIES = {"caffe": "mpi", "mxnet": "dist_sync", "tensorflow": "mirrored", "torch": "ddp"}


def main() -> None:
    """Measure, and print the ratios with their intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="caffe,mxnet,tensorflow,torch")
    parser.add_argument("--network", default="convnet,alexnet,googlenet,resnet50")
    parser.add_argument("--rounds", type=int, default=0, help="0: 5, of small networks more")
    parser.add_argument("--launches", type=int, default=5, help="processes, of so many rounds each")
    parser.add_argument("--ranks", type=int, default=1, help="which share a batch and the cores")
    arguments = parser.parse_args()
    host, ranks = machine.describe_machine(), arguments.ranks
    print(f"{host.cores} cores {host.cpu_model}" + f", {ranks} ranks" * (ranks > 1))
    lines = []
    for network in arguments.network.split(","):
        for framework in arguments.framework.split(","):
            rounds, kernels = (
                arguments.rounds or ROUNDS.get(network, 5),
                list_kernels(framework, ranks),
            )
            process_times = [
                measure(framework, kernels, network, rounds, ranks, host.cores, number % 2 == 1)
                for number in range(arguments.launches)
            ]
            for kernel, name in itertools.product(
                kernels, sorted({*process_times[0]} - {*kernels})
            ):
                lines.append(
                    (network, framework, kernel, name, *format_times(process_times, kernel, name))
                )
                print(*lines[-1], file=sys.stderr, flush=True)
    headers = ["network", "framework", "kernel", "its own", "ms per step", "through xfbench"]
    headers.append("ratio")
    print(tabulate(lines, headers, "github", disable_numparse=True))


def list_kernels(framework: str, ranks: int) -> Sequence[str]:
    """The kernels through which the adapter trains."""
    default = (adapter.load(framework).default_kernel,)
    return KERNELS.get(framework, default) if ranks == 1 else default


def measure(
    framework: str,
    kernels: Sequence[str],
    network: str,
    rounds: int,
    ranks: int,
    cores: int,
    own_first: bool,
) -> dict[str, list[float]]:
    """Seconds of each step in a process, by name: the adapter's kernels, and the own loops."""
    strategy, threads = STRATEGIES[framework] if ranks > 1 else "none", max(cores // ranks, 1)
    options = (
        adapter.load(framework).find_or_build_strategy(strategy).options_with_defaults({}, "cpu")
    )
    script_arguments = (
        network,
        rounds,
        BATCHES[network] // ranks,
        threads,
        int(own_first),
        nearest_latency_s(),
    )
    times: dict[str, list[float]] = inside.run_script(
        *("versus_steps.py", framework, threads),
        *(",".join(kernels), "all", *script_arguments, strategy, json.dumps(options)),
        kernel=kernels[0],
        ranks=ranks,
        strategy=strategy,
    )
    return times


def nearest_latency_s() -> float:
    """Seconds between cores that lie near, as far as it is known."""
    return (
        near_cores_latency_seconds(core_latency.read_saved_latencies())
        or core_latency.measure_core_latency_s()
        or math.inf
    )


def format_times(
    process_times: Sequence[dict[str, list[float]]], kernel: str, native_loop: str
) -> tuple[str, str, str]:
    """Median milliseconds of a step of each, and the ratio with its interval over processes."""
    ratios = [
        float(np.median(np.divide(times[native_loop], times[kernel]))) for times in process_times
    ]
    ratio = statistics.geometric_interval(ratios)
    medians = (
        f"{1e3 * np.median(np.concatenate([times[name] for times in process_times])):.1f}"
        for name in (native_loop, kernel)
    )
    interval = f" ({ratio.low:.3f}–{ratio.high:.3f})" if ratio.low and ratio.high else ""
    return (*medians, f"{ratio.value:.3f}{interval}")


if __name__ == "__main__":
    main()
