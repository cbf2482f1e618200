"""Tests of diverged launches: they are reported, and their figures do not count."""

import pytest

from xfbench.planning import experiment
from xfbench.studies import running

NAN = "the loss of update 3 is not finite"
EPOCHS = {"epochs": 2, "steps": None, "data": ["digits"]}


@pytest.fixture
def make_diverged(make_training):
    """Return a function that makes a diverged launch."""

    def make(**request):
        record = make_training([1.0, None], accuracy=0.1, **request)
        measurement = record.measurement.model_copy(update={"losses": (2.3, 2.2, None)})
        return record.model_copy(
            update={"status": "invalid", "reason": NAN, "measurement": measurement}
        )

    return make


@pytest.fixture
def make_rate_study(make_study):
    """Return a function that makes a study of two learning rates with two seeds each."""

    def make(**analysis):
        rates = {"learning_rate": [0.01, 1.0], "seed": [0, 1]}
        return make_study(analysis, matrix={**rates, **EPOCHS})

    return make


@pytest.fixture
def runs(make_training, make_diverged):
    converged = [make_training([1.0, 0.5], seed=seed) for seed in (0, 1)]
    return [
        *converged,
        make_training([1.0, 0.5], learning_rate=1.0),
        make_diverged(learning_rate=1.0, seed=1),
    ]


def test_finding_states_which_cells_diverged_and_how_often(make_rate_study, runs, make_finding):
    finding = make_finding(make_rate_study(name="diverged"), runs)
    assert finding.sentence.startswith("1 of 2 configurations diverged: ")
    assert "rate 1.0 (1 of 2 launches)" in finding.sentence
    shares = {value.fields["learning_rate"]: value.interval.value for value in finding.values}
    assert shares == {None: 0.0, 1.0: 0.5}
    [note] = [value.note for value in finding.values if value.note]
    assert note == f"1 of 2 launches: {NAN}"


def test_finding_says_when_no_cell_diverged(make_rate_study, runs, make_finding):
    assert (
        make_finding(make_rate_study(name="diverged"), runs[:2]).sentence
        == "None of 1 configuration diverged."
    )


def test_value_excludes_diverged_launches_and_counts_them(make_rate_study, runs, make_finding):
    finding = make_finding(make_rate_study(name="values", of="test_accuracy"), runs)
    [mixed_value] = [value for value in finding.values if value.fields["learning_rate"] == 1.0]
    assert mixed_value.interval.value == pytest.approx(0.9) and mixed_value.interval.launches == 1
    assert mixed_value.note == f"1 of 2 launches diverged: {NAN}"


def test_fully_diverged_cell_is_listed_without_a_value(make_rate_study, runs, make_finding):
    finding = make_finding(make_rate_study(name="values", of="test_accuracy"), [*runs[:2], runs[3]])
    [diverged_value] = [value for value in finding.values if value.fields["learning_rate"] == 1.0]
    assert (
        diverged_value.interval is None
        and diverged_value.reason == f"1 of 1 launch diverged: {NAN}"
    )


@pytest.mark.parametrize(("analysis", "is_missing"), [("diverged", False), ("values", True)])
def test_diverged_cell_is_missing_unless_the_analysis_reports_it(
    make_rate_study, runs, make_answer, analysis, is_missing
):
    missing = make_answer(make_rate_study(name=analysis), [*runs[:2], runs[3]]).missing
    assert bool(missing) == is_missing


def test_other_invalid_launch_is_not_a_divergence(make_rate_study, runs, make_finding):
    invalid = runs[2].model_copy(update={"status": "invalid", "reason": "another kernel"})
    finding = make_finding(make_rate_study(name="diverged"), [*runs[:2], invalid])
    assert finding.sentence == "None of 1 configuration diverged."


def test_solver_choices_are_compared_and_named(make_study, make_training, make_finding):
    matrix = {"lars": [0, 0.5], "lr_scaling": ["none", "linear"], "lr_warmup": [0, 1]}
    study = make_study(
        {"name": "ratio", "of": "test_accuracy", "over": "lars", "against": 0},
        matrix={**matrix, **EPOCHS},
    )
    records = [
        make_training([1.0, 0.5], accuracy=accuracy, lars=lars, rate_scaling=scaling)
        for lars, accuracy in ((None, 0.4), (0.5, 0.8))
        for scaling in (None, "linear")
    ]
    finding = make_finding(study, records)
    assert sorted((value.name, value.at) for value in finding.values) == [
        ("lenet · reference", "LARS 0.5"),
        ("lenet · reference · rate linear", "LARS 0.5"),
    ]


def test_run_with_another_solver_is_outside_the_study(make_study, make_training, make_finding):
    study = make_study({"name": "values", "of": "test_accuracy"}, matrix={**EPOCHS, "lars": [0.5]})
    records = [make_training([1.0, 0.5], lars=lars) for lars in (None, 0.5, 0.1)]
    [value] = make_finding(study, records).values
    assert value.fields["lars"] == 0.5


def test_divergence_is_expected_only_in_studies_that_ask_for_it(runs, record):
    accuracy_study, batch_study = experiment.load("accuracy"), experiment.load("batch-size")
    diverged = next(run for run in runs if run.status == "invalid")
    assert running.is_ok_or_expected_failure(
        accuracy_study, diverged
    ) and not running.is_ok_or_expected_failure(batch_study, diverged)
    invalid = record(fields={"status": "invalid", "reason": "x"})
    assert not running.is_ok_or_expected_failure(accuracy_study, invalid)
