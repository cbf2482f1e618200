"""A fixture that runs the `xfbench` command as a process."""

import os
import subprocess
import sys

import pytest


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
