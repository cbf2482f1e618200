"""Fixtures that run the `xfbench` command in an empty folder, as a process or in this one."""

import os
import subprocess
import sys

import pytest

from tests import command_runner


@pytest.fixture
def xfbench(tmp_path):
    """A function that runs the command in an empty folder, as a process."""

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


@pytest.fixture
def run_inline(tmp_path, monkeypatch, capsys):
    """A function that runs the command in the same folder, within this process.

    It is for commands that start no launch, where a process would take most of the time.
    """
    return command_runner.make_runner(monkeypatch, capsys, tmp_path)
