"""Tests of published figures on the command line."""

import json
import re
from pathlib import Path

import pytest
import yaml

import xfbench
from xfbench.model.external_record import About, Citation, Figure
from xfbench.model.record import Record
from xfbench.store import published
from xfbench.store.results_folder import Store

ROOT = Path(__file__).parents[2]


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


@pytest.fixture
def imports(tmp_path):
    """A folder with imported figures only: of a network that xfbench does not know, and of torch.

    They are read with `results import`, so there is no launch.
    """
    lines = [
        {"time_ms": 1_600_000_000_000 + ms, "key": key, "value": value, "metadata": {}}
        for ms, key, value in (
            (0, "submission_benchmark", "segmenter"),
            (1000, "run_start", None),
            (5000, "eval_accuracy", 0.8125),
            (43250, "run_stop", None),
        )
    ]
    text = "\n".join(f":::MLLOG {json.dumps(line)}" for line in lines)
    (tmp_path / "log.txt").write_text(text)
    benchmark = {
        "name": "test_step",
        "params": {"workload": "convnet", "framework": "torch"},
        "stats": {"median": 0.0625, "min": 0.03125, "max": 0.5},
    }
    document = {"machine_info": {}, "datetime": "2026-01-01", "benchmarks": [benchmark]}
    (tmp_path / "benchmarks.json").write_text(json.dumps(document))


@pytest.mark.case("Published figures without any measurement")
@pytest.mark.parametrize("format_name", ["text", "markdown", "latex", "csv", "json", "html"])
def test_imported_figures_are_listed_without_any_launch(run_inline, imports, format_name):
    assert run_inline("results", "import", "log.txt").returncode == 0
    shown = run_inline("leaderboard", "--published", "--format", format_name)
    assert shown.returncode == 0 and not shown.stderr
    assert "42.25" in shown.stdout and "0.8125" in shown.stdout
    if format_name == "text":
        assert "other workloads, external figures: not measured here" in shown.stdout
        assert "MLPerf Training log, segmenter" in shown.stdout
    page = run_inline("report", "--output", "page.html")
    assert "0 launches, 2 external figures" in page.stdout
    assert "42.25" in run_inline("results", "list").stdout


@pytest.mark.parametrize(
    ("options", "has_time", "has_median"),
    [
        ("", True, True),
        ("--framework torch", False, True),
        ("--workload convnet", False, True),
        ("--where figure.quantity~train", True, False),
    ],
)
def test_imported_figures_are_filtered_by_what_they_describe(
    run_inline, imports, options, has_time, has_median
):
    for name in ("log.txt", "benchmarks.json"):
        assert run_inline("results", "import", name).returncode == 0
    shown = run_inline("leaderboard", "--published", *options.split())
    assert shown.returncode == 0
    assert ("42.25" in shown.stdout, "0.0625" in shown.stdout) == (has_time, has_median)


def test_a_table_without_rows_is_explained(run_inline, imports):
    assert run_inline("results", "import", "log.txt").returncode == 0
    shown = run_inline("leaderboard")
    assert shown.returncode == 0
    assert "results has no launch to rank (to show imported figures" in shown.stderr
    filtered = run_inline("leaderboard", "--published", "--framework", "caffe")
    assert filtered.returncode == 1
    assert "0 of 2 records match request.framework in caffe" in filtered.stderr


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
    assert len(entries) == len(published.sources()) + 1 and outcome.returncode == 0
    assert all(entry.count("{") == entry.count("}") for entry in entries)
    assert any(
        entry.startswith("@techreport{Z17,") and "Zhao Zhang and Weijia Xu" in entry
        for entry in entries
    )


def test_bibtex_has_what_the_sources_state_of_themselves(run_inline):
    shown = run_inline("results", "list", "--published", "--bibtex").stdout
    entries = {re.match(r"@\w+\{(\w+),", entry)[1]: entry for entry in shown.split("\n\n")}
    assert "  pages = {941--950},\n" in entries["Y19"] and "8778212}," in entries["Y19"]
    assert "8890993}," in entries["H19"] and "pages" not in entries["H19"]
    assert "  isbn = {9781538631614},\n" in entries["A17"]
    assert "  type = {Presentation},\n" in entries["Z17"]
    assert not re.search("doi", shown, re.IGNORECASE)  # no source states one


def test_bibtex_without_published_values_cites_xfbench_as_the_repository_does(run_inline):
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    shown = run_inline("results", "list", "--bibtex").stdout
    assert shown.splitlines() == [
        "@misc{xfbench,",
        f"  author = {{{{{' and '.join(author['name'] for author in cff['authors'])}}}}},",
        f"  title = {{{{{cff['title']}}}}},",
        f"  note = {{Software, version {cff['version']}}},",
        "}",
    ]
    assert cff["version"] == xfbench.__version__
    assert shown in run_inline("results", "list", "--published", "--bibtex").stdout
    refused = run_inline("results", "list", "--bibtex", "--framework", "torch")
    assert refused.returncode == 2 and "--bibtex with a filter needs --published" in refused.stderr


def test_bibtex_has_only_the_sources_of_the_selected_figures(run_inline):
    outcome = run_inline(*"results list --published --bibtex --where citation.key=H19".split())
    assert outcome.stdout.count("@") == 1 and "{H19," in outcome.stdout
