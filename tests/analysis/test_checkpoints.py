"""Checkpoints in requests, records and tables; old cells keep their digests."""

import csv
import io
import json

import pytest
from pydantic import ValidationError

from xfbench.analysis.checkpoints import checkpoint_costs
from xfbench.analysis.comparison import Side, compare
from xfbench.analysis.leaderboard import build_tables as all_tables
from xfbench.base import digests, errors
from xfbench.execution import job
from xfbench.model import adapter, capabilities
from xfbench.model.certificate import certified_fields
from xfbench.model.record import Checkpoints, Record
from xfbench.model.request import Request
from xfbench.planning import experiment
from xfbench.rendering import tables
from xfbench.store.results_folder import Store

CHECKPOINTS = Checkpoints(
    format="plain",
    file_system="ext4",
    bytes=4_000_000,
    save_seconds=(0.1, 0.2, 0.4),
    load_seconds=(0.01, 0.02, 0.04),
    wall_seconds=1.0,
    equal=True,
)


@pytest.fixture
def checkpointed(record):
    """Return a function that makes a launch of 5 s with two timed steps and three checkpoints.

    Each step takes 1 s, and the checkpoints take 1 s together.
    """

    def make_checkpointed(launch=1, checkpoints=CHECKPOINTS, **fields):
        launch_record = record(steps=(1.0,) * 3, launch=launch, checkpoints=3)
        measurement = launch_record.measurement.model_copy(update={"wall_seconds": 5.0})
        updates = {"measurement": measurement, "checkpoints": checkpoints, **fields}
        return launch_record.model_copy(update=updates)

    return make_checkpointed


def test_cell_digest_without_checkpoints_is_unchanged(cell):
    request = cell().request(1)
    assert "checkpoints" not in request.cell_digest_fields()
    document = request.model_dump(mode="json")
    assert document.pop("checkpoints") == 0
    old_request = Request.model_validate(document)
    assert digests.of_json(old_request.cell_digest_fields()) == digests.of_json(
        request.cell_digest_fields()
    )
    assert cell(checkpoints=2).request(1).cell_digest_fields()["checkpoints"] == 2


def test_certificate_does_not_depend_on_checkpoints(cell):
    without_checkpoints, with_checkpoints = cell().request(1), cell(checkpoints=2).request(1)
    assert certified_fields(without_checkpoints) == certified_fields(with_checkpoints)


def test_record_without_checkpoint_fields_is_read(record):
    document = record().document()
    del document["checkpoints"], document["request"]["checkpoints"], document["id"]
    document["id"] = digests.of_json(document)
    read_record = Record.read(json.dumps(document).encode())
    assert (read_record.checkpoints, read_record.request.checkpoints) == (None, 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": 3, "checkpoints": 4}, "more than the 3 timed windows"),
        ({"steps": 20, "sync_every": 10, "checkpoints": 3}, "more than the 2 timed windows"),
        ({"epochs": 2, "checkpoints": 3}, "more than the 2 epochs"),
        ({"steps": 3, "checkpoints": -1}, "checkpoints: give at least 0"),
    ],
)
def test_too_many_checkpoints_are_refused(settings, words):
    with pytest.raises(errors.UsageError, match=words):
        matrix = experiment.build_matrix(framework=["reference"], workload=["lenet"], **settings)
        experiment.expand_matrices([matrix])


def test_matrix_sets_checkpoints_in_each_cell():
    matrix = experiment.build_matrix(framework=["reference"], workload=["lenet"], checkpoints=2)
    [(cell, _)] = experiment.expand_matrices([matrix])
    assert cell.checkpoints == 2


def test_job_has_a_unique_checkpoint_folder(cell, tmp_path):
    assert job.build_checkpoint_fields(cell().request(1), tmp_path) == {}
    request = cell(checkpoints=1).request(1)
    assert job.build_checkpoint_fields(request, None) == {"checkpoint_folder": "checkpoint"}
    first, second = (job.build_checkpoint_fields(request, tmp_path) for _ in range(2))
    assert first != second
    assert first["checkpoint_folder"].startswith(f"{tmp_path}/xfbench-")


