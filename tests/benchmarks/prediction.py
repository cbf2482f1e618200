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
from xfbench import adapter
from xfbench.analysis import prediction, series
from xfbench.environments import environment
from xfbench.results.store import Store
from xfbench.running import canary

FITTED, HELD_OUT = (1, 2, 4), (3, 6, 8)
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
    chosen = parser.parse_args()
    refused = slurm.missing() or namespaces.refusal()
    if refused:
        sys.exit(f"no cluster: {refused}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.results or Path(scratch)
        adapters = Path(scratch) / "adapters"
        os.environ["XFBENCH_ADAPTERS"] = str(adapters)
        write(adapters / "sleeping")
        cluster = slurm.Cluster(namespaces, count=max(FITTED + HELD_OUT))
        try:
            found = [
                one
                for megabits in map(int, chosen.megabits.split(","))
                for one in on_link(cluster, megabits, folder, chosen)
            ]
        finally:
            cluster.end()
    errors = [abs(error) for error, _ in found]
    inside = sum(within for _, within in found)
    print(f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}")
    print(f"{inside} of {len(found)} intervals hold what was measured")


def write(folder: Path, cases=CASES) -> None:
    """The adapter, with the losses that its launches are to have: it has no network to ask."""
    here = Path(__file__).parent
    shutil.copytree(here / "sleeping", folder)
    shutil.copy(here.parent / "fake_trainer.py", folder)
    shutil.copy(adapter.load("torch").folder / "requirements.lock", folder)
    (folder / "__init__.py").write_text("")
    sizes = {
        (workload, images if law == "weak" else images // ranks)
        for workload, law, images, _ in cases
        for ranks in FITTED + HELD_OUT
    }
    losses: dict[str, dict[int, float]] = {}
    for workload, images in sorted(sizes):
        expected = canary.compute_expected_loss(workload, "synthetic", images, 0, "float32")
        losses.setdefault(workload, {})[images] = expected.loss
    environment.ensure(adapter.load(folder.name))  # from the nodes no registry is reached
    script = folder / "train.py"
    # A trainer knows its network by its name.
    script.write_text(script.read_text().replace('"LOSSES"', repr(losses)))


def on_link(cluster, megabits, folder, chosen):
    """Error and "was it within" of each held-out case on links of so many Mbit/s."""
    shaping.shape(cluster, megabits)
    results = folder / f"{megabits}"
    for workload, law, images, strategy in CASES:
        if strategy not in chosen.strategies.split(","):
            continue
        for ranks in FITTED + HELD_OUT:
            asked = f"run --framework sleeping --workload {workload} --scaling {law} --no-verify"
            asked += f" --batch-size {images} --ranks {ranks} --nodes {ranks} --launcher slurm"
            asked += f" --steps {chosen.steps} --launches {chosen.launches} --affinity none"
            asked += " --threads 1" + (f" --strategy {strategy}" if ranks > 1 else "")
            words = (*XFBENCH, *asked.split(), "--results", str(results))
            done = cluster.run("salloc", "--quiet", f"-N{ranks}", *words, timeout=900)
            if done.returncode:
                sys.exit(done.stdout + done.stderr)
    found = []
    for one in series.build_series(Store(results).records(print)):
        kept = {key: group for key, group in one.groups.items() if key[0] in FITTED}
        fitted = prediction.fit(replace(one, groups=kept))
        for ranks in HELD_OUT:
            point, measured = fitted.predict(ranks), one.measured_speed(ranks)
            assert measured
            said = point.images_per_second
            error = said.value / measured - 1
            within = bool(said.low and said.high and said.low <= measured <= said.high)
            found.append((error, within))
            print(
                f"{megabits} Mbit/s · {one.title} · {ranks} ranks: said {said.value:.1f} "
                f"({said.low:.1f} to {said.high:.1f}), measured {measured:.1f}, "
                f"error {error:+.1%}, {'within' if within else 'OUTSIDE'}",
                flush=True,
            )
        link = fitted.best.link
        print(f"  link {8e-6 * link.bandwidth:.0f} Mbit/s, {1e6 * link.latency:.0f} µs", flush=True)
    return found


if __name__ == "__main__":
    main()
