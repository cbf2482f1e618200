"""Fixtures for tests that inject faults."""

import pytest

from tests.fake_peaks import build_peaks
from xfbench.host import roofline


@pytest.fixture(autouse=True)
def _fake_peaks(monkeypatch):
    """Replace the measurement of the machine's peaks."""
    for threads, peak in build_peaks().items():
        monkeypatch.setitem(roofline._PEAKS, threads, peak)


@pytest.fixture
def run_arguments(fake_adapter):
    """Return a function that builds `xfbench run` arguments for a fake trainer with these lines."""

    def build_arguments(lines="", **settings):
        fake_adapter(lines)
        options = {"batch-size": 4, "data": "synthetic", "steps": 3, "warmup": 1, "launches": 1}
        arguments = [f"--{name}={value}" for name, value in {**options, **settings}.items()]
        return ["run", "--framework", "odd", "--workload", "lenet", "--no-verify", *arguments]

    return build_arguments
