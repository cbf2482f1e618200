"""Published figures: each matches its source, and none is ever ranked."""

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
from xfbench.store import published
from xfbench.store.results_folder import Store
from xfbench.workloads import workloads

# For each study: the numbers printed as results, and the numbers that describe conditions.
PRINTED = {
    ("Z17", "thread-sweep"): ({64}, {32, 128}),
    ("Z17", "kernels"): ({1.4, 3.7}, set()),
    ("Z17", "architectures"): ({2, 40, 80}, set()),
    ("Z17", "slowdown"): ({1.2, 3.7, 5.3, 14.1, 5.0, 22.3, 18.9, 59.0}, set()),
    ("Z17", "strong-scaling"): ({50}, {4}),
    ("Z17", "weak-scaling"): ({80, 768}, {128, 512}),
    ("H19", "overall"): ({7, 2.3, 69.9}, {1.8, 4}),
    ("H19", "scale-up"): ({2, 3.26}, {4}),
    ("H19", "scale-out"): ({1211, 94, 1094, 93, 1012}, {128}),
    ("H19", "parameter-servers"): ({4}, {16}),
    ("H19", "batch-size"): ({1.0, 3.7, 2.7, 4, 8, 512}, {128, 256}),
    ("H19", "storage"): ({7.2, 4.2, 2.0, 5.2, 4.63, 1.75, 0}, {2.5}),
    ("H19", "data-format"): ({1}, set()),
    ("H19", "variability"): ({0.1, 3.1, 1.3, 9.0}, set()),
    ("H19", "communication"): (
        {1520, 326, 20355, 3832, 13136, 1948, 31.77, 35.12, 21.47, 18.06},
        {4},
    ),
    ("H19", "checkpoint"): ({5, 70}, set()),
    ("H19", "accuracy"): (set(), set()),
    ("Y19", "learning-speedup"): ({12000, 15000}, set()),
    ("A17", "hpc-support"): (set(), set()),
}
# Network names as the sources write them, and as a request does.
NETWORKS = {
    "LeNet": "lenet",
    "AlexNet": "alexnet",
    "CaffeNet": "caffenet",
    "GoogLeNet": "googlenet",
    "ResNet-50": "resnet50",
    "ResNet-101": "resnet101",
}


def find_numbers(text):
    """Return the numbers in a sentence, without those in names such as K40 or ResNet-50."""
    return {float(number) for number in re.findall(r"(?<![\w-])\d+(?:\.\d+)?(?!\w)", text)}


def figure_values(record):
    figure = record.figure
    return {value for value in (figure.value, figure.low, figure.high) if value is not None}


@pytest.mark.parametrize(("key", "study"), PRINTED)
def test_figures_match_the_numbers_printed_by_the_source(key, study):
    results, conditions = PRINTED[key, study]
    records = [record for record in published.records_of_study(study) if record.citation.key == key]
    assert set().union(*map(figure_values, records)) == results
    sentences = " ".join(finding.sentence for finding in published.findings(study))
    assert find_numbers(sentences) == results | conditions
    for record in records:
        figure, about = record.figure, record.figure.about
        text = f"{figure.quantity} {figure.relative_to or ''} {about.machine or ''}"
        counts = {about.threads, about.ranks, about.nodes, about.global_batch_size}
        counts |= (
            {about.batch_size_per_rank} | find_numbers(text) | find_numbers(about.machine or "")
        )
        # The sentences spell out "one node" and "one device".
        assert counts - {None, 1} <= results | conditions
        name = next(
            (name for name, workload in NETWORKS.items() if workload == about.workload), None
        )
        assert (
            name is None
            or name in sentences
            or ("ResNets" in sentences and "resnet" in about.workload)
        )


def test_published_sources_and_studies_are_complete():
    sources = {
        (finding.citation.key, finding.citation.title, finding.citation.where)
        for finding in published.findings()
    }
    assert {key for key, _, _ in sources} == {"Z17", "H19", "Y19", "A17"}
    assert all(title and location for _, title, location in sources)
    assert {(finding.citation.key, finding.study) for finding in published.findings()} == set(
        PRINTED
    )
    assert {record.figure.about.study for record in published.records()} == {
        study for (_, study), (results, _) in PRINTED.items() if results
    }
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
