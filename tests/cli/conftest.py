"""Fixtures that run the `xfbench` command as a process."""

import os
import shutil
import subprocess
import sys

import pytest

SMALL = "--framework reference --workload lenet --batch-size 2 --steps 2 --warmup 0".split()


@pytest.fixture
def run_process(tmp_path):
    """A function that runs the command in the folder of `run_inline`, as a process."""

    def run(*arguments, **variables):
        return subprocess.run(
            [sys.executable, "-m", "xfbench", *arguments],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def measured_run(tmp_path_factory):
    """The output of one run of two launches, and its folder; tests work on copies."""
    folder = tmp_path_factory.mktemp("measured")
    process = subprocess.run(
        [sys.executable, "-m", "xfbench", "run", *SMALL, "--launches", "2"],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "XFBENCH_RESULTS"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return process.stdout, folder / "results"


@pytest.fixture
def results(measured_run, tmp_path):
    """A copy of that run's results in the folder of the command."""
    return shutil.copytree(measured_run[1], tmp_path / "results")
