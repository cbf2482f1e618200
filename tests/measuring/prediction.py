"""Is what `predict` says true? `make prediction`: numbers of ranks held out, links of known speed.

A Slurm cluster of eight nodes on this machine, whose links are shaped; ranks that sleep instead of
computing (see sleeping/), since there are fewer cores than ranks, and exchange for real. The model
is fitted to launches on 1, 2 and 4 ranks and asked about 3, 6 and 8, which are then looked at.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.cluster import namespaces, shaping, slurm
from xfbench.analysis import prediction, series
from xfbench.environments import environment
from xfbench.execution import canary
from xfbench.model import adapter
from xfbench.store.results_folder import Store

FITTED_RANKS, HELD_OUT_RANKS = (1, 2, 4), (3, 6, 8)
XFBENCH = (sys.executable, "-P", "-m", "xfbench")
# Workload, law, images of an update or of each rank, strategy.
CASES = [("lenet", "weak", 8, "ddp"), ("lenet", "strong", 24, "mpi")]


def main() -> None:
    """Measure, fit, and print what was said beside what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabits", default="100,300,1000,3000,10000")
    parser.add_argument("--strategies", default="ddp,mpi")
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--results", type=Path, default=None, help="a folder to keep them in")
    arguments = parser.parse_args()
    refusal = slurm.missing_reason() or namespaces.unavailable_reason()
    if refusal:
        sys.exit(f"no cluster: {refusal}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.results or Path(scratch)
        adapters = Path(scratch) / "adapters"
        os.environ["XFBENCH_ADAPTERS"] = str(adapters)
        write_adapter(adapters / "sleeping")
        cluster = slurm.Cluster(namespaces, count=max(FITTED_RANKS + HELD_OUT_RANKS))
        try:
            errors_and_hits = [
                error_and_hit
                for megabits in map(int, arguments.megabits.split(","))
                for error_and_hit in measure_link(cluster, megabits, folder, arguments)
            ]
        finally:
            cluster.end()
    errors = [abs(error) for error, _ in errors_and_hits]
    hits = sum(is_hit for _, is_hit in errors_and_hits)
    print(f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}")
    print(f"{hits} of {len(errors_and_hits)} intervals hold what was measured")


def write_adapter(folder: Path, cases=CASES) -> None:
    """The adapter, with the losses that its launches are to have: it has no network to ask."""
    this_folder = Path(__file__).parent
    shutil.copytree(this_folder / "sleeping", folder)
    shutil.copy(this_folder.parent / "fake_trainer.py", folder)
    shutil.copy(adapter.load("torch").folder / "requirements.lock", folder)
    (folder / "__init__.py").write_text("")
    sizes = {
        (workload, images if law == "weak" else images // ranks)
        for workload, law, images, _ in cases
        for ranks in FITTED_RANKS + HELD_OUT_RANKS
    }
    losses: dict[str, dict[int, float]] = {}
    for workload, images in sorted(sizes):
        expected = canary.compute_expected_loss_before_training(
            workload, "synthetic", images, 0, "float32"
        )
        losses.setdefault(workload, {})[images] = expected.loss
    environment.ensure_environment(
        adapter.load(folder.name)
    )  # from the nodes no registry is reached
    script = folder / "train.py"
    # A trainer knows its network by its name.
    script.write_text(script.read_text().replace('"LOSSES"', repr(losses)))


def measure_link(cluster, megabits, folder, arguments):
    """Error and "was it within" of each held-out case on links of so many Mbit/s."""
    shaping.limit_links(cluster, megabits)
    results = folder / f"{megabits}"
    for workload, law, images, strategy in CASES:
        if strategy not in arguments.strategies.split(","):
            continue
        for ranks in FITTED_RANKS + HELD_OUT_RANKS:
            run_options = (
                f"run --framework sleeping --workload {workload} --scaling {law} --no-verify"
            )
            run_options += (
                f" --batch-size {images} --ranks {ranks} --nodes {ranks} --launcher slurm"
            )
            run_options += (
                f" --steps {arguments.steps} --launches {arguments.launches} --pinning none"
            )
            run_options += " --threads 1" + (f" --strategy {strategy}" if ranks > 1 else "")
            words = (*XFBENCH, *run_options.split(), "--results", str(results))
            process = cluster.run("salloc", "--quiet", f"-N{ranks}", *words, timeout=900)
            if process.returncode:
                sys.exit(process.stdout + process.stderr)
    errors_and_hits = []
    for rank_series in series.build_scaling_series(Store(results).records(print)):
        fitted_groups = {
            key: group for key, group in rank_series.groups.items() if key[0] in FITTED_RANKS
        }
        fit = prediction.fit_scaling_model(replace(rank_series, groups=fitted_groups))
        for ranks in HELD_OUT_RANKS:
            point, measured = fit.predict(ranks), rank_series.measured_speed(ranks)
            assert measured
            interval = point.images_per_second
            error = interval.value / measured - 1
            is_within = bool(
                interval.low and interval.high and interval.low <= measured <= interval.high
            )
            errors_and_hits.append((error, is_within))
            print(
                f"{megabits} Mbit/s · {rank_series.title} · {ranks} ranks: "
                f"said {interval.value:.1f} "
                f"({interval.low:.1f} to {interval.high:.1f}), measured {measured:.1f}, "
                f"error {error:+.1%}, {'within' if is_within else 'OUTSIDE'}",
                flush=True,
            )
        link = fit.best.link
        print(f"  link {8e-6 * link.bandwidth:.0f} Mbit/s, {1e6 * link.latency:.0f} µs", flush=True)
    return errors_and_hits


if __name__ == "__main__":
    main()
