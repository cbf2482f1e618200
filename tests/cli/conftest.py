"""Fixtures that run the `xfbench` command as a process."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.cli.site_runs import RUN

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


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that puts a program with these shell lines first on the PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write_program(name, lines):
        (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
        (folder / name).chmod(0o755)

    return write_program


@pytest.fixture
def python(install):
    """A python3 with NumPy, first on the PATH."""
    install("python3", f'exec "{sys.executable}" "$@"')


@pytest.fixture
def results_folder(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def run_with_modules(tmp_path, results_folder, python, run_inline):
    """A function that runs with a module system whose start-up file has these lines."""

    def write_site(lines, settings=""):
        """Write the start-up file, and return the words of a run with its modules."""
        (tmp_path / "init.sh").write_text(lines)
        site = tmp_path / "site.toml"
        site.write_text(
            f'title = "s"\n{settings}\n[modules]\ninit = "{tmp_path / "init.sh"}"\n'
            '[modules.frameworks]\nreference = ["tool/2.5"]\n'
        )
        return [*RUN, f"--site={site}", f"--results={results_folder}"]

    def run(lines, *words, settings=""):
        return run_inline(*write_site(lines, settings), *words)

    run.write_site = write_site
    return run
