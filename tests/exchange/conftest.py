"""Files that other tools wrote, each by the tool itself where it can be had."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = """
import pytest

@pytest.mark.parametrize("n", [10, 20])
def test_sum(benchmark, n):
    benchmark.pedantic(lambda: sum(range(n)), rounds=5, iterations=2)

@pytest.mark.parametrize("workload,framework,threads", [("lenet", "torch", 2)])
def test_named(benchmark, workload, framework, threads):
    benchmark.pedantic(lambda: None, rounds=3)

@pytest.mark.parametrize("workload,framework", [("lenet5", "pytorch")])
def test_otherwise_named(benchmark, workload, framework):
    benchmark.pedantic(lambda: None, rounds=3)
"""
CHECK = """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Speed(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    workload = parameter(["lenet"])
    n = parameter([1, 2])
    executable = "echo"
    num_tasks = 1
    reference = {"*": {"speed": (100.0, -0.1, 0.5, "images/s")}}

    @run_before("run")
    def give(self):
        self.executable_opts = ["speed", str(100 * self.n), "loss 0.25"]

    @sanity_function
    def ran(self):
        return sn.assert_found("speed", self.stdout)

    @performance_function("images/s")
    def speed(self):
        return sn.extractsingle(r"speed (\\S+)", self.stdout, 1, float)

    @performance_function("1")
    def loss(self):
        return sn.extractsingle(r"loss (\\S+)", self.stdout, 1, float)


@rfm.simple_test
class Silent(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "true"

    @sanity_function
    def ran(self):
        return True


@rfm.simple_test
class Failing(Silent):
    @sanity_function
    def ran(self):
        return sn.assert_found("speed", self.stdout)
"""


@pytest.fixture(scope="session")
def benchmarks(tmp_path_factory):
    """A folder with pytest-benchmark's `full.json`, which has data, and `.benchmarks`' without."""
    folder = tmp_path_factory.mktemp("benchmarks")
    (folder / "test_sums.py").write_text(BENCHMARKS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sums.py"]
    run_command(folder, *command, "--benchmark-json=full.json", "--benchmark-save=kept")
    return folder


@pytest.fixture(scope="session")
def reframe(tmp_path_factory):
    """The report of a ReFrame session: two tests with figures, one without, one that fails."""
    folder = tmp_path_factory.mktemp("reframe")
    (folder / "check.py").write_text(CHECK)
    program = Path(sys.executable).with_name("reframe")
    run_command(
        *(folder, program, "-c", "check.py", "-r", "--nocolor", "--performance-report"),
        *("--report-file=report.json", f"--prefix={folder}"),
        home=str(folder),
        status=1,
    )
    return folder / "report.json"


def run_command(folder, *command, status=0, home=None):
    completed = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env={**os.environ, **({"HOME": home} if home else {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == status, completed.stdout + completed.stderr