@pytest.mark.parametrize(
    ("framework", "strategy"), [("mxnet", "dist_async"), ("tensorflow", "parameter_server")]
)
def test_parameter_server_strategies_support_no_checkpoints(cell, framework, strategy):
    rank_settings = {"ranks": 2, "strategy": strategy, "scaling": "weak"}
    batch_settings = {"global_batch_size": 8, "batch_size_per_rank": 4, "checkpoints": 1}
    kernel = adapter.load(framework).default_kernel
    request = cell(framework=framework, kernel=kernel, **rank_settings, **batch_settings).request(1)
    assert capabilities.refusal_reason(request) == (
        f"{strategy} keeps the momentum on its servers, and they save no checkpoints"
    )


def test_checkpoint_figures_are_medians_with_a_share_of_run_time(checkpointed):
    slow_checkpoints = CHECKPOINTS.model_copy(
        update={"save_seconds": (0.8,) * 3, "file_system": "xfs"}
    )
    checkpoint_figures = checkpoint_costs(
        [checkpointed(), checkpointed(2), checkpointed(3, slow_checkpoints)]
    )
    assert (checkpoint_figures.save_seconds, checkpoint_figures.load_seconds) == (0.2, 0.02)
    assert checkpoint_figures.save_bandwidth == pytest.approx(20e6)
    assert checkpoint_figures.load_bandwidth == pytest.approx(200e6)
    assert checkpoint_figures.share == pytest.approx(0.7 / (5.0 - 1.0 + 0.7))
    assert (
        checkpoint_figures.bytes,
        checkpoint_figures.format,
        checkpoint_figures.file_system,
    ) == (4_000_000, "plain", "ext4, xfs")


def test_failed_launches_have_no_checkpoint_figures(checkpointed, record):
    assert checkpoint_costs([checkpointed(status="invalid", reason="x"), record()]) is None


def test_tables_have_checkpoint_columns_only_if_needed(checkpointed, record):
    [table] = all_tables([checkpointed(), record()], {})
    table_text = tables.to_text([table], "storage")
    for word in ("plain", "ext4", "4 MB", "0.2 s", "20 MB/s", "0.02 s", "200 MB/s", "14.9%"):
        assert word in table_text
    assert "checkpoints" in tables.to_text([table])
    assert "checkpoints" not in tables.to_text(all_tables([record()], {}))


def test_json_and_csv_contain_checkpoint_figures(checkpointed, record):
    all_rows = all_tables([checkpointed(), record()], {})
    rows = json.loads(tables.to_json(all_rows))["tables"][0]["unranked"]
    assert sorted(row["checkpoints"] for row in rows) == [0, 3]
    [checkpoint_figures] = [row["checkpointing"] for row in rows if row["checkpoints"]]
    assert checkpoint_figures["save_bandwidth"] == pytest.approx(20e6)
    lines = list(csv.DictReader(io.StringIO(tables.to_csv(all_rows))))
    assert {line["checkpoint_bytes"] for line in lines} == {"", "4000000"}


def test_unsupported_checkpoint_cell_has_a_separate_row(checkpointed, record):
    unsupported = record(
        checkpoints=3,
        fields={"status": "unsupported", "reason": "no", "measurement": None, "cell": None},
    )
    [table] = all_tables([record(), unsupported], {})
    assert [row.checkpoints for row in table.unranked] == [0, 3]


def test_compare_accepts_cells_with_and_without_checkpoints(record, tmp_path):
    store = Store(tmp_path)
    store.create_and_check_folders()
    for launch in (1, 2, 3):
        for count in (0, 3):
            store.add(record(launch=launch, checkpoints=count, steps=(0.1 + launch / 100,) * 3))
    [comparison] = compare(
        Side(tmp_path, {"checkpoints": "0"}), Side(tmp_path, {"checkpoints": "3"})
    ).comparisons
    assert ("0 checkpoints" in comparison.a, "3 checkpoints" in comparison.b) == (True, True)


def test_launch_with_checkpoints_has_no_energy_per_image(checkpointed):
    measurement = checkpointed().measurement.model_copy(update={"energy_joules": 80.0})
    [table] = all_tables([checkpointed(measurement=measurement)], {})
    assert table.unranked[0].costs.joules_per_image is None


def test_checkpoint_model_refuses_unknown_fields(checkpointed):
    with pytest.raises(ValidationError):
        Checkpoints.model_validate({**CHECKPOINTS.model_dump(), "kept": True})
    assert checkpointed().document()["checkpoints"]["save_seconds"] == [0.1, 0.2, 0.4]
