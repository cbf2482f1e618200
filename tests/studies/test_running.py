"""Tests of study plans: skipped cells, prepared data and time estimates."""

import pytest

from xfbench.base import digests
from xfbench.base.errors import UsageError
from xfbench.host import sites
from xfbench.host.machine import describe_machine
from xfbench.model.record import Conditions
from xfbench.planning import durations, experiment
from xfbench.store.results_folder import Store
from xfbench.studies import media, running


def duration_fields(seconds):
    return {
        "conditions": Conditions(
            load_before=0, load_after=0, steal_seconds=0, swap_bytes=0, seconds=seconds
        )
    }


@pytest.fixture
def prepare_study(tmp_path, monkeypatch):
    """Return a function that plans a study, with its data in a temporary folder."""
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    memory = tmp_path / "memory"
    memory.mkdir()

    def prepare(study, size="smoke", **choices):
        choice_fields = {"media": {"other": memory}, **choices}
        return running.plan_study_and_write_data(study, size, running.Choices(**choice_fields))

    return prepare


def test_cells_over_the_processor_count_are_omitted(make_study, prepare_study, monkeypatch):
    monkeypatch.setattr(running.os, "sched_getaffinity", lambda _: {0, 1})
    matrix = {"framework": ["torch"], "threads": [1, 2, 4], "ranks": [1, 2], "scaling": "weak"}
    study_plan = prepare_study(make_study({"name": "values"}, matrix))
    skip_reasons = {(cell.ranks, cell.threads): reason for cell, reason in study_plan.skipped_cells}
    assert set(skip_reasons) == {(1, 4), (2, 2), (2, 4)}
    assert skip_reasons[1, 4] == "4 threads need 4 processors, and there are 2"
    assert skip_reasons[2, 2] == "2 ranks of 2 threads need 4 processors, and there are 2"
    assert not prepare_study(make_study({"name": "values"}, matrix, crowded=True)).skipped_cells


def test_cells_that_do_not_fit_in_a_socket_are_omitted(make_study, prepare_study):
    matrix = {"framework": ["torch"], "threads": [1, 4096], "pinning": "sockets"}
    study_plan = prepare_study(make_study({"name": "values"}, matrix, crowded=True))
    [(cell, reason)] = study_plan.skipped_cells
    assert cell.threads == 4096
    assert reason.startswith("--pinning sockets: 4096 threads need a socket with 4096 allowed CPUs")


def test_cells_over_the_cores_of_a_site_node_are_omitted(make_study, prepare_study, tmp_path):
    site = tmp_path / "site.toml"
    site.write_text('title = "t"\nlauncher = "slurm"\ncores = 3\nreserved_cores = 1\n')
    matrix = {"framework": ["torch"], "threads": [1, 2], "ranks": [1, 2, 4], "nodes": [1, 2]}
    matrix["scaling"] = "weak"
    study_plan = prepare_study(make_study({"name": "values"}, matrix), site=str(site))
    skip_reasons = {
        (cell.ranks, cell.nodes, cell.threads): reason for cell, reason in study_plan.skipped_cells
    }
    assert set(skip_reasons) == {(2, 1, 2), (4, 1, 1), (4, 1, 2), (4, 2, 2)}
    assert skip_reasons[4, 2, 2] == "2 ranks of 2 threads need 4 processors, and a node has 2"
    site.write_text('title = "t"\nlauncher = "slurm"\n')
    sites.load_site.cache_clear()
    assert not prepare_study(make_study({"name": "values"}, matrix), site=str(site)).skipped_cells


def test_reason_of_a_cell_that_was_measured_earlier_is_not_stored(
    make_study, prepare_study, make_launches, tmp_path
):
    matrix = {"threads": [2048, 4096]}
    study_plan = prepare_study(make_study({"name": "values"}, matrix))
    measured, other = (cell.request(1) for cell, _ in study_plan.skipped_cells)
    store = Store(tmp_path / "results")
    digest = digests.of_json(measured.cell_digest_fields())
    [launch] = make_launches(0.1, fields={"request": measured, "cell": digest})
    store.add(launch)
    for _ in range(2):
        running.record_skipped_cells(study_plan, store)
    [stored] = [record for record in store.records() if record.status != "ok"]
    assert stored.request == other and stored.machine == describe_machine()


