"""Tests of the ReFrame test in docs/reframe, run by ReFrame."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reframe"


def run_reframe(folder, *options, **variables):
    """Return the ended process of ReFrame with our settings and our test, for LeNet."""
    programs = Path(sys.executable).parent
    return subprocess.run(
        [
            *(programs / "reframe", "--prefix", folder / "reframe"),
            *("-C", FOLDER / "settings.py", "-c", FOLDER / "xfbench_test.py", *options),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "WORKLOADS": "lenet",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def outcomes(fake_adapter, tmp_path):
    """The process of a ReFrame session, and its test cases by framework."""
    fake_adapter('raise RuntimeError("no such network here")', name="broken")
    copy = shutil.copytree(ROOT / "adapters" / "reference", tmp_path / "adapters" / "copied")
    for file in copy.iterdir():
        if file.is_file():
            file.write_text(
                file.read_text()
                .replace("xfbench.adapters.reference", "xfbench.adapters.copied")
                .replace('name = "reference"', 'name = "copied"')
            )
    system, slow, fast = "workstation:default", 1e-3, 1e9
    settings_of_key = "lenet numpy cpu float32 digits threads=1 batch=4"
    reference_speeds = {
        system: {f"reference {settings_of_key}": slow, f"copied {settings_of_key}": fast}
    }
    references = tmp_path / "references.json"
    references.write_text(json.dumps(reference_speeds))
    settings = {
        "launches": 2,
        "threads": 1,
        "more": "--batch-size 4 --warmup 0 --steps 2 --data digits",
        "references": references,
    }
    process = run_reframe(
        tmp_path,
        *("-r", f"--report-file={tmp_path / 'report.json'}"),
        *(f"--setvar=XfbenchTest.{name}={value}" for name, value in settings.items()),
        FRAMEWORKS="reference,copied,broken",
    )
    assert (tmp_path / "report.json").is_file(), process.stdout + process.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    [session] = report["runs"]
    cases = {case["framework"]: case for case in session["testcases"]}
    return process, cases


@pytest.mark.deep
def test_reframe_fails_a_slower_cell_and_a_broken_cell(outcomes):
    process, cases = outcomes
    assert process.returncode == 1
    assert len(cases) == 3, process.stdout
    passing = cases["reference"]
    assert passing["result"] == "pass", process.stdout
    assert passing["perfvalues"]["workstation:default:images_per_second"][0] > 0
    slower = cases["copied"]
    assert (slower["result"], slower["fail_phase"]) == ("fail", "performance"), process.stdout
    broken = cases["broken"]
    assert (broken["result"], broken["fail_phase"]) == ("fail", "sanity"), process.stdout
    assert "no such network here" in broken["fail_reason"]


def test_keys_of_the_example_references_name_a_cell():
    for references in json.loads((FOLDER / "references.json").read_text()).values():
        for key in references:
            assert len(key.split()) >= 8 and "threads=" in key and "batch=" in key, key


def test_builds_and_gpus_are_parameters(tmp_path):
    options = ("--describe", "--system", "cluster:cpu", "-S", "XfbenchTest.gpus=2")
    variables = {"FRAMEWORKS": "torch", "BUILDS": "/opt/torch-2.1,/opt/torch-2.3"}
    completed = run_reframe(tmp_path, *options, **variables)
    assert completed.returncode == 0, completed.stderr
    tests = json.loads(completed.stdout)
    options = [" ".join(test["executable_opts"]) for test in tests]
    builds = [text.split(" --python ")[1].split()[0] for text in options]
    assert builds == ["torch=/opt/torch-2.1", "torch=/opt/torch-2.3"]
    assert all("--device cuda --ranks 2 --scaling weak" in each for each in options)
    assert {test["extra_resources"]["gpu"]["num_gpus_per_node"] for test in tests} == {2}
