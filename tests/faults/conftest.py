"""Faults that are made to happen, and what every such test asks when it is over."""

import pytest

from tests import side_by_side, within
from tests.faults.driver import peaks
from tests.leftovers import left_running
from xfbench.host import roofline
from xfbench.results.store import Store
from xfbench.running import runner


@pytest.fixture(autouse=True)
def _told_peaks(monkeypatch):
    """What the machine can do need not be measured for these."""
    for threads, peak in peaks().items():
        monkeypatch.setitem(roofline._PEAKS, threads, peak)


@pytest.fixture
def one(own_adapter, cell, tmp_path):
    """A function that does one launch of a trainer with these lines after its own.

    Its record, which the store has, and its run's folder; nothing is left running.
    """

    def do(lines, time_limit=60.0, **request):
        side_by_side.write(own_adapter, tmp_path, f"{side_by_side.TRAINER}\n{lines}\n")
        store = Store(tmp_path / "results")
        session = runner.Session(store, time_limit=time_limit)
        session.prepare(["odd"], {}, print)
        asked = cell(framework="odd", kernel="plain", **request).request(1)
        [record] = runner.run([asked], session)
        assert left_running(tmp_path) == []
        assert list(store.records()) == [record]
        return record, store.run_folder(record)

    return do


@pytest.fixture
def odd(own_adapter, tmp_path):
    """A function: what a command line needs to run a trainer with these lines after its own."""

    def make(lines="", **settings):
        side_by_side.write(own_adapter, tmp_path, f"{side_by_side.TRAINER}\n{lines}\n")
        chosen = {"batch-size": 4, "data": "synthetic", "steps": 3, "warmup": 1, "launches": 1}
        words = [f"--{name}={value}" for name, value in {**chosen, **settings}.items()]
        return ["run", "--framework", "odd", "--workload", "lenet", "--no-verify", *words]

    return make


@pytest.fixture
def xfbench(monkeypatch, capsys, tmp_path):
    """A function that runs the command, within this process."""
    return within.runner(monkeypatch, capsys, tmp_path)
