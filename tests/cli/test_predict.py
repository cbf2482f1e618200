"""`xfbench predict` on the command line: one series, or which there are."""

import json

import pytest

from xfbench.results.store import Store


@pytest.fixture
def small_runs(record, tmp_path):
    """Launches of one rank: two frameworks under weak scaling."""
    store = Store(tmp_path / "results")
    for framework in ("torch", "mxnet"):
        for launch in (1, 2, 3):
            steps = tuple(0.1 + 0.001 * ((7 * n + launch) % 5) for n in range(30))
            store.add(record(steps=steps, launch=launch, framework=framework, scaling="weak"))


LINK = ("--link", "10Gbit,10us")


def test_one_of_several_series_must_be_chosen(here, small_runs):
    refused = here("predict", *LINK)
    assert refused.returncode == 2
    assert "--where" in refused.stderr
    assert "torch" in refused.stderr and "mxnet" in refused.stderr
    chosen = here("predict", *LINK, "--where", "framework=torch", "--to-ranks", "4,16", "--json")
    assert chosen.returncode == 0, chosen.stderr
    document = json.loads(chosen.stdout)
    assert [point["ranks"] for point in document["points"]] == [1, 4, 16]
    assert [point["beyond_data"] for point in document["points"]] == [1.0, 4.0, 16.0]
    assert set(document["points"][1]["images_per_second"]) == {"value", "low", "high"}
    assert document["fit"]["link"] == "described"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--link", "fast"], "such as 100Gbit,1us"),
        (["--to-ranks", "0", *LINK], "--to-ranks"),
        (["--where", "framwork=torch", *LINK], "did you mean framework"),
        (["--where", "framework=caffe", *LINK], "--ranks 1,2,4"),
        (["--where", "framework=torch"], "--link"),
        (["--from", "nowhere"], "holds no results"),
    ],
)
def test_a_refused_prediction_says_what_to_do(here, small_runs, words, said):
    refused = here("predict", *words)
    assert refused.returncode == 2
    assert said in refused.stderr


def test_the_table_says_how_far_it_extrapolates(here, small_runs):
    shown = here("predict", "--where", "framework=torch", *LINK)
    assert shown.returncode == 0, shown.stderr
    assert "16 times" in shown.stdout
    assert "described link of 10 Gbit/s and 10 µs" in shown.stdout
