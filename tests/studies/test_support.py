"""Tests of probes in a study: the table of features, its evidence and claim verdicts."""

import pytest

from tests.sample_records import vary_record
from xfbench.execution import probing
from xfbench.host.machine import describe_machine
from xfbench.model.features import FEATURES, Support
from xfbench.planning import experiment
from xfbench.studies import answer, cells, page, render, running

RANKS = {"ranks": 2, "scaling": "weak", "global_batch_size": 8}


@pytest.fixture
def make_probe(record):
    """Return a function that makes the record of a probe with the given answers."""

    def make(probe="process", fields=None, request_fields=None, **answers):
        support = tuple(
            Support(feature=name, supported=supported, evidence=f"{name} was seen")
            for name, supported in answers.items()
        )
        record_fields = {
            "support": support,
            "machine": describe_machine(),
            "measurement": None,
            **(fields or {}),
        }
        return record(fields=record_fields, probe=probe, **(request_fields or {}))

    return make


@pytest.fixture
def make_support_answer():
    """Return a function that answers the study hpc-support from records."""
    study = experiment.load("hpc-support")
    matrices = [
        matrix.model_copy(
            update={
                "framework": ["reference", "torch"],
                "batch_size": [4],
                "steps": 3,
                "launcher": None,
                "strategy": ["default", "none"],
            }
        )
        for matrix in study.matrix
    ]
    study = study.model_copy(update={"matrix": matrices})
    return lambda *records: answer.answer_study(study, "smoke", records, {})


def rows_by_feature(finding):
    """Return the rows of a finding's table by their first column."""
    return {row[0]: row[1:] for row in finding.table[1:]}


def test_support_table_lists_features_by_framework_with_evidence(make_support_answer, make_probe):
    torch_request = {"framework": "torch", "kernel": "onednn"}
    support_answer = make_support_answer(
        make_probe(signal="yes", numa="not here"),
        make_probe(request_fields=torch_request, signal="no"),
    )
    table, evidence = support_answer.findings
    assert table.table[0] == ("feature", "reference", "torch")
    assert rows_by_feature(table)[FEATURES["signal"]] == ("yes", "no")
    assert rows_by_feature(table)[FEATURES["numa"]] == ("not here", "–")
    assert "reference supports 1 of 1 and torch supports 0 of 1" in table.sentence
    assert f"Not testable here: {FEATURES['numa']}." in table.sentence
    assert (FEATURES["signal"], "torch", "no", "signal was seen") in evidence.table
    assert evidence.sentence == "3 answers: 1 yes, 1 no, 1 not here."
    text = render.render_markdown(support_answer)
    assert "| torch" in text and "signal was seen" in text
    assert "The authors discuss native support for frameworks in schedulers" in text
    assert "signal was seen" in page.render_html(support_answer)
    assert [finding["table"] for finding in support_answer.document()["findings"]] == [
        table.table,
        evidence.table,
    ]


def test_latest_answer_counts_unless_it_says_not_here(make_support_answer, make_probe):
    timestamp = "2026-01-0{}T00:00:00.000Z".format
    first = make_probe(
        fields={"created": timestamp(1)}, signal="no", numa="yes", affinity="not here"
    )
    later = make_probe(
        fields={"created": timestamp(2)}, signal="yes", numa="not here", affinity="yes"
    )
    for records in ((first, later), (later, first)):
        rows = rows_by_feature(make_support_answer(*records).findings[0])
        assert rows[FEATURES["signal"]] == rows[FEATURES["numa"]] == ("yes",)
        assert rows[FEATURES["affinity"]] == ("yes",)


def test_another_machine_has_its_own_column(make_support_answer, make_probe):
    knl = describe_machine().model_copy(update={"cpu_model": "Xeon Phi"})
    support_answer = make_support_answer(
        make_probe(numa="not here"), make_probe(fields={"machine": knl}, numa="yes")
    )
    table = support_answer.findings[0].table
    assert len(table[0]) == 3 and sum("Xeon Phi" in header for header in table[0]) == 1
    assert sorted(rows_by_feature(support_answer.findings[0])[FEATURES["numa"]]) == [
        "not here",
        "yes",
    ]


def test_refusal_without_a_machine_adds_no_column(make_support_answer, make_probe):
    refusal = make_probe(
        "huge_pages",
        fields={"machine": None, "status": "unavailable", "reason": "Slurm took\n no job"},
    )
    table, evidence = make_support_answer(make_probe(signal="yes"), refusal).findings
    assert len(table.table[0]) == 2
    assert rows_by_feature(table)[FEATURES["huge_pages"]] == ("not here",)
    assert (FEATURES["huge_pages"], "reference", "not here", "Slurm took no job") in evidence.table
    [refusal_table, _] = make_support_answer(refusal).findings
    assert refusal_table.table[0] == ("feature", "reference")


