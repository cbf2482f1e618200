"""The `xfbench` command for whoever asks for it: real processes."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def xfbench(tmp_path):
    """A function that runs the command in an empty folder."""

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
