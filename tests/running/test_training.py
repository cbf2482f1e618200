"""What a cell has otherwise about its network's solver: another workload, and nothing beside it."""

import pytest

from tests.equality.test_certificate import SOFTWARE, build_record_certificate
from xfbench import experiment
from xfbench.analysis import leaderboard
from xfbench.base.errors import UsageError
from xfbench.equality import cases, certificate
from xfbench.equality.certificate import certified_fields
from xfbench.host.machine import describe
from xfbench.records.facts import workload_facts
from xfbench.report import repeat
from xfbench.request import SOLVER
from xfbench.running import training
from xfbench.workloads import workload_from_json, workloads

DIGITS = 1437  # images that are trained on
SIZES = {"global_batch_size": 512, "batch_size_per_rank": 512}


def made(**settings):
    matrix = experiment.matrix(framework=["torch"], workload=["lenet"], **settings)
    return [cell for cell, _ in experiment.cells([matrix])]


@pytest.fixture
def kept(record):
    """A function that makes a record of a cell with these choices, certified, and its proof."""

    def make(**choices):
        fields = {"software": SOFTWARE, "machine": describe()}
        request = record(**choices).request
        fields["workload"] = workload_facts(training.build_workload(request))
        proof = build_record_certificate(record(fields=fields, **choices))
        return record(fields={**fields, "certificate": proof.id}, **choices), proof

    return make


def test_default_cell_trains_the_published_network(cell):
    assert training.build_workload(cell()) == workloads()["lenet"]
    assert not set(SOLVER) & set(cell().request(1).cell_fields())
    assert cell().solver == ""


def test_default_solver_values_do_not_change_the_cell():
    anyway = {"lars": 0, "learning_rate": 0.01, "rate_scaling": "none", "rate_warmup": 0}
    assert made(**anyway) == made()


def test_every_combination_of_solver_choices_is_a_cell():
    choices = {"lars": [0, 0.5], "rate_scaling": ["none", "linear"], "rate_warmup": [0, 2]}
    found = made(**choices, learning_rate=[0.01, 0.1])
    assert len(set(found)) == 16
    assert {one.solver for one in found} >= {
        "",
        "LARS 0.5, rate 0.1, rate linear, warm-up 2 epochs",
    }


def test_lars_and_learning_rate_are_set_in_the_solver(cell):
    solver = training.build_workload(cell(lars=0.5, learning_rate=0.1)).solver
    assert (solver.lars, solver.base_lr, solver.warmup) == (0.5, 0.1, 0)
    assert solver.momentum == workloads()["lenet"].solver.momentum


def test_linear_scaling_raises_the_rate_with_the_global_batch(cell):
    alone = cell(rate_scaling="linear", **SIZES)
    several = cell(rate_scaling="linear", ranks=8, strategy="ddp", scaling="weak", **_of_rank())
    assert training.build_workload(alone).solver.base_lr == pytest.approx(0.01 * 512 / 64)
    assert training.build_workload(several).solver.base_lr == pytest.approx(0.01 * 512 / 64)


def _of_rank():
    return {"global_batch_size": 512, "batch_size_per_rank": 64}


def test_warmup_epochs_become_updates(cell):
    asked = cell(rate_warmup=3, data="digits", steps=None, epochs=5, **SIZES)
    assert training.build_workload(asked).solver.warmup == 3 * (DIGITS // 512)
    assert workload_from_json(training.build_workload(asked).to_json()) == training.build_workload(
        asked
    )


def test_warmup_without_an_epoch_length_is_refused(monkeypatch):
    monkeypatch.setattr(training, "images_per_epoch", lambda *_: None)
    with pytest.raises(UsageError, match="how many images"):
        made(rate_warmup=2)


@pytest.mark.parametrize(
    "slip",
    [
        {"lars": -1},
        {"lars": float("nan")},
        {"learning_rate": 0},
        {"rate_scaling": "square"},
        {"rate_warmup": -1},
    ],
)
def test_invalid_solver_value_is_refused_by_name(slip):
    [name] = slip
    with pytest.raises(UsageError, match=name):
        made(**slip)


@pytest.mark.parametrize("choice", [{"lars": 0.5}, {"learning_rate": 0.1}, {"rate_warmup": 1}])
def test_different_solver_has_its_own_certificate_and_table(kept, choice):
    (plain, proof), (other, own) = kept(), kept(**choice)
    assert plain.workload.digest != other.workload.digest
    assert certified_fields(plain.request) != certified_fields(other.request)
    forged = other.model_copy(update={"certificate": proof.id})
    assert "another workload digest" in certificate.coverage_error(proof, forged)
    tables = leaderboard.tables([plain, other], {proof.id: proof, own.id: own})
    assert sorted(table.solver for table in tables) == ["", other.request.solver]
    assert all(len(table.rows) == 1 for table in tables), tables
    assert any(other.request.solver in table.title for table in tables)


def test_oracle_case_is_shared_by_all_rates_and_warmup_lengths(cell):
    few = cell(lars=0.5, rate_scaling="linear", rate_warmup=1, **SIZES)
    many = cell(lars=0.5, learning_rate=0.1, rate_warmup=2)
    assert cases.verification_workload(few.request(1)) == cases.verification_workload(
        many.request(1)
    )
    assert cases.verification_workload(few.request(1)).solver.warmup > 1
    assert cases.verification_workload(few.request(1)) != cases.verification_workload(
        cell(lars=0.5).request(1)
    )


def test_repeat_command_includes_the_solver_choices(kept):
    told = " ".join(repeat.build_repeat_command([kept(lars=0.5, rate_warmup=2)[0]]))
    assert "--lars 0.5" in told and "--rate-warmup 2" in told
    assert "--lars" not in " ".join(repeat.build_repeat_command([kept()[0]]))
