"""Tests of the scheduler: a group runs in one process, other tests in any free process."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.scheduler import GROUPS

TEST = """
import os, pytest, time

@pytest.mark.parametrize("number", range(4))
def test_process(number, record_property):
    time.sleep(0.1)
    record_property("process", os.environ["PYTEST_XDIST_WORKER"])
"""


def run_tests(tmp_path, *files):
    """Run copies of TEST and return the processes of each file."""
    tests = tmp_path / "tests"
    for file in files:
        (tests / file).parent.mkdir(parents=True, exist_ok=True)
        (tests / file).write_text(TEST)
    hook = "from scheduler import make_scheduler as pytest_xdist_make_scheduler"
    (tests / "conftest.py").write_text(hook)
    report = tmp_path / "report.xml"
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--import-mode=importlib", "-p", "no:cacheprovider"),
            *("--numprocesses", "2", "--junitxml", str(report), "tests"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        check=True,
        timeout=120,
    )
    processes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        [value] = [prop.get("value") for prop in case.iter("property")]
        processes.setdefault(case.get("classname"), set()).add(value)
    return processes


def test_a_group_runs_in_one_process(tmp_path):
    processes = run_tests(
        tmp_path,
        "adapters/test_one.py",
        "equality/deeper/test_two.py",
        "test_packaging.py",
        "test_single.py",
    )
    assert (
        len(processes["tests.adapters.test_one"] | processes["tests.equality.deeper.test_two"]) == 1
    )
    assert len(processes["tests.test_packaging"]) == 1
    assert set.union(*processes.values()) == {"gw0", "gw1"}


@pytest.mark.parametrize("path", [path for paths in GROUPS.values() for path in paths])
def test_every_path_of_a_group_exists(path):
    assert (Path(__file__).parent / path).exists()
