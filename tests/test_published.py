"""Published figures: each is one that its source has, none is ours, and none is ever ranked."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sample_records import SOFTWARE, certify_records, vary_record
from xfbench import published
from xfbench.analysis import best, comparison, series, statistics
from xfbench.analysis.comparison import Side
from xfbench.analysis.leaderboard import tables
from xfbench.base.errors import UsageError
from xfbench.equality import certificate
from xfbench.host.machine import describe
from xfbench.records.provenance import unmeasured_source
from xfbench.records.record import Record
from xfbench.results import audit
from xfbench.results.store import Store
from xfbench.workloads import workloads

# Of each study the numbers that its source printed as results, and those that only say of what.
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
# What the sources say of a network by name, as they write it and as a request does.
NETWORKS = {
    "LeNet": "lenet",
    "AlexNet": "alexnet",
    "CaffeNet": "caffenet",
    "GoogLeNet": "googlenet",
    "ResNet-50": "resnet50",
    "ResNet-101": "resnet101",
}


def numbers(text):
    """The numbers in a sentence, but for those that are part of a name: K40, ResNet-50."""
    return {float(one) for one in re.findall(r"(?<![\w-])\d+(?:\.\d+)?(?!\w)", text)}


def of(record):
    figure = record.figure
    return {one for one in (figure.value, figure.low, figure.high) if one is not None}


@pytest.mark.parametrize(("key", "study"), PRINTED)
def test_figures_match_the_numbers_printed_by_the_source(key, study):
    results, conditions = PRINTED[key, study]
    records = [one for one in published.figures_of_study(study) if one.citation.key == key]
    assert set().union(*map(of, records)) == results
    said = " ".join(one.sentence for one in published.findings(study))
    assert numbers(said) == results | conditions
    for record in records:
        figure, about = record.figure, record.figure.about
        told = f"{figure.quantity} {figure.relative_to or ''} {about.machine or ''}"
        counts = {about.threads, about.ranks, about.nodes, about.global_batch_size}
        counts |= {about.batch_size_per_rank} | numbers(told) | numbers(about.machine or "")
        # "One node" and "one device" are no numbers in the sentence.
        assert counts - {None, 1} <= results | conditions
        name = next((name for name, own in NETWORKS.items() if own == about.workload), None)
        assert name is None or name in said or ("ResNets" in said and "resnet" in about.workload)


def test_published_sources_and_studies_are_complete():
    told = {
        (one.citation.key, one.citation.title, one.citation.where) for one in published.findings()
    }
    assert {key for key, _, _ in told} == {"Z17", "H19", "Y19", "A17"}
    assert all(title and where for _, title, where in told)
    assert {(one.citation.key, one.study) for one in published.findings()} == set(PRINTED)
    assert {one.figure.about.study for one in published.records()} == {
        study for (_, study), (results, _) in PRINTED.items() if results
    }
    networks = {one.figure.about.workload for one in published.records()} - {None}
    assert networks <= set(workloads())


def test_published_record_has_only_its_figure_and_source():
    for record in published.records():
        assert record.source == "published" and record.status == "ok"
        document = record.document()
        kept = {"id", "created", "schema", "source", "citation", "figure", "status"}
        assert {name for name, value in document.items() if value is not None} == kept
        assert Record.read(json.dumps(document).encode()) == record
        assert of(record) and record.figure.unit
        assert record.figure.low is None or record.figure.low < record.figure.high


def test_ids_are_the_same_in_another_process():
    script = "from xfbench import published; print(*(one.id for one in published.records()))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    ids = [one.id for one in published.records()]
    assert done.stdout.split() == ids and len(set(ids)) == len(ids)


@pytest.fixture
def measured(record):
    """Three certified launches of 0.1 s a step, and their certificates."""
    fields = {"software": SOFTWARE, "machine": describe()}
    return certify_records([record(steps=(0.1,) * 9, launch=n, fields=fields) for n in (1, 2, 3)])


def forged(like, source):
    """A record that looks measured, proven and far faster, and says that it is from elsewhere."""
    figure = published.records()[0].figure
    citation = published.records()[0].citation
    return vary_record(like, source=source, citation=citation, figure=figure, seconds=1e-4)


@pytest.mark.parametrize("source", ["published", "imported"])
def test_external_record_is_never_ranked(measured, source):
    records, certificates = measured
    [alone] = tables(records, certificates)
    [table] = tables(
        [forged(records[0], source), *records, forged(records[2], source)], certificates
    )
    assert table.rows == alone.rows and table.rows[0].rank == (1, 1)
    assert table.rows[0].images_per_second.launches == 3
    assert len(table.unranked) == 2
    for row in table.unranked:
        assert row.reason == f"{source}: Z17, not measured by xfbench"
        assert row.rank is None and row.images_per_second is None and row.source == source
        assert row.share_of_peak is None and row.certificate is None


@pytest.mark.parametrize("by", ["framework", "threads", "machine"])
def test_external_record_is_never_best(measured, by):
    records, certificates = measured
    fakes = [forged(records[0], "published")]
    fakes += [vary_record(fakes[0], request={"framework": "torch", "workload": "convnet"})]
    alone, found = (tables(some, certificates) for some in (records, [*records, *fakes]))
    assert best.reduce_to_best(found, (by,)) == best.reduce_to_best(alone, (by,))
    assert best.reduce_to_best(found, (by,))[0].rows[0].configurations == 1


@pytest.mark.parametrize("source", ["published", "imported"])
def test_unranked_table_gives_no_ratio_for_external_records(measured, source):
    records, _ = measured
    [table] = tables([*records, forged(records[0], source)], {})
    [ours, theirs] = table.unranked
    assert ours.relative_to_best == 1 and theirs.relative_to_best is None


@pytest.mark.parametrize("law", ["strong", "weak"])
def test_external_record_is_no_baseline_for_efficiency(measured, law):
    records, certificates = measured
    under = {"scaling": law, "ranks": 2, "strategy": "mpi", "global_batch_size": 4}
    under["batch_size_per_rank"] = 2 if law == "strong" else 4
    under["global_batch_size"] = 2 * under["batch_size_per_rank"]
    own = [vary_record(one, request=under) for one in records]
    alone = {"scaling": law, "ranks": 1, "strategy": "none"}
    theirs = forged(vary_record(records[0], request=alone), "published")
    [table] = tables([*own, theirs], certificates)
    row = next(row for row in (*table.rows, *table.unranked) if row.source == "measured")
    assert row.efficiency.baseline_ranks == 2 and row.efficiency.value == 1


@pytest.mark.parametrize("source", ["published", "imported"])
def test_comparison_and_prediction_ignore_external_records(measured, source, tmp_path):
    records, certificates = measured
    store = Store(tmp_path / "results")
    store.prepare()
    for proof in certificates.values():
        proof.write(store.certificate_path(proof.id))
    other = [vary_record(one, request={"threads": 2}) for one in records]
    fakes = [forged(one, source) for one in (*records, *other)]
    for one in (*records, *other, *fakes):
        store.add(one)
    sides = Side.parse("threads=1", store.folder), Side.parse("threads=2", store.folder)
    [found] = comparison.compare(*sides)
    assert found.figures.ratio.launches == 3
    assert found.figures.ratio.value == pytest.approx(1, rel=1e-6)
    only = Store(tmp_path / "only")
    only.prepare()
    for one in fakes:
        only.add(one)
    with pytest.raises(UsageError, match="no ok launch"):
        comparison.compare(Side.parse("threads=1", only.folder), Side.parse(None, only.folder))
    assert statistics.launch_speeds(fakes) == {}
    scaled = [vary_record(one, request={"scaling": "weak"}) for one in fakes]
    assert series.build_series(scaled) == []
    proof = next(iter(certificates.values()))
    assert certificate.coverage_error(proof, forged(records[0], source)).startswith(source)


def test_audit_refuses_a_published_record_with_a_certificate(measured, tmp_path):
    records, certificates = measured
    store = Store(tmp_path / "results")
    store.prepare()
    for one in published.records():
        store.add(one)
    assert audit.validate(store.folder) == (len(published.records()), [])
    for proof in certificates.values():
        proof.write(store.certificate_path(proof.id))
    store.add(forged(records[0], "published"))
    found = {one.defect: one.detail for one in audit.validate(store.folder)[1]}
    assert set(found) <= {"certificate", "figure"}
    assert "not measured by xfbench" in found["certificate"]


def test_measured_record_has_no_not_measured_note(measured):
    assert not any(map(unmeasured_source, measured[0]))


def test_published_page_matches_the_files():
    command = [sys.executable, "-m", "xfbench.published"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    page = Path(__file__).parent.parent / "docs" / "published.md"
    assert page.read_text(encoding="utf-8") == done.stdout
