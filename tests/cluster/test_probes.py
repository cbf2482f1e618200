"""Tests of probes from a login node: those that Slurm starts are submitted, others run there."""

import json

import pytest

from tests.cluster.commands import XFBENCH
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
NATIVE = "import os\ndef join_and_count_ranks(): return int(os.environ['SLURM_NTASKS'])\n"
PROBES = [("process", "local", 1), ("ranks", "slurm", 2), ("native", "slurm", 2)]


def support_by_title(run):
    """Return the framework's answers by feature title."""
    assert run.stdout, run.stderr
    return {line[0]: line[1] for line in json.loads(run.stdout)["findings"][0]["table"][1:]}


def test_ranks_started_by_slurm_connect_to_each_other(cluster, command_words, tmp_path):
    command_words("Trainer.save = None  # it saves no checkpoints", files={"native.py": NATIVE})
    matrices = [
        MATRIX.format(probe=probe, launcher=launcher, ranks=ranks)
        for probe, launcher, ranks in PROBES
    ]
    file = tmp_path / "mine.toml"
    file.write_text(STUDY.format(matrices="".join(matrices)))
    completed = cluster.run(
        *(*XFBENCH, "study", "run", str(file), "--no-verify", "--json"),
        *("--results", str(tmp_path / "results")),
    )
    assert completed.returncode == 0, completed.stderr
    support = support_by_title(completed)
    assert support[FEATURES["slurm"]] == support[FEATURES["native_slurm"]] == "yes", (
        completed.stderr
    )
    assert support[FEATURES["signal"]] == "no"
    assert completed.stderr.count("job ") >= 1 and not cluster.jobs()


@pytest.mark.long
def test_hpc_support_study_probes_4_frameworks_under_slurm(cluster, tmp_path):
    completed = cluster.run(
        *(*XFBENCH, "study", "run", "hpc-support", "--json"),
        *("--results", str(tmp_path / "results")),
        timeout=900,
    )
    assert completed.returncode == 0, completed.stderr
    table = json.loads(completed.stdout)["findings"][0]["table"]
    [slurm_support] = [line[1:] for line in table if line[0] == FEATURES["slurm"]]
    [native_support] = [line[1:] for line in table if line[0] == FEATURES["native_slurm"]]
    assert set(slurm_support) == {"yes"} and len(slurm_support) == 4
    assert dict(zip(table[0][1:], native_support, strict=True))["tensorflow"] == "yes"
