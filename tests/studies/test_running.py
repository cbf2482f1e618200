"""A study as a plan: what is left out, what is made for it, how long it will take."""

import pytest

from xfbench import experiment
from xfbench.base.errors import UsageError
from xfbench.host import sites
from xfbench.records.record import Conditions
from xfbench.studies import media, running


def took(seconds):
    return {
        "conditions": Conditions(
            load_before=0, load_after=0, steal_seconds=0, swap_bytes=0, seconds=seconds
        )
    }


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """A function: a study's plan, with its data in a folder of the test's."""
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    memory = tmp_path / "memory"
    memory.mkdir()

    def make(made, size="smoke", **choices):
        named = {"media": {"other": memory}, **choices}
        return running.prepare(made, size, running.Choices(**named))

    return make


def test_cells_over_the_processor_count_are_omitted(study, prepared, monkeypatch):
    monkeypatch.setattr(running.os, "sched_getaffinity", lambda _: {0, 1})
    matrix = {"framework": ["torch"], "threads": [1, 2, 4], "ranks": [1, 2], "scaling": "weak"}
    found = prepared(study({"name": "values"}, matrix))
    out = {(cell.ranks, cell.threads): reason for cell, reason in found.skipped_cells}
    assert set(out) == {(1, 4), (2, 2), (2, 4)}
    assert out[1, 4] == "4 threads need 4 processors, and there are 2"
    assert out[2, 2] == "2 ranks of 2 threads need 4 processors, and there are 2"
    assert not prepared(study({"name": "values"}, matrix, crowded=True)).skipped_cells


def test_cells_over_the_cores_of_a_site_node_are_omitted(study, prepared, tmp_path):
    site = tmp_path / "site.toml"
    site.write_text('title = "t"\nlauncher = "slurm"\ncores = 3\nreserved_cores = 1\n')
    matrix = {"framework": ["torch"], "threads": [1, 2], "ranks": [1, 2, 4], "nodes": [1, 2]}
    matrix["scaling"] = "weak"
    found = prepared(study({"name": "values"}, matrix), site=str(site))
    out = {(cell.ranks, cell.nodes, cell.threads): why for cell, why in found.skipped_cells}
    assert set(out) == {(2, 1, 2), (4, 1, 1), (4, 1, 2), (4, 2, 2)}
    assert out[4, 2, 2] == "2 ranks of 2 threads need 4 processors, and a node has 2"
    site.write_text('title = "t"\nlauncher = "slurm"\n')
    sites.load.cache_clear()
    assert not prepared(study({"name": "values"}, matrix), site=str(site)).skipped_cells


def test_frameworks_and_launches_can_be_restricted(study, prepared):
    made = study({"name": "values"}, {"framework": ["reference", "torch"], "launches": 3})
    plan = prepared(made, frameworks=["torch"], launches=2).plan
    assert [request.framework for request in plan.requests] == ["torch", "torch"]
    with pytest.raises(UsageError, match="mine does not use caffe"):
        prepared(made, frameworks=["caffe"])


def test_study_data_are_prepared_on_every_medium_and_format(study, prepared):
    matrix = {"data": ["digits-raw@*", "digits-lmdb"], "epochs": 1, "steps": None}
    made = study({"name": "values"}, matrix, prepared={"format": ["raw", "lmdb"]})
    plan = prepared(made).plan
    assert {one.data_set.format for one, _ in plan.protocols} == {"raw", "lmdb"}
    known = set(plan.data_folders.values())
    assert all((folder / "manifest.json").is_file() for folder in known)
    assert any("memory" in str(folder) for folder in known)
    before = {folder: (folder / "manifest.json").stat().st_mtime_ns for folder in known}
    again = set(prepared(made).plan.data_folders.values())
    assert {f: (f / "manifest.json").stat().st_mtime_ns for f in again} == before


def test_unknown_medium_is_reported(study, prepared):
    matrix = {"data": ["digits-raw@tape"], "epochs": 1, "steps": None}
    made = study({"name": "values"}, matrix, prepared={"format": ["raw"]})
    with pytest.raises(UsageError, match="unknown medium 'tape'"):
        prepared(made)
    with pytest.raises(UsageError, match=r"--medium x=.*no such folder"):
        media.medium_folders({"x": experiment.user_studies_folder() / "nowhere"})


def test_time_estimate_uses_earlier_launches_of_similar_cells(study, prepared, record):
    plan = prepared(study({"name": "values"}, {"threads": [1, 2], "launches": 2})).plan
    assert running.estimate_duration(plan.requests, []).describe() == "unknown"
    other = record(threads=1, fields=took(10.0), workload="convnet")
    assert running.estimate_duration(plan.requests, [other]).describe() == "unknown"
    like = record(threads=1, fields=took(3.0))
    assert running.estimate_duration(plan.requests, [like]).seconds == 12.0
    [own] = [one for one, _ in plan.protocols if one.threads == 2]
    exact = record(threads=2, fields={**took(5.0), "request": own.request(1)})
    found = running.estimate_duration(plan.requests, [exact, *[record(fields=took(1.0))] * 2])
    assert found.describe() == "about 12 s for 4 launches"


def test_impossible_cells_take_no_time(study, prepared):
    made = study({"name": "values"}, {"workload": ["alexnet"], "data": ["digits"]})
    plan = prepared(made).plan
    assert running.estimate_duration(plan.requests, []).unknown == 0


def test_of_several_earlier_launches_the_median_is_foreseen(study, prepared, record):
    plan = prepared(study({"name": "values"}, {"threads": [1], "launches": 2})).plan
    known = [record(threads=1, fields=took(seconds)) for seconds in (3.0, 1.0, 50.0)]
    assert running.estimate_duration(plan.requests, known).seconds == 6.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(89.4, "89 s"), (90.0, "2 min"), (150.1, "3 min")],
)
def test_an_estimate_is_in_minutes_from_a_minute_and_a_half_on(seconds, words):
    assert running.Estimate(seconds, 4, 0).describe() == f"about {words} for 4 launches"
