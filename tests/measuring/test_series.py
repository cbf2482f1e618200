"""Tests of packing and reading series of launches."""

import pytest

from tests.measuring import series
from tests.sample_records import SOFTWARE, vary_record
from xfbench.host.machine import describe_machine
from xfbench.model.record import Conditions
from xfbench.store.results_folder import Store


@pytest.fixture
def results(tmp_path, record):
    """A results folder with two sessions of two cells, three launches each, and a failed launch."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    quiet = Conditions(load_before=0, load_after=0, steal_seconds=0.5, swap_bytes=0, seconds=10.0)
    about = {"machine": describe_machine(), "software": SOFTWARE, "conditions": quiet}
    for session in ("one", "two"):
        for number in (1, 2, 3):
            for threads in (1, 2):
                launch = record((0.1234567, 5.0 * number), number, threads=threads)
                fields = {**about, "request": {"session": session, "position": None}}
                store.add(vary_record(launch, **fields), None)
    failed = vary_record(record(), status="failed", reason="no memory", measurement=None, **about)
    store.add(failed, None)
    return store.folder


def test_series_are_read_as_they_were_packed(results, tmp_path):
    sessions = series.read_sessions(results)
    assert [each.session for each in sessions] == ["one", "two"]
    for each in sessions:
        read = series.read(series.write(each, tmp_path / "packed"))
        assert read.machine == each.machine and read.versions == each.versions
        for launch, expected in zip(read.launches, each.launches, strict=True):
            assert launch.step_s == pytest.approx(expected.step_s, abs=1e-6)
            assert vars(launch) | {"step_s": expected.step_s} == vars(expected)
    assert len(series.read_all(tmp_path / "packed")) == 2


def test_cells_have_their_launches_in_order(results):
    cells = series.read_sessions(results)[0].by_cell()
    assert len(cells) == 2
    for launches in cells.values():
        assert [launch.number for launch in launches] == [1, 2, 3]
        assert series.launches_are_long(launches) == [True, True, True]
        assert {launch.steal_s for launch in launches} == {0.5}
