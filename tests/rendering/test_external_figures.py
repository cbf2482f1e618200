"""Tests of external figures below leaderboards: in every format, without a rank."""

import csv
import io
import json

import pytest

from xfbench.analysis.leaderboard import build_tables as leaderboards
from xfbench.model.external_record import About, Citation, Figure
from xfbench.model.record import Record
from xfbench.rendering import external_figures, tables
from xfbench.store import published

HOSTILE_TEXT = "=cmd|' /C calc'!A0 --><script>alert(1)</script>\x1b[31m\u202e\n<b>"


def import_figure(quantity="throughput", workload="lenet", key="theirs", **about):
    """Return a record as an import makes it: a figure and its source file."""
    figure = Figure(
        quantity=quantity,
        unit="images/s",
        value=1234.5,
        values=(1234.0, 1235.0),
        about=About(workload=workload, **about),
    )
    citation = Citation(key=key, title="results of another tool", where="line 3")
    return Record.make(
        source="imported",
        citation=citation,
        figure=figure,
        status="ok",
        request=None,
        workload=None,
    )


@pytest.fixture
def two_tables(record):
    """Leaderboards of two networks."""
    return leaderboards([record(), record(workload="convnet")], {})


@pytest.mark.parametrize("format_name", tables.FORMATS)
def test_every_format_shows_only_figures_of_its_workloads(format_name, two_tables):
    records = [*published.records(), import_figure(framework="torch")]
    rendered = external_figures.render_leaderboards_with_figures(
        format_name, two_tables, "throughput", records
    )
    for word in ("GPU utilisation", "2.3", "H19", "Jingoo Han", "theirs", "results of another"):
        assert word in rendered
    # Figures of networks without a table, and of no particular network.
    for word in ("ResNet-50", "3.26", "MKL2017", "Stampede2"):
        assert word not in rendered
    assert tables.FORMATS[format_name](two_tables, "throughput")
    assert "GPU utilisation" not in tables.FORMATS[format_name](two_tables, "throughput")


def test_figures_follow_the_tables_of_their_workload(two_tables):
    rendered = external_figures.render_leaderboards_with_figures(
        "text", two_tables, "throughput", published.records()
    )
    lenet = rendered.index("lenet · synthetic")
    assert rendered.index("convnet · synthetic") < lenet < rendered.index("GPU utilisation")
    block = rendered[rendered.index("lenet, external figures: not measured here, not ranked") :]
    assert "rank " not in block.splitlines()[1] and "images/s" not in block.splitlines()[1]


def test_json_lists_published_figures_separately(two_tables):
    records = [*published.records(), import_figure()]
    document = json.loads(
        external_figures.render_leaderboards_with_figures("json", two_tables, "throughput", records)
    )
    assert document["tables"] == json.loads(tables.to_json(two_tables))["tables"]
    published_figures = document["elsewhere"]
    assert [figure["source"] for figure in published_figures] == ["published"] * (
        len(published_figures) - 1
    ) + ["imported"]
    assert all(
        set(figure) == {"record", "source", "workload", "citation", "figure"}
        for figure in published_figures
    )
    assert published_figures[-1]["figure"]["value"] == 1234.5
    assert published_figures[-1]["citation"]["where"] == "line 3"


def test_csv_has_an_unranked_line_per_figure(two_tables):
    lines = list(
        csv.DictReader(
            io.StringIO(
                external_figures.render_leaderboards_with_figures(
                    "csv", two_tables, "throughput", [import_figure()]
                )
            )
        )
    )
    measured_lines, imported_line = lines[:-1], lines[-1]
    assert len(measured_lines) == 2 and not any(line["figure_value"] for line in measured_lines)
    assert (
        imported_line["ranked"] == "False"
        and imported_line["rank_low"] == imported_line["rank_high"] == ""
    )
    assert (
        imported_line["images_per_second_value"] == "" and imported_line["figure_value"] == "1234.5"
    )
    assert imported_line["reason"] == "imported: theirs, not measured by xfbench"
    assert (imported_line["workload"], imported_line["citation_key"]) == ("lenet", "theirs")


def test_unmeasured_workload_is_shown_only_on_request():
    record = import_figure(workload="vgg16")
    assert "1 234.5 images/s" in external_figures.render_leaderboards_with_figures(
        "text", [], "throughput", [record], ["vgg16"]
    )
    assert (
        external_figures.render_leaderboards_with_figures("csv", [], "throughput", [record]) == ""
    )


def test_figure_in_folder_and_package_is_shown_once(two_tables):
    first_record = published.records()[0]
    fields = {name: getattr(first_record, name) for name in Record.model_fields}
    del fields["id"], fields["schema_"]
    later_record = Record.make(**{**fields, "created": "2026-01-01T00:00:00.000Z"})
    assert later_record.id != first_record.id
    assert external_figures.distinct_external_figures([*published.records(), later_record]) == list(
        published.records()
    )


@pytest.mark.parametrize("format_name", tables.FORMATS)
def test_hostile_text_in_an_imported_figure_is_escaped(format_name, two_tables):
    hostile_records = [
        import_figure(HOSTILE_TEXT, key=HOSTILE_TEXT, machine=HOSTILE_TEXT),
        import_figure(workload=HOSTILE_TEXT),
    ]
    rendered = external_figures.render_leaderboards_with_figures(
        format_name, two_tables, "throughput", hostile_records, [HOSTILE_TEXT]
    )
    assert "calc" in rendered and not {"\x1b", "\u202e"} & set(rendered)
    if format_name == "html":
        assert "<script>" not in rendered and "<b>" not in rendered
    if format_name == "csv":
        fields = [field for line in csv.reader(io.StringIO(rendered)) for field in line]
        assert not any(field.startswith(("=", "+", "@")) for field in fields)


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ({"value": 64.0, "unit": "threads"}, "64 threads"),
        ({"low": 5.0, "high": 22.3, "unit": "times"}, "5.0–22.3 times"),
        ({"value": 4.2, "low": 2.0, "high": 5.2, "unit": "GB/s"}, "4.2 (2.0–5.2) GB/s"),
        ({"high": 1.0, "unit": "%"}, "1 %"),
        ({"low": 3.0, "unit": "s"}, "from 3 s"),
        ({"value": 3.0, "high": 4.5, "unit": "s"}, "3.0 to 4.5 s"),
        ({"value": 20355.0, "unit": "GB"}, "20 355 GB"),
        ({"value": -0.25, "unit": "%"}, "-0.25 %"),
        ({"value": 1e300, "unit": "images/s"}, "1e+300 images/s"),
        ({"value": 2.5e-5, "low": 1e-6, "high": 1.0, "unit": "s"}, "2.5e-05 (1e-06–1) s"),
        ({"unit": "s"}, "s"),
    ],
)
def test_figure_is_formatted_as_published(printed, shown):
    assert external_figures.format_figure(Figure(quantity="q", **printed)) == shown


def test_figure_description_names_its_conditions():
    about = About(
        framework="tensorflow", framework_version="1.8", ranks=16, nodes=1, scaling="weak"
    )
    assert (
        external_figures.describe_setup_without_network(about)
        == "tensorflow 1.8 · 16 ranks · 1 node · weak scaling"
    )
    assert (
        external_figures.describe_setup_without_network(About(study="storage", workload="lenet"))
        == ""
    )
    imported_record = import_figure(machine="a cluster")
    assert external_figures.describe_figure(imported_record).about == "a cluster · line 3"
    assert external_figures.cited_keys_and_titles([imported_record]) == [
        ("theirs", "results of another tool")
    ]
