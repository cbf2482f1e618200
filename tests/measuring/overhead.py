"""What the harness adds to a step's time: `make overhead`. A benchmark, not a test.

Pairs of steps in one process, PyTorch's plain loop and the trainer that xfbench drives; the
ratio is the median of the pairs' ratios, with its 95 % interval. And the worker's loop around a
trainer that does nothing, which is what the loop costs in any framework.
"""

import argparse

import numpy as np
from scipy import stats

from tests.measuring import inside
from xfbench.host import machine


def main() -> None:
    """Measure, and print the ratio with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=110, help="pairs of steps of AlexNet")
    arguments = parser.parse_args()
    host = machine.describe_machine()
    print(f"{host.cores} cores {host.cpu_model}")
    times = measure(arguments.pairs, 16, 2)
    plain_s, xfbench_s = np.asarray(times["plain"]), np.asarray(times["xfbench"])
    ratios = xfbench_s / plain_s
    interval = stats.bootstrap((ratios,), np.median, rng=0).confidence_interval
    print(
        f"AlexNet, batch 16, 2 threads, torch {times['versions']['torch']}\n"
        f"  plain loop           {1e3 * np.median(plain_s):.2f} ms per step\n"
        f"  through xfbench      {1e3 * np.median(xfbench_s):.2f} ms per step\n"
        f"  ratio                {np.median(ratios):.4f}  "
        f"95 % interval {interval.low:.4f} to {interval.high:.4f}, {len(ratios)} pairs\n"
        f"  the loop alone       {1e6 * times['loop_alone']:.1f} µs per step, "
        f"{times['loop_alone'] / np.median(plain_s):.5%} of it"
    )


def measure(pairs: int, batch_size: int, threads: int) -> dict:
    """Seconds of each step of AlexNet ("plain", "xfbench"), and per step of the loop alone."""
    return inside.run_script("plain_torch.py", "torch", threads, pairs, batch_size, threads)


if __name__ == "__main__":
    main()