def test_frameworks_networks_and_launches_can_be_restricted(make_study, prepare_study):
    matrix = {"framework": ["reference", "torch"], "workload": ["lenet", "convnet"], "launches": 3}
    study = make_study({"name": "values"}, matrix)
    plan = prepare_study(study, frameworks=["torch"], workloads=["convnet"], launches=2).plan
    assert [(each.framework, each.workload) for each in plan.requests] == 2 * [("torch", "convnet")]
    with pytest.raises(UsageError, match="does not use alexnet"):
        prepare_study(study, workloads=["alexnet"])
    with pytest.raises(UsageError, match="mine, size smoke, does not use caffe"):
        prepare_study(study, frameworks=["caffe"])


def test_study_data_are_prepared_on_every_medium_and_format(make_study, prepare_study):
    matrix = {"data": ["digits-raw@*", "digits-lmdb"], "epochs": 1, "steps": None}
    study = make_study({"name": "values"}, matrix, prepared={"format": ["raw", "lmdb"]})
    plan = prepare_study(study).plan
    assert {cell.data_set.format for cell, _ in plan.protocols} == {"raw", "lmdb"}
    folders = set(plan.data_folders.values())
    assert all((folder / "manifest.json").is_file() for folder in folders)
    assert any("memory" in str(folder) for folder in folders)
    modified_ns = {folder: (folder / "manifest.json").stat().st_mtime_ns for folder in folders}
    second_folders = set(prepare_study(study).plan.data_folders.values())
    assert {
        folder: (folder / "manifest.json").stat().st_mtime_ns for folder in second_folders
    } == modified_ns


def test_unknown_medium_is_reported(make_study, prepare_study):
    matrix = {"data": ["digits-raw@tape"], "epochs": 1, "steps": None}
    study = make_study({"name": "values"}, matrix, prepared={"format": ["raw"]})
    with pytest.raises(UsageError, match="unknown medium 'tape'"):
        prepare_study(study)
    with pytest.raises(UsageError, match=r"--medium x=.*no such folder"):
        media.medium_folders({"x": experiment.user_studies_folder() / "nowhere"})


def test_time_estimate_uses_earlier_launches_of_similar_cells(make_study, prepare_study, record):
    plan = prepare_study(make_study({"name": "values"}, {"threads": [1, 2], "launches": 2})).plan
    assert durations.estimate_duration(plan.requests, []).describe() == "unknown"
    unrelated = record(threads=1, fields=duration_fields(10.0), workload="convnet")
    assert durations.estimate_duration(plan.requests, [unrelated]).describe() == "unknown"
    similar = record(threads=1, fields=duration_fields(3.0))
    assert durations.estimate_duration(plan.requests, [similar]).seconds == 12.0
    [cell] = [cell for cell, _ in plan.protocols if cell.threads == 2]
    exact = record(threads=2, fields={**duration_fields(5.0), "request": cell.request(1)})
    estimate = durations.estimate_duration(
        plan.requests, [exact, *[record(fields=duration_fields(1.0))] * 2]
    )
    assert estimate.describe() == "about 12 s for 4 launches"


def test_time_estimate_scales_launches_with_other_steps(make_study, prepare_study, record):
    matrix = {"steps": 50, "warmup": 0}
    plan = prepare_study(make_study({"name": "values"}, {**matrix, "launches": 1})).plan
    [request] = plan.requests
    earlier = record(steps=(0.1,) * 3, fields=duration_fields(8.0))
    assert earlier.request.steps != request.steps
    start_s = 8.0 - earlier.measurement.wall_seconds
    image_s = 0.1 / earlier.request.batch_size_per_rank
    estimate = durations.estimate_duration(plan.requests, [earlier])
    assert estimate.seconds == pytest.approx(start_s + 51 * request.batch_size_per_rank * image_s)


def test_impossible_cells_take_no_time(make_study, prepare_study):
    study = make_study({"name": "values"}, {"workload": ["alexnet"], "data": ["digits"]})
    plan = prepare_study(study).plan
    assert durations.estimate_duration(plan.requests, []).unknown == 0


def test_time_estimate_uses_the_median_of_earlier_launches(make_study, prepare_study, record):
    plan = prepare_study(make_study({"name": "values"}, {"threads": [1], "launches": 2})).plan
    records = [record(threads=1, fields=duration_fields(seconds)) for seconds in (3.0, 1.0, 50.0)]
    assert durations.estimate_duration(plan.requests, records).seconds == 6.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(89.4, "89 s"), (90.0, "2 min"), (150.1, "3 min")],
)
def test_estimate_is_in_minutes_from_90_seconds(seconds, words):
    assert durations.Estimate(seconds, 4, 0).describe() == f"about {words} for 4 launches"
