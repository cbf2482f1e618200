"""The `xfbench` command run within the test's process: many are run where a process is slow."""

import sys
from types import SimpleNamespace

import pytest

from xfbench.cli import main


def make_runner(monkeypatch, capsys, folder):
    """A function that runs the command in this folder: what it printed, and its exit status."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("XFBENCH_RESULTS", raising=False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["xfbench", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main()
        output = capsys.readouterr()
        return SimpleNamespace(
            stdout=output.out, stderr=output.err, returncode=int(exit_info.value.code or 0)
        )

    return run
