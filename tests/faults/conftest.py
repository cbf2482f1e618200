"""Faults that are made to happen, and what every such test asks when it is over."""

import pytest

from tests import command_runner
from tests.faults.driver import build_peaks
from xfbench.host import roofline


@pytest.fixture(autouse=True)
def _fake_peaks(monkeypatch):
    """What the machine can do need not be measured for these."""
    for threads, peak in build_peaks().items():
        monkeypatch.setitem(roofline._PEAKS, threads, peak)


@pytest.fixture
def run_arguments(fake_adapter):
    """A function: what a command line needs to run a fake trainer with these lines."""

    def make(lines="", **settings):
        fake_adapter(lines)
        options = {"batch-size": 4, "data": "synthetic", "steps": 3, "warmup": 1, "launches": 1}
        arguments = [f"--{name}={value}" for name, value in {**options, **settings}.items()]
        return ["run", "--framework", "odd", "--workload", "lenet", "--no-verify", *arguments]

    return make


@pytest.fixture
def xfbench(monkeypatch, capsys, tmp_path):
    """A function that runs the command, within this process."""
    return command_runner.make_runner(monkeypatch, capsys, tmp_path)
