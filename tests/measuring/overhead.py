"""What the harness adds to a step's time: `make overhead`. A benchmark, not a test.

Pairs of steps in one process: PyTorch's plain loop, and the trainer that xfbench drives. The ratio
is the median of the pairs' ratios, with its 95 % interval. Then the worker's loop around a trainer
that does nothing, which is what the loop costs in any framework.
"""

import argparse

import numpy as np
from scipy import stats

from tests.measuring import inside
from xfbench.host import machine
from xfbench.worker import loop
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workloads


def main() -> None:
    """Measure, and print the ratio with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=110, help="pairs of steps of AlexNet")
    arguments = parser.parse_args()
    host = machine.describe_machine()
    print(f"{host.cores} cores {host.cpu_model}")
    print(f"measuring {arguments.pairs} pairs of steps of AlexNet", flush=True)
    times = measure_pairs(arguments.pairs, 16, 2)
    plain_s, xfbench_s = np.asarray(times["plain"]), np.asarray(times["xfbench"])
    ratios = xfbench_s / plain_s
    interval = stats.bootstrap((ratios,), np.median, rng=0).confidence_interval
    print(
        f"AlexNet, batch 16, 2 threads, torch {times['versions']['torch']}\n"
        f"  plain loop           {1e3 * np.median(plain_s):.2f} ms per step\n"
        f"  through xfbench      {1e3 * np.median(xfbench_s):.2f} ms per step\n"
        f"  ratio                {np.median(ratios):.4f}  "
        f"95 % interval {interval.low:.4f} to {interval.high:.4f}, {len(ratios)} pairs",
        flush=True,
    )
    loop_s = np.median([measure_loop_alone(5000) for _ in range(5)])
    print(
        f"  the loop alone       {1e6 * loop_s:.1f} µs per step, "
        f"{loop_s / np.median(plain_s):.5%} of it"
    )


def measure_pairs(pairs: int, batch_size: int, threads: int) -> dict:
    """Return the seconds of each step of AlexNet: "plain" and "xfbench"."""
    return inside.run_script("plain_torch.py", "torch", threads, pairs, batch_size, threads)


class EmptyTrainer:
    """A trainer that trains nothing, so that only the loop takes time."""

    def assign(self, parameters):
        """Take no parameters."""

    def load(self, images, labels):
        """Return no batch."""

    def test_loss(self, batch):
        """Return a loss, as `wait_for_loss` does."""
        return 0.0

    def step(self, batch):
        """Train nothing."""

    def wait_for_loss(self):
        """Return a loss at once."""
        return 0.0

    def parameters(self):
        """Return no parameters."""
        return {}

    def runtime_info(self):
        """Return no facts about a framework."""
        return {}


def measure_loop_alone(steps: int) -> float:
    """Return the seconds per step of the worker's loop around an empty trainer."""
    request = {"batch_size_per_rank": 1, "global_batch_size": 1, "seed": 0, "warmup": 0}
    request |= {"data": "synthetic", "epochs": None, "steps": steps, "window": 1}
    reply = loop.train_and_measure(
        workloads()["lenet"], request, Options("", 1), lambda *_: EmptyTrainer(), Group()
    )
    return reply["measurement"]["wall_seconds"] / len(reply["measurement"]["losses"])


if __name__ == "__main__":
    main()
