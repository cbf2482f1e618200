"""What the harness adds to AlexNet's step time: `make overhead`. A benchmark, not a test.

Pairs of steps in one process, PyTorch's plain loop and the trainer that xfbench drives; the
ratio is the median of the pairs' ratios, with its 95 % interval. And the worker's loop around
a trainer that does nothing, which is what the loop costs in any framework.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy import stats

from xfbench import adapter, command, environment, machine, worker_archive


def main() -> None:
    """Measure, and print the ratio with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200, help="pairs of steps")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    found = measure(chosen.pairs, chosen.batch_size, chosen.threads)
    plain, through = np.asarray(found["plain"]), np.asarray(found["xfbench"])
    ratios = through / plain
    interval = stats.bootstrap((ratios,), np.median, rng=0).confidence_interval
    here = machine.describe()
    print(
        f"AlexNet, batch {chosen.batch_size}, {chosen.threads} threads, "
        f"torch {found['versions']['torch']}, {here.cores} cores {here.cpu_model}\n"
        f"plain loop           {np.median(plain):.4f} s per step\n"
        f"through xfbench      {np.median(through):.4f} s per step\n"
        f"ratio                {np.median(ratios):.4f}  "
        f"95 % interval {interval.low:.4f} to {interval.high:.4f}, {len(ratios)} pairs\n"
        f"the loop alone       {1e6 * found['loop_alone']:.1f} µs per step, "
        f"{found['loop_alone'] / np.median(plain):.5%} of it"
    )


def measure(pairs: int, batch_size: int, threads: int) -> dict:
    """Seconds of each step ("plain", "xfbench"), and per step of the loop alone."""
    described = adapter.load("torch")
    found = environment.ensure(described)
    script = Path(__file__).with_name("plain_torch.py")
    archive = worker_archive.worker_archive("torch")
    argv = [found.interpreter, script, archive, pairs, batch_size, threads]
    printed = command.output(
        [str(word) for word in argv],
        environment=found.variables(described, "onednn", threads),
        timeout=3600,
    )
    return json.loads(printed.splitlines()[-1])


if __name__ == "__main__":
    main()
