"""Tests of solver settings of a cell: each makes another workload."""

import pytest

from tests.sample_records import SOFTWARE, build_record_certificate
from xfbench.analysis import leaderboard
from xfbench.base.errors import UsageError
from xfbench.equality import cases
from xfbench.host.machine import describe_machine
from xfbench.model import certificate, training
from xfbench.model.certificate import certified_fields
from xfbench.model.facts import workload_facts
from xfbench.model.request import SOLVER
from xfbench.planning import experiment
from xfbench.rendering.report import repeat
from xfbench.workloads import workload_from_json, workloads

DIGITS = 1437  # training images
SIZES = {"global_batch_size": 512, "batch_size_per_rank": 512}


def build_cells(**settings):
    matrix = experiment.build_matrix(framework=["torch"], workload=["lenet"], **settings)
    return [cell for cell, _ in experiment.expand_matrices([matrix])]


@pytest.fixture
def make_certified(record):
    """Return a function that makes a certified record with these choices, and its certificate."""

    def make_pair(**choices):
        fields = {"software": SOFTWARE, "machine": describe_machine()}
        request = record(**choices).request
        fields["workload"] = workload_facts(training.workload_with_solver_of_cell(request))
        proof = build_record_certificate(record(fields=fields, **choices))
        return record(fields={**fields, "certificate": proof.id}, **choices), proof

    return make_pair


def test_default_cell_trains_the_published_network(cell):
    assert training.workload_with_solver_of_cell(cell()) == workloads()["lenet"]
    assert not set(SOLVER) & set(cell().request(1).cell_digest_fields())
    assert cell().changed_solver_text == ""


def test_default_solver_values_do_not_change_the_cell():
    defaults = {"lars": 0, "learning_rate": 0.01, "lr_scaling": "none", "lr_warmup": 0}
    assert build_cells(**defaults) == build_cells()


def test_every_combination_of_solver_choices_is_a_cell():
    choices = {"lars": [0, 0.5], "lr_scaling": ["none", "linear"], "lr_warmup": [0, 2]}
    cells = build_cells(**choices, learning_rate=[0.01, 0.1])
    assert len(set(cells)) == 16
    assert {chosen_cell.changed_solver_text for chosen_cell in cells} >= {
        "",
        "LARS 0.5, rate 0.1, rate linear, warm-up 2 epochs",
    }


def test_lars_and_learning_rate_are_set_in_the_solver(cell):
    solver = training.workload_with_solver_of_cell(cell(lars=0.5, learning_rate=0.1)).solver
    assert (solver.lars, solver.base_lr, solver.warmup) == (0.5, 0.1, 0)
    assert solver.momentum == workloads()["lenet"].solver.momentum


def test_linear_scaling_raises_the_rate_with_the_global_batch(cell):
    single_rank = cell(rate_scaling="linear", **SIZES)
    eight_ranks = cell(
        rate_scaling="linear", ranks=8, strategy="ddp", scaling="weak", **_eight_rank_sizes()
    )
    assert training.workload_with_solver_of_cell(single_rank).solver.base_lr == pytest.approx(
        0.01 * 512 / 64
    )
    assert training.workload_with_solver_of_cell(eight_ranks).solver.base_lr == pytest.approx(
        0.01 * 512 / 64
    )


def _eight_rank_sizes():
    return {"global_batch_size": 512, "batch_size_per_rank": 64}


def test_warmup_epochs_become_updates(cell):
    epoch_cell = cell(rate_warmup=3, data="digits", steps=None, epochs=5, **SIZES)
    assert training.workload_with_solver_of_cell(epoch_cell).solver.warmup == 3 * (DIGITS // 512)
    assert workload_from_json(
        training.workload_with_solver_of_cell(epoch_cell).to_json()
    ) == training.workload_with_solver_of_cell(epoch_cell)


def test_warmup_without_an_epoch_length_is_refused(monkeypatch):
    monkeypatch.setattr(training, "known_images_per_epoch", lambda *_: None)
    with pytest.raises(UsageError, match="number of images"):
        build_cells(lr_warmup=2)


@pytest.mark.parametrize(
    "slip",
    [
        {"lars": -1},
        {"lars": float("nan")},
        {"learning_rate": 0},
        {"lr_scaling": "square"},
        {"lr_warmup": -1},
    ],
)
def test_invalid_solver_value_is_refused_by_name(slip):
    [name] = slip
    with pytest.raises(UsageError, match=name):
        build_cells(**slip)


@pytest.mark.parametrize("choice", [{"lars": 0.5}, {"learning_rate": 0.1}, {"rate_warmup": 1}])
def test_different_solver_has_its_own_certificate_and_table(make_certified, choice):
    (plain_record, plain_certificate), (other_record, other_certificate) = (
        make_certified(),
        make_certified(**choice),
    )
    assert plain_record.workload.digest != other_record.workload.digest
    assert certified_fields(plain_record.request) != certified_fields(other_record.request)
    forged = other_record.model_copy(update={"certificate": plain_certificate.id})
    assert "another workload digest" in certificate.coverage_error(plain_certificate, forged)
    tables = leaderboard.build_tables(
        [plain_record, other_record],
        {plain_certificate.id: plain_certificate, other_certificate.id: other_certificate},
    )
    assert sorted(table.solver for table in tables) == [
        "",
        other_record.request.changed_solver_text,
    ]
    assert all(len(table.rows) == 1 for table in tables), tables
    assert any(other_record.request.changed_solver_text in table.title for table in tables)


def test_oracle_case_is_shared_by_all_rates_and_warmup_lengths(cell):
    scaled_cell = cell(lars=0.5, rate_scaling="linear", rate_warmup=1, **SIZES)
    long_warmup_cell = cell(lars=0.5, learning_rate=0.1, rate_warmup=2)
    assert cases.workload_with_case_rate_and_warmup(
        scaled_cell.request(1)
    ) == cases.workload_with_case_rate_and_warmup(long_warmup_cell.request(1))
    assert cases.workload_with_case_rate_and_warmup(scaled_cell.request(1)).solver.warmup > 1
    assert cases.workload_with_case_rate_and_warmup(
        scaled_cell.request(1)
    ) != cases.workload_with_case_rate_and_warmup(cell(lars=0.5).request(1))


def test_repeat_command_includes_the_solver_choices(make_certified):
    command = " ".join(
        repeat.repeat_command_display_parts([make_certified(lars=0.5, rate_warmup=2)[0]])
    )
    assert "--lars 0.5" in command and "--lr-warmup 2" in command
    assert "--lars" not in " ".join(repeat.repeat_command_display_parts([make_certified()[0]]))
