"""Tests of every built-in study at its smallest size: one launch per cell, and in full.

The studies share a results folder, so that a cell of several studies is launched once.
"""

import json
import os
import subprocess
import sys

import pytest

from xfbench.planning import experiment

STUDIES = [name for name in experiment.built_in_and_user_experiment_files() if name != "quick"]
# The frameworks that are enough for an answer, for studies that list more at this size.
FRAMEWORKS = {
    "accuracy": "torch",
    "batch-size": "torch",
    "checkpoint": "torch",
    "communication": "torch",
    "data-format": "torch",
    "framework-slowdown": "mxnet,torch",
    "hpc-support": "torch",
    "learning-speedup": "torch",
    "slowdown": "mxnet",
    "storage": "torch",
    "thread-sweep": "torch",
}

EXPECTED = ("out of memory", "the loss of update")


@pytest.fixture(scope="session")
def results_folder(tmp_path_factory):
    """Return a results folder for all studies."""
    return tmp_path_factory.mktemp("smoke") / "results"


def run_study(name, folder, *options):
    """Run a study; return its exit status, its answer and the reasons of unexpected failures.

    Some studies look for the end of memory or for divergence: those failures are expected.
    """
    earlier = set(folder.glob("records/*/*.json"))
    process = subprocess.run(
        [
            *(sys.executable, "-m", "xfbench", "study", "run", name, "--json"),
            *("--results", str(folder), *options),
        ],
        env={key: value for key, value in os.environ.items() if key != "XFBENCH_RESULTS"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert process.returncode in (0, 1), process.stderr
    files = set(folder.glob("records/*/*.json")) - earlier
    records = [json.loads(file.read_text()) for file in files]
    reasons = [
        record["reason"]
        for record in records
        if record["status"] not in ("ok", "unsupported")
        and not record["request"]["probe"]
        and record["request"]["session"]  # other cells are left out on a small machine
    ]
    unexpected = [reason for reason in reasons if not reason.startswith(EXPECTED)]
    return process.returncode, json.loads(process.stdout), unexpected


@pytest.mark.deep
@pytest.mark.parametrize("name", STUDIES)
def test_study_with_one_launch_per_cell_has_an_answer(name, results_folder):
    framework_options = ["--framework", FRAMEWORKS[name]] if name in FRAMEWORKS else []
    status, answer, unexpected = run_study(
        name, results_folder, *framework_options, "--launches", "1", "--no-verify", "--resume"
    )
    assert not unexpected
    assert answer["size"] == "smoke" and answer["launches"] > 0
    assert answer["findings"]
    assert all(finding["sentence"] for finding in answer["findings"])
    if name in ("thread-sweep", "data-format"):
        assert status == 0
        values = answer["findings"][0]["values"]
        assert values and all(value["interval"] for value in values)


@pytest.mark.long
@pytest.mark.parametrize("name", STUDIES)
def test_full_study_has_an_answer(name, tmp_path):
    status, answer, unexpected = run_study(name, tmp_path / "results")
    assert status == 0 and not unexpected
    assert answer["launches"] > 0
    assert all(finding["sentence"] for finding in answer["findings"])
