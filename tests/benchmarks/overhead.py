"""What the harness adds to a step's time: `make overhead`. A benchmark, not a test.

Pairs of steps in one process, PyTorch's plain loop and the trainer that xfbench drives; the
ratio is the median of the pairs' ratios, with its 95 % interval. AlexNet on one rank, and
LeNet on two that DistributedDataParallel joins. And the worker's loop around a trainer that does
nothing, which is what the loop costs in any framework.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from scipy import stats

from xfbench import adapter, command, environment, machine, worker_archive
from xfbench.command import Command
from xfbench.launchers import local
from xfbench.launchers.resources import Resources


def main() -> None:
    """Measure, and print the ratios with their intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=110, help="pairs of steps of AlexNet")
    parser.add_argument("--pairs-together", type=int, default=2000, help="of LeNet on two ranks")
    chosen = parser.parse_args()
    here = machine.describe()
    print(f"{here.cores} cores {here.cpu_model}")
    if chosen.pairs:
        told("AlexNet, batch 16, 2 threads", measure("alexnet", chosen.pairs, 16, 2))
    if chosen.pairs_together:
        found = measure("lenet", chosen.pairs_together, 32, 1, ranks=2)
        told("LeNet, batch 32 on each of 2 ranks, 1 thread", found)


def told(what: str, found: dict) -> None:
    """Print what was measured of one network."""
    plain, through = np.asarray(found["plain"]), np.asarray(found["xfbench"])
    ratios = through / plain
    interval = stats.bootstrap((ratios,), np.median, rng=0).confidence_interval
    print(
        f"{what}, torch {found['versions']['torch']}\n"
        f"  plain loop           {1e3 * np.median(plain):.2f} ms per step\n"
        f"  through xfbench      {1e3 * np.median(through):.2f} ms per step\n"
        f"  ratio                {np.median(ratios):.4f}  "
        f"95 % interval {interval.low:.4f} to {interval.high:.4f}, {len(ratios)} pairs\n"
        f"  the loop alone       {1e6 * found['loop_alone']:.1f} µs per step, "
        f"{found['loop_alone'] / np.median(plain):.5%} of it",
        flush=True,
    )


def measure(network: str, pairs: int, batch_size: int, threads: int, ranks: int = 1) -> dict:
    """Seconds of each step ("plain", "xfbench"), and per step of the loop alone."""
    described = adapter.load("torch")
    found = environment.ensure(described)
    script = Path(__file__).with_name("plain_torch.py")
    archive = worker_archive.worker_archive("torch")
    chosen = json.dumps(described.strategy("ddp").resolved({}, "cpu"))
    argv = [found.interpreter, script, archive, network, pairs, batch_size, threads, chosen]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        one = Command(
            tuple(str(word) for word in argv),
            found.variables(described, "onednn", threads),
            folder,
        )
        outcome = command.run(
            local.commands(one, Resources(ranks)),
            stdout=[folder / f"stdout.{rank}" for rank in range(ranks)],
            stderr=[folder / f"stderr.{rank}" for rank in range(ranks)],
            time_limit=3600,
        )
        if outcome.status:
            raise RuntimeError((folder / f"stderr.{outcome.rank}").read_text()[-2000:])
        return json.loads((folder / "stdout.0").read_text().splitlines()[-1])


if __name__ == "__main__":
    main()
