"""What others published, as a person asks for it."""

import json

import pytest

from xfbench.model.external_record import About, Citation, Figure
from xfbench.model.record import Record
from xfbench.store import published
from xfbench.store.results_folder import Store


@pytest.fixture
def results(tmp_path, record):
    """A results folder in the command's own: launches of two networks, a figure from elsewhere."""
    store = Store(tmp_path / "results")
    store.prepare()
    for workload in ("lenet", "convnet"):
        store.add(record(workload=workload))
    figure = Figure(
        quantity="throughput", unit="images/s", value=12.5, about=About(workload="lenet")
    )
    cited = Citation(key="other tool", title="its file", where="line 3")
    fields = {"source": "imported", "status": "ok", "request": None, "workload": None}
    store.add(Record.make(citation=cited, figure=figure, **fields))
    return store


def test_the_leaderboard_shows_published_figures_on_request(run_inline, results):
    plain = run_inline("leaderboard")
    assert plain.returncode == 0 and "H19" not in plain.stdout and "12.5" not in plain.stdout
    shown = run_inline("leaderboard", "--published")
    assert shown.returncode == 0, shown.stderr
    assert "lenet elsewhere: not measured here, not ranked" in shown.stdout
    for word in ("1 211 %", "Jingoo Han", "12.5 images/s", "other tool (imported)", "line 3"):
        assert word in shown.stdout
    document = json.loads(run_inline("leaderboard", "--published", "--json").stdout)
    assert {figure["workload"] for figure in document["elsewhere"]} == {"lenet"}
    assert len(document["tables"]) == 2
    convnet_output = run_inline("leaderboard", "--published", "--workload", "convnet").stdout
    assert "convnet · synthetic" in convnet_output and "elsewhere" not in convnet_output


def test_published_figures_need_no_results_folder(run_inline):
    shown = run_inline("results", "list", "--published")
    assert shown.returncode == 0, shown.stderr
    for record in published.records():
        assert record.id[7:19] in shown.stdout
    assert "Niall Gaffney" in shown.stdout
    arguments = [
        "results",
        "list",
        "--published",
        "--where",
        "figure.about.study=storage",
        "--json",
    ]
    listed = json.loads(run_inline(*arguments).stdout)["records"]
    assert (
        listed == [record.document() for record in published.figures_of_study("storage")] and listed
    )
