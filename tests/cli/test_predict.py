"""Tests of `xfbench predict` on the command line."""

import json

import pytest

from xfbench.store.results_folder import Store


@pytest.fixture
def small_runs(record, tmp_path):
    """Launches of two frameworks on one rank, with weak scaling."""
    store = Store(tmp_path / "results")
    for framework in ("torch", "mxnet"):
        for launch in (1, 2, 3):
            steps = tuple(0.1 + 0.001 * ((7 * n + launch) % 5) for n in range(30))
            store.add(record(steps=steps, launch=launch, framework=framework, scaling="weak"))


LINK = ("--link", "10Gbit,10us")


def test_one_of_several_series_must_be_chosen(run_inline, small_runs):
    outcome = run_inline("predict", *LINK)
    assert outcome.returncode == 2
    assert "--where" in outcome.stderr
    assert "torch" in outcome.stderr and "mxnet" in outcome.stderr
    prediction = run_inline(
        "predict", *LINK, "--where", "framework=torch", "--to-ranks", "4,16", "--json"
    )
    assert prediction.returncode == 0, prediction.stderr
    document = json.loads(prediction.stdout)
    assert [point["ranks"] for point in document["points"]] == [1, 4, 16]
    assert [point["beyond_data"] for point in document["points"]] == [1.0, 4.0, 16.0]
    assert set(document["points"][1]["images_per_second"]) == {"value", "low", "high"}
    assert document["fit"]["link"] == "described"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--link", "fast"], "for example 100Gbit,1us"),
        (["--to-ranks", "0", *LINK], "--to-ranks"),
        (["--where", "framwork=torch", *LINK], "did you mean framework"),
        (["--where", "framework=caffe", *LINK], "--ranks 1,2,4"),
        (["--where", "framework=torch"], "--link"),
        (["--results", "nowhere"], "has no results"),
    ],
)
def test_prediction_error_says_what_to_do(run_inline, small_runs, words, message):
    outcome = run_inline("predict", *words)
    assert outcome.returncode == 2
    assert message in outcome.stderr


def test_the_table_says_how_far_it_extrapolates(run_inline, small_runs):
    outcome = run_inline("predict", "--where", "framework=torch", *LINK)
    assert outcome.returncode == 0, outcome.stderr
    assert "16 times" in outcome.stdout
    assert "described link of 10 Gbit/s and 10 µs" in outcome.stdout
