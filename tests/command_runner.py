"""Run the `xfbench` command within the test's process, which is faster than a new process."""

import sys
from types import SimpleNamespace

import pytest
import typer

from xfbench.cli import app, main


def make_runner(monkeypatch, capsys, folder):
    """Return a function that runs the command in `folder`; it returns output and exit status."""
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


def parse_run_command(arguments):
    """Return the value of each parameter of `xfbench run` with these arguments, by its name."""
    command = typer.main.get_command(app).commands["run"]
    return command.make_context("run", list(arguments)).params