@pytest.mark.parametrize(
    ("status", "reason", "supported", "evidence"),
    [
        ("crashed", "ended by SIGSEGV", "no", "crashed: ended by SIGSEGV"),
        ("timed_out", "too long", "no", "timed_out: too long"),
        ("unavailable", "no Lmod", "not here", "no Lmod"),
        ("unsupported", "it has none", "no", "it has none"),
    ],
)
def test_failed_probe_uses_its_reason_as_the_answer(
    make_probe, status, reason, supported, evidence
):
    fields = {"status": status, "reason": reason, "support": ()}
    support_entries = probing.support_of_record(make_probe(fields=fields))
    assert {support.feature for support in support_entries} == {
        *("affinity", "transparent_huge_pages", "numa", "high_bandwidth", "signal")
    }
    assert {(support.supported, support.evidence) for support in support_entries} == {
        (supported, evidence)
    }


def test_missing_gpu_makes_the_gpu_feature_not_here(make_probe):
    fields = {"status": "unsupported", "reason": "it has no cuda", "support": ()}
    no_gpu_record = make_probe("ranks", fields=fields, request_fields={**RANKS, "device": "cuda"})
    [support] = probing.support_of_record(no_gpu_record)
    assert (support.feature, support.supported) == ("gpus", "not here")
    gpu_machine = describe_machine().model_copy(update={"accelerators": ("a GPU",)})
    gpu_record = make_probe(
        "ranks",
        fields={**fields, "machine": gpu_machine},
        request_fields={**RANKS, "device": "cuda"},
    )
    assert [support.supported for support in probing.support_of_record(gpu_record)] == ["no"]


@pytest.mark.parametrize(
    ("answers", "verdict", "why"),
    [
        ({"signal": "yes"}, "cannot be told", "no matching feature was tested here"),
        ({"affinity": "yes", "numa": "not here"}, "cannot be told", FEATURES["numa"]),
        ({"affinity": "yes", "numa": "no"}, "does not hold", "1 of 2 answers yes"),
        (
            {"affinity": "yes", "numa": "no", "transparent_huge_pages": "no"},
            "holds",
            "1 of 3 answers yes",
        ),
        ({"affinity": "yes", "numa": "yes"}, "does not hold", "2 of 2 answers yes"),
    ],
)
def test_claim_is_judged_by_the_share_of_answers(
    make_support_answer, make_probe, answers, verdict, why
):
    *_, hardware = make_support_answer(make_probe(**answers)).findings[0].judged
    assert "hardware" in hardware.text
    assert hardware.verdict == verdict and why in hardware.why


def test_probes_and_measurements_stay_in_separate_studies(make_probe, record, make_study):
    study = make_study({"name": "values"}, {"batch_size": [4]})
    measurement = record(fields={"machine": describe_machine()})
    assert cells.select_records(study, "laptop", [measurement, make_probe(signal="yes")]) == [
        measurement
    ]
    probe_study = make_study({"name": "support"}, {"probe": "process"})
    probe_record = make_probe(signal="yes")
    assert cells.select_records(probe_study, "laptop", [measurement, probe_record]) == [
        probe_record
    ]


def test_rank_probe_keeps_its_launcher(tmp_path, monkeypatch):
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path))
    choices = running.Choices(frameworks=["torch"], launcher="mpi")
    plan = running.plan_study_and_write_data(experiment.load("hpc-support"), "smoke", choices).plan
    rank_launchers = {request.launcher for request in plan.requests if request.probe == "ranks"}
    assert rank_launchers == {"local", "mpi", "slurm"}
    assert {request.launcher for request in plan.requests if request.probe == "process"} == {"mpi"}


def test_study_without_answers_reports_that_no_probe_ran(make_support_answer):
    table, evidence = make_support_answer().findings
    assert table.sentence == evidence.sentence == "No feature was tested."
    assert table.table == evidence.table == ()


def test_report_has_the_support_page_without_timings(make_probe):
    request_fields = {
        "framework": "torch",
        "kernel": "onednn",
        "affinity": "cores",
        "steps": 4,
        "warmup": 1,
    }
    request_fields |= {"batch_size_per_rank": 128, "global_batch_size": 128}
    [section] = page.build_sections(
        [vary_record(make_probe(signal="yes"), request=request_fields)], {}, print
    )
    assert section.name == "hpc-support"
    assert (
        page.build_sections(
            [vary_record(make_probe(signal="yes"), request=request_fields | {"steps": 9})],
            {},
            print,
        )
        == []
    )
