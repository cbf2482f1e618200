"""Tests that share what is dear to make run in one process, and others beside them."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.abreast import TOGETHER

TEST = """
import os, pytest, time

@pytest.mark.parametrize("number", range(4))
def test_which_process_this_is(number, record_property):
    time.sleep(0.1)
    record_property("process", os.environ["PYTEST_XDIST_WORKER"])
"""


def processes(tmp_path, *files):
    """The processes that each file's tests ran in."""
    tests = tmp_path / "tests"
    for file in files:
        (tests / file).parent.mkdir(parents=True, exist_ok=True)
        (tests / file).write_text(TEST)
    hook = "from abreast import make_scheduler as pytest_xdist_make_scheduler"
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
    seen = {}
    for case in ElementTree.parse(report).iter("testcase"):
        [value] = [one.get("value") for one in case.iter("property")]
        seen.setdefault(case.get("classname"), set()).add(value)
    return seen


def test_a_group_stays_in_one_process_and_all_else_goes_where_there_is_time(tmp_path):
    seen = processes(
        tmp_path,
        "report/test_one.py",
        "report/deeper/test_two.py",
        "test_packaging.py",
        "test_alone.py",
    )
    assert len(seen["tests.report.test_one"] | seen["tests.report.deeper.test_two"]) == 1
    assert len(seen["tests.test_packaging"]) == 1
    assert set.union(*seen.values()) == {"gw0", "gw1"}


@pytest.mark.parametrize("name", TOGETHER)
def test_every_group_is_there(name):
    assert (Path(__file__).parent / name).exists()
