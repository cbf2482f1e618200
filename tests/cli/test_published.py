"""Tests of published figures on the command line."""

import json

import pytest

from xfbench.model.external_record import About, Citation, Figure
from xfbench.model.record import Record
from xfbench.store import published
from xfbench.store.results_folder import Store


@pytest.fixture
def results(tmp_path, record):
    """A results folder with launches of two networks and an imported figure."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for workload in ("lenet", "convnet"):
        store.add(record(workload=workload))
    figure = Figure(
        quantity="throughput", unit="images/s", value=12.5, about=About(workload="lenet")
    )
    citation = Citation(key="other tool", title="its file", where="line 3")
    fields = {"source": "imported", "status": "ok", "request": None, "workload": None}
    store.add(Record.make(citation=citation, figure=figure, **fields))
    return store


def test_the_leaderboard_shows_published_figures_on_request(run_inline, results, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")  # no name of a source is wrapped
    without_published = run_inline("leaderboard")
    assert (
        without_published.returncode == 0
        and "H19" not in without_published.stdout
        and "12.5" not in without_published.stdout
    )
    with_published = run_inline("leaderboard", "--published")
    assert with_published.returncode == 0, with_published.stderr
    assert "lenet, external figures: not measured here, not ranked" in with_published.stdout
    for word in ("1 211 %", "Jingoo Han", "12.5 images/s", "other tool (imported)", "line 3"):
        assert word in with_published.stdout
    document = json.loads(run_inline("leaderboard", "--published", "--json").stdout)
    assert {figure["workload"] for figure in document["elsewhere"]} == {"lenet"}
    assert len(document["tables"]) == 2
    convnet_output = run_inline("leaderboard", "--published", "--workload", "convnet").stdout
    assert "convnet · synthetic" in convnet_output and "elsewhere" not in convnet_output


@pytest.mark.parametrize("option", [("-w", "lenet"), ("--where", "workload=lenet")])
def test_published_figures_are_filtered_by_what_they_describe(run_inline, option):
    outcome = run_inline("results", "list", "--published", *option, "--json")
    records = json.loads(outcome.stdout)["records"]
    expected = [r for r in published.records() if r.figure.about.workload == "lenet"]
    assert len(records) == len(expected) > 1


def test_a_filter_that_no_published_figure_meets_is_said(run_inline):
    outcome = run_inline(*"results list --published --where source=Z17".split())
    assert outcome.returncode == 1
    assert "source is one of published" in outcome.stderr
    assert "citation.key=Z17" in outcome.stderr


def test_published_figures_need_no_results_folder(run_inline):
    outcome = run_inline("results", "list", "--published")
    assert outcome.returncode == 0, outcome.stderr
    for record in published.records():
        assert record.id[7:19] in outcome.stdout
    assert "Niall Gaffney" in outcome.stdout
    arguments = [
        "results",
        "list",
        "--published",
        "--where",
        "figure.about.study=storage",
        "--json",
    ]
    records = json.loads(run_inline(*arguments).stdout)["records"]
    assert (
        records == [record.document() for record in published.records_of_study("storage")]
        and records
    )


def test_sources_are_printed_as_bibtex(run_inline):
    outcome = run_inline("results", "list", "--published", "--bibtex")
    entries = outcome.stdout.split("\n\n")
    assert len(entries) == len(published.sources()) and outcome.returncode == 0
    assert all(entry.count("{") == entry.count("}") for entry in entries)
    assert any(
        entry.startswith("@techreport{Z17,") and "Zhao Zhang and Weijia Xu" in entry
        for entry in entries
    )


def test_bibtex_has_only_the_sources_of_the_selected_figures(run_inline):
    outcome = run_inline(*"results list --published --bibtex --where citation.key=H19".split())
    assert outcome.stdout.count("@") == 1 and "{H19," in outcome.stdout
