"""Launches whose loss became no number are a finding, and none of their figures counts."""

import pytest

from xfbench import experiment
from xfbench.studies import running

NAN = "the loss of update 3 is not finite"
EPOCHS = {"epochs": 2, "steps": None, "data": ["digits"]}


@pytest.fixture
def make_diverged(make_training):
    """A function that makes a launch that diverged."""

    def make(**request):
        made = make_training([1.0, None], accuracy=0.1, **request)
        lost = made.measurement.model_copy(update={"losses": (2.3, 2.2, None)})
        return made.model_copy(update={"status": "invalid", "reason": NAN, "measurement": lost})

    return make


@pytest.fixture
def make_rate_study(make_study):
    """A function that makes a study of one analysis over runs at two rates, of two seeds."""

    def make(**analysis):
        rates = {"learning_rate": [0.01, 1.0], "seed": [0, 1]}
        return make_study(analysis, matrix={**rates, **EPOCHS})

    return make


@pytest.fixture
def runs(make_training, make_diverged):
    good = [make_training([1.0, 0.5], seed=seed) for seed in (0, 1)]
    return [
        *good,
        make_training([1.0, 0.5], learning_rate=1.0),
        make_diverged(learning_rate=1.0, seed=1),
    ]


def test_finding_states_which_cells_diverged_and_how_often(make_rate_study, runs, make_finding):
    finding = make_finding(make_rate_study(name="diverged"), runs)
    assert finding.sentence.startswith("1 of 2 configurations diverged: ")
    assert "rate 1.0 (1 of 2 launches)" in finding.sentence
    shares = {one.fields["learning_rate"]: one.interval.value for one in finding.values}
    assert shares == {None: 0.0, 1.0: 0.5}
    [note] = [one.note for one in finding.values if one.note]
    assert note == f"1 of 2 launches: {NAN}"


def test_finding_says_when_no_cell_diverged(make_rate_study, runs, make_finding):
    assert (
        make_finding(make_rate_study(name="diverged"), runs[:2]).sentence
        == "None of 1 configuration diverged."
    )


def test_value_excludes_diverged_launches_and_counts_them(make_rate_study, runs, make_finding):
    finding = make_finding(make_rate_study(name="values", of="test_accuracy"), runs)
    [half] = [one for one in finding.values if one.fields["learning_rate"] == 1.0]
    assert half.interval.value == pytest.approx(0.9) and half.interval.launches == 1
    assert half.note == f"1 of 2 launches diverged: {NAN}"


def test_fully_diverged_cell_is_listed_without_a_value(make_rate_study, runs, make_finding):
    finding = make_finding(make_rate_study(name="values", of="test_accuracy"), [*runs[:2], runs[3]])
    [lost] = [one for one in finding.values if one.fields["learning_rate"] == 1.0]
    assert lost.interval is None and lost.reason == f"1 of 1 launch diverged: {NAN}"


@pytest.mark.parametrize(("analysis", "told"), [("diverged", False), ("values", True)])
def test_diverged_cell_is_missing_unless_the_analysis_reports_it(
    make_rate_study, runs, make_answer, analysis, told
):
    missing = make_answer(make_rate_study(name=analysis), [*runs[:2], runs[3]]).missing
    assert bool(missing) == told


def test_other_invalid_launch_is_not_a_divergence(make_rate_study, runs, make_finding):
    other = runs[2].model_copy(update={"status": "invalid", "reason": "another kernel"})
    finding = make_finding(make_rate_study(name="diverged"), [*runs[:2], other])
    assert finding.sentence == "None of 1 configuration diverged."


def test_solver_choices_are_compared_and_named(make_study, make_training, make_finding):
    matrix = {"lars": [0, 0.5], "rate_scaling": ["none", "linear"], "rate_warmup": [0, 1]}
    made = make_study(
        {"name": "ratio", "of": "test_accuracy", "over": "lars", "against": 0},
        matrix={**matrix, **EPOCHS},
    )
    records = [
        make_training([1.0, 0.5], accuracy=accuracy, lars=lars, rate_scaling=scaling)
        for lars, accuracy in ((None, 0.4), (0.5, 0.8))
        for scaling in (None, "linear")
    ]
    finding = make_finding(made, records)
    assert sorted((one.name, one.at) for one in finding.values) == [
        ("lenet · reference", "LARS 0.5"),
        ("lenet · reference · rate linear", "LARS 0.5"),
    ]


def test_run_with_another_solver_is_outside_the_study(make_study, make_training, make_finding):
    made = make_study({"name": "values", "of": "test_accuracy"}, matrix={**EPOCHS, "lars": [0.5]})
    records = [make_training([1.0, 0.5], lars=lars) for lars in (None, 0.5, 0.1)]
    [value] = make_finding(made, records).values
    assert value.fields["lars"] == 0.5


def test_divergence_is_expected_only_in_studies_that_ask_for_it(runs, record):
    asks, does_not = experiment.load("accuracy"), experiment.load("batch-size")
    lost = next(one for one in runs if one.status == "invalid")
    assert running.is_expected(asks, lost) and not running.is_expected(does_not, lost)
    other = record(fields={"status": "invalid", "reason": "x"})
    assert not running.is_expected(asks, other)
