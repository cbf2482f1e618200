"""Tests of `xfbench predict` on the command line."""

import json

import pytest

from xfbench.rendering import tables
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
        (["--where", "threads>=1", "--where", "framework=torch", "--to-ranks", "x"], "--to-ranks"),
        (["--where", "framework=torch"], "--link"),
        (["--results", "nowhere"], "has no results"),
    ],
)
def test_prediction_error_says_what_to_do(run_inline, small_runs, words, message):
    outcome = run_inline("predict", *words)
    assert outcome.returncode == 2
    assert message in outcome.stderr


def test_the_base_of_efficiencies_is_named_once(run_inline, small_runs):
    outcome = run_inline("predict", "--where", "framework=torch", *LINK)
    base = "as a share of 1 rank at 39.2 images/s, which were measured."
    assert outcome.stdout.count(base) == 1
    document = json.loads(run_inline("predict", "-f", "torch", *LINK, "--json").stdout)
    assert document["fit"]["baseline"]["ranks"] == 1
    assert document["fit"]["baseline"]["images_per_second"] == pytest.approx(39.2, abs=0.1)


def test_series_with_equal_titles_say_how_they_differ(run_inline, record, tmp_path):
    store = Store(tmp_path / "results")
    for data, affinity in (("synthetic", "none"), ("digits", "none"), ("digits", "cores")):
        settings = {"data": data, "affinity": affinity, "scaling": "weak"}
        store.add(record(**settings))
    outcome = run_inline("predict", *LINK)
    assert outcome.returncode == 2
    ends = [line.split(" · ")[-2:] for line in outcome.stderr.splitlines()[1:]]
    assert ends == [
        ["data synthetic", "affinity none"],
        ["data digits", "affinity none"],
        ["data digits", "affinity cores"],
    ]


def test_the_table_says_how_far_it_extrapolates(run_inline, small_runs):
    outcome = run_inline("predict", "--where", "framework=torch", *LINK)
    assert outcome.returncode == 0, outcome.stderr
    assert "16 times" in outcome.stdout
    assert "described link of 10 Gbit/s and 10 µs" in outcome.stdout


def test_the_table_shows_the_parts_of_each_step(run_inline, small_runs):
    words = ["predict", "--where", "framework=torch", "--to-ranks", "4,512", *LINK]
    outcome = run_inline(*words)
    assert outcome.returncode == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    start = lines.index("parts of a predicted step") + 1
    assert lines[start].split() == ["ranks", "step", "computing", "exchange", "waiting"]
    rows = [line.split() for line in lines[start + 2 : start + 5]]
    assert [row[0] for row in rows] == ["1", "4", "512"]
    percentages = [[int(text.removesuffix("%")) for text in row[3:]] for row in rows]
    assert percentages[0] == [100, 0, 0]
    assert [sum(row) for row in percentages] == [100, 100, 100]
    assert "exchange on 4, 512 ranks: computed from the described link, not measured" in lines
    assert max(map(len, lines[start:])) <= 100
    assert any(line.startswith("waiting on 512 ranks: at least this") for line in lines)
    document = json.loads(run_inline(*words, "--json").stdout)
    for point in document["points"]:
        parts = [point["step"][name] for name in ("computing", "exchange", "waiting")]
        assert sum(part["share"] for part in parts) == pytest.approx(1)
        assert sum(part["seconds"] for part in parts) == pytest.approx(point["step"]["seconds"])


@pytest.mark.parametrize(
    ("shares", "texts"),
    [
        ([1 / 3, 1 / 3, 1 / 3], ["34%", "33%", "33%"]),
        ([0.995, 0.003, 0.002], ["100%", "0%", "0%"]),
        ([0.7, 0.3, None], ["70%", "30%", "–"]),
    ],
)
def test_percentages_add_up(shares, texts):
    assert tables.format_percentages(shares) == texts
