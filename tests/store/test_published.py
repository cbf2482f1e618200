"""Published figures: each matches its source, and none is ever ranked."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sample_records import SOFTWARE, certify_records, vary_record
from xfbench import statistics
from xfbench.analysis import best, comparison, series
from xfbench.analysis.comparison import Side
from xfbench.analysis.leaderboard import build_tables
from xfbench.base.errors import UsageError
from xfbench.exchange import audit
from xfbench.host.machine import describe_machine
from xfbench.model import certificate
from xfbench.model.provenance import unmeasured_source
from xfbench.model.record import Record
from xfbench.planning import experiment
from xfbench.store import published
from xfbench.store.results_folder import Store
from xfbench.workloads import workloads

# Every number that the sources print, with its place: written by somebody who had read the sources
# and not the files in `xfbench/store/published`. `left_out` says why a number is not stored.
NUMBERS = [*csv.DictReader((Path(__file__).parent / "published_numbers.csv").open())]
# Network names as the sources write them, and as a request does.
NETWORKS = {
    "LeNet": "lenet",
    "AlexNet": "alexnet",
    "CaffeNet": "caffenet",
    "GoogLeNet": "googlenet",
    "ResNet-50": "resnet50",
    "ResNet-101": "resnet101",
}


def split_place(place):
    """Return the parts of a place, such as {"slide 14", "slide 21"} for "slides 14 and 21"."""
    return {
        part if " " in part else f"slide {part}"
        for part in place.replace("slides ", "").split(" and ")
    }


def figure_values(record):
    figure = record.figure
    return {value for value in (figure.value, figure.low, figure.high) if value is not None}


def row_values(row):
    return {float(row[name]) for name in ("low", "value", "high") if row[name]}


def is_printed_as(record, row):
    """Return whether the record may be this row: the same source, numbers, network and a place."""
    workload = record.figure.about and record.figure.about.workload
    named = {of for name, of in NETWORKS.items() if name in row["subject"]}
    return (
        record.citation.key == row["source"]
        and figure_values(record) == row_values(row)
        and (not named or not workload or workload in named)
        and bool(split_place(record.citation.where) & split_place(row["place"]))
    )


def test_every_printed_number_is_stored_or_left_out_for_a_reason():
    for row in NUMBERS:
        if row_values(row) and not row["left_out"] and row["subject"] != "unassigned label":
            matches = [record for record in published.records() if is_printed_as(record, row)]
            assert matches, row


@pytest.mark.parametrize("record", published.records(), ids=lambda record: record.id[7:15])
def test_every_stored_number_is_printed_at_its_place(record):
    rows = [row for row in NUMBERS if is_printed_as(record, row)]
    if record.figure.quantity.startswith("efficiency, four networks"):  # the range of a chart
        labels = [row for row in NUMBERS if row["subject"] == "unassigned label"]
        percent = [float(row["value"]) for row in labels]
        assert (record.figure.low, record.figure.high) == (min(percent), max(percent))
        rows = labels
    if record.figure.quantity == "gains up to":  # in words: "2 GPUs"
        rows = [row for row in NUMBERS if row["quantity"].endswith("gain beyond 2 GPUs")]
    assert rows
    printed_places = set().union(*(split_place(row["place"]) for row in rows))
    assert split_place(record.citation.where) <= printed_places


@pytest.mark.parametrize("finding", published.findings(), ids=lambda finding: finding.study)
def test_every_sentence_says_where_its_source_says_it(finding):
    """Each number of the sentence is in a row of that place, or of a row about the experiment."""
    places = split_place(finding.citation.where)
    rows = [
        row
        for row in NUMBERS
        if row["source"] == finding.citation.key and split_place(row["place"]) & places
    ]
    assert places <= set().union(*(split_place(row["place"]) for row in rows))
    texts = " ".join(
        f"{row['subject']} {row['quantity']} {row['relative_to']}"
        for row in NUMBERS
        if row["source"] == finding.citation.key
    )
    printed = set().union(*map(row_values, rows)) | find_numbers(texts)
    printed |= set().union(*(row_values(row) for row in NUMBERS if row["left_out"] == "set-up"))
    printed |= {40.0} if "peak of 40 GB/s" in finding.sentence else set()
    assert find_numbers(finding.sentence) <= printed


def find_numbers(text):
    """Return the numbers in a text, without those in names such as K40 or ResNet-50."""
    return {float(number) for number in re.findall(r"(?<![\w-])\d+(?:\.\d+)?(?!\w)", text)}


def test_published_sources_and_studies_are_complete():
    sources = {
        (finding.citation.key, finding.citation.title, finding.citation.where)
        for finding in published.findings()
    }
    assert {key for key, _, _ in sources} == {"Z17", "H19", "Y19", "A17"}
    assert all(title and location for _, title, location in sources)
    studies = {finding.study for finding in published.findings()}
    assert studies == set(experiment.list_names()) - {"quick", "framework-slowdown"}
    assert {record.figure.about.study for record in published.records()} <= studies
    networks = {record.figure.about.workload for record in published.records()} - {None}
    assert networks <= set(workloads())


def test_published_record_has_only_its_figure_and_source():
    for record in published.records():
        assert record.source == "published" and record.status == "ok"
        document = record.document()
        fields = {"id", "created", "schema", "source", "citation", "figure", "status"}
        assert {name for name, value in document.items() if value is not None} == fields
        assert Record.read(json.dumps(document).encode()) == record
        assert figure_values(record) and record.figure.unit
        assert record.figure.low is None or record.figure.low < record.figure.high


def test_ids_are_the_same_in_another_process():
    script = (
        "from xfbench.store import published; print(*(record.id for record in published.records()))"
    )
    command = [sys.executable, "-c", script]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    ids = [record.id for record in published.records()]
    assert completed.stdout.split() == ids and len(set(ids)) == len(ids)


@pytest.fixture
def measured_records(record):
    """Return three certified launches of 0.1 s a step, and their certificates."""
    fields = {"software": SOFTWARE, "machine": describe_machine()}
    return certify_records([record(steps=(0.1,) * 9, launch=n, fields=fields) for n in (1, 2, 3)])


def forge_record(template, source):
    """Return a record with a certificate and a far higher speed, but an external source."""
    figure = published.records()[0].figure
    citation = published.records()[0].citation
    return vary_record(template, source=source, citation=citation, figure=figure, seconds=1e-4)


@pytest.mark.parametrize("source", ["published", "imported"])
def test_external_record_is_never_ranked(measured_records, source):
    records, certificates = measured_records
    [measured_table] = build_tables(records, certificates)
    [table] = build_tables(
        [forge_record(records[0], source), *records, forge_record(records[2], source)], certificates
    )
    assert table.rows == measured_table.rows and table.rows[0].rank == (1, 1)
    assert table.rows[0].images_per_second.launches == 3
    assert len(table.unranked) == 2
    for row in table.unranked:
        assert row.reason == f"{source}: Z17, not measured by xfbench"
        assert row.rank is None and row.images_per_second is None and row.source == source
        assert row.share_of_peak is None and row.certificate is None


@pytest.mark.parametrize("by", ["framework", "threads", "machine"])
def test_external_record_is_never_best(measured_records, by):
    records, certificates = measured_records
    fakes = [forge_record(records[0], "published")]
    fakes += [vary_record(fakes[0], request={"framework": "torch", "workload": "convnet"})]
    measured_tables, all_tables = (
        build_tables(table_records, certificates) for table_records in (records, [*records, *fakes])
    )
    assert best.keep_best_row_per_group(all_tables, (by,)) == best.keep_best_row_per_group(
        measured_tables, (by,)
    )
    assert best.keep_best_row_per_group(all_tables, (by,))[0].rows[0].configurations == 1


@pytest.mark.parametrize("source", ["published", "imported"])
def test_unranked_table_gives_no_ratio_for_external_records(measured_records, source):
    records, _ = measured_records
    [table] = build_tables([*records, forge_record(records[0], source)], {})
    [measured_row, external_row] = table.unranked
    assert measured_row.relative_to_best == 1 and external_row.relative_to_best is None


@pytest.mark.parametrize("law", ["strong", "weak"])
def test_external_record_is_no_baseline_for_efficiency(measured_records, law):
    records, certificates = measured_records
    request = {"scaling": law, "ranks": 2, "strategy": "mpi", "global_batch_size": 4}
    request["batch_size_per_rank"] = 2 if law == "strong" else 4
    request["global_batch_size"] = 2 * request["batch_size_per_rank"]
    two_ranks = [vary_record(record, request=request) for record in records]
    single_rank = {"scaling": law, "ranks": 1, "strategy": "none"}
    external = forge_record(vary_record(records[0], request=single_rank), "published")
    [table] = build_tables([*two_ranks, external], certificates)
    row = next(row for row in (*table.rows, *table.unranked) if row.source == "measured")
    assert row.efficiency is None


@pytest.mark.parametrize("source", ["published", "imported"])
def test_comparison_and_prediction_ignore_external_records(measured_records, source, tmp_path):
    records, certificates = measured_records
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for measured_certificate in certificates.values():
        measured_certificate.write(store.certificate_path(measured_certificate.id))
    two_threads = [vary_record(record, request={"threads": 2}) for record in records]
    fakes = [forge_record(record, source) for record in (*records, *two_threads)]
    for record in (*records, *two_threads, *fakes):
        store.add(record)
    sides = Side.parse("threads=1", store.folder), Side.parse("threads=2", store.folder)
    [difference] = comparison.compare(*sides).comparisons
    assert difference.figures.ratio.launches == 3
    assert difference.figures.ratio.value == pytest.approx(1, rel=1e-6)
    external_store = Store(tmp_path / "only")
    external_store.create_and_check_folders()
    for record in fakes:
        external_store.add(record)
    with pytest.raises(UsageError, match="no ok launch"):
        comparison.compare(
            Side.parse("threads=1", external_store.folder), Side.parse(None, external_store.folder)
        )
    assert statistics.counted_speeds_by_block(fakes) == {}
    scaled = [vary_record(record, request={"scaling": "weak"}) for record in fakes]
    assert series.build_scaling_series(scaled) == []
    measured_certificate = next(iter(certificates.values()))
    assert certificate.coverage_error(
        measured_certificate, forge_record(records[0], source)
    ).startswith(source)


def test_audit_refuses_a_published_record_with_a_certificate(measured_records, tmp_path):
    records, certificates = measured_records
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for record in published.records():
        store.add(record)
    assert audit.validate_results(store.folder) == (len(published.records()), [])
    for measured_certificate in certificates.values():
        measured_certificate.write(store.certificate_path(measured_certificate.id))
    store.add(forge_record(records[0], "published"))
    defects = {
        problem.defect: problem.detail for problem in audit.validate_results(store.folder)[1]
    }
    assert set(defects) <= {"certificate", "figure"}
    assert "not measured by xfbench" in defects["certificate"]


def test_measured_record_has_no_not_measured_note(measured_records):
    assert not any(map(unmeasured_source, measured_records[0]))


def test_published_page_matches_the_files():
    command = [sys.executable, "-m", "xfbench.rendering.published_page"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    page = Path(__file__).parents[2] / "docs" / "published.md"
    assert page.read_text(encoding="utf-8") == completed.stdout
