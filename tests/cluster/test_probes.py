"""Probes from a login node: what Slurm starts is submitted, and the rest is done there."""

import json

import pytest

from tests.cluster.conftest import XFBENCH
from xfbench.model.features import FEATURES

pytestmark = pytest.mark.deep

STUDY = """
name = "mine"
title = "t"
question = "q?"
{matrices}
[[analysis]]
name = "support"
"""
MATRIX = """
[[matrix]]
framework = ["odd"]
workload = ["lenet"]
data = "synthetic"
probe = ["{probe}"]
launcher = "{launcher}"
ranks = [{ranks}]
strategy = ["side by side"]
scaling = "weak"
batch_size = [4]
threads = [1]
steps = 3
launches = 1
"""
NATIVE = "import os\ndef ranks(): return int(os.environ['SLURM_NTASKS'])\n"
TRIED = [("process", "local", 1), ("ranks", "slurm", 2), ("native", "slurm", 2)]


def answers(run):
    """Of the one framework, by the features' titles."""
    assert run.stdout, run.stderr
    return {line[0]: line[1] for line in json.loads(run.stdout)["findings"][0]["table"][1:]}


def test_ranks_started_by_slurm_connect_to_each_other(cluster, xfbench, tmp_path):
    xfbench("Trainer.save = None  # it saves no checkpoints", files={"native.py": NATIVE})
    matrices = [MATRIX.format(probe=p, launcher=by, ranks=n) for p, by, n in TRIED]
    file = tmp_path / "mine.toml"
    file.write_text(STUDY.format(matrices="".join(matrices)))
    done = cluster.run(
        *(*XFBENCH, "study", "run", str(file), "--no-verify", "--json"),
        *("--results", str(tmp_path / "results")),
    )
    assert done.returncode == 0, done.stderr
    found = answers(done)
    assert found[FEATURES["slurm"]] == found[FEATURES["native_slurm"]] == "yes", done.stderr
    assert found[FEATURES["signal"]] == "no"
    assert done.stderr.count("job ") >= 1 and not cluster.jobs()


@pytest.mark.long
def test_hpc_support_study_probes_4_frameworks_under_slurm(cluster, tmp_path):
    done = cluster.run(
        *(*XFBENCH, "study", "run", "hpc-support", "--json"),
        *("--results", str(tmp_path / "results")),
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)["findings"][0]["table"]
    [started] = [line[1:] for line in table if line[0] == FEATURES["slurm"]]
    [found] = [line[1:] for line in table if line[0] == FEATURES["native_slurm"]]
    assert set(started) == {"yes"} and len(started) == 4
    assert dict(zip(table[0][1:], found, strict=True))["tensorflow"] == "yes"
