"""Faults that are made to happen, and what every such test asks when it is over."""

import pytest

from tests import command_runner
from tests.faults.driver import peaks
from xfbench.host import roofline


@pytest.fixture(autouse=True)
def _told_peaks(monkeypatch):
    """What the machine can do need not be measured for these."""
    for threads, peak in peaks().items():
        monkeypatch.setitem(roofline._PEAKS, threads, peak)


@pytest.fixture
def odd(fake_adapter):
    """A function: what a command line needs to run a fake trainer with these lines."""

    def make(lines="", **settings):
        fake_adapter(lines)
        chosen = {"batch-size": 4, "data": "synthetic", "steps": 3, "warmup": 1, "launches": 1}
        words = [f"--{name}={value}" for name, value in {**chosen, **settings}.items()]
        return ["run", "--framework", "odd", "--workload", "lenet", "--no-verify", *words]

    return make


@pytest.fixture
def xfbench(monkeypatch, capsys, tmp_path):
    """A function that runs the command, within this process."""
    return command_runner.make_runner(monkeypatch, capsys, tmp_path)
