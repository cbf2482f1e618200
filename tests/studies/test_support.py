"""What probes come to in a study: a table of features, its evidence, and what claims make of it."""

import pytest

from tests.sample_records import vary_record
from xfbench import experiment
from xfbench.host.machine import describe
from xfbench.records.features import FEATURES, Support
from xfbench.running import probing
from xfbench.studies import answer, cells, page, render, running

RANKS = {"ranks": 2, "scaling": "weak", "global_batch_size": 8}


@pytest.fixture
def probe(record):
    """A function that makes the record of a probe with these answers."""

    def make(probe="process", fields=None, of=None, **answers):
        support = tuple(
            Support(feature=name, supported=yes, evidence=f"{name} was seen")
            for name, yes in answers.items()
        )
        own = {"support": support, "machine": describe(), "measurement": None, **(fields or {})}
        return record(fields=own, probe=probe, **(of or {}))

    return make


@pytest.fixture
def come_to():
    """A function: what the study hpc-support says of these records of the reference."""
    study = experiment.load("hpc-support")
    matrices = [
        one.model_copy(
            update={
                "framework": ["reference", "torch"],
                "batch_size": [4],
                "steps": 3,
                "launcher": None,
                "strategy": ["default", "none"],
            }
        )
        for one in study.matrix
    ]
    study = study.model_copy(update={"matrix": matrices})
    return lambda *records: answer.answer_study(study, "smoke", records, {})


def lines(finding):
    """The table's lines by their first field."""
    return {line[0]: line[1:] for line in finding.table[1:]}


def test_support_table_lists_features_by_framework_with_evidence(come_to, probe):
    torch = {"framework": "torch", "kernel": "onednn"}
    found = come_to(probe(signal="yes", numa="not here"), probe(of=torch, signal="no"))
    table, seen = found.findings
    assert table.table[0] == ("feature", "reference", "torch")
    assert lines(table)[FEATURES["signal"]] == ("yes", "no")
    assert lines(table)[FEATURES["numa"]] == ("not here", "–")
    assert "reference supports 1 of 1 and torch supports 0 of 1" in table.sentence
    assert f"Not testable here: {FEATURES['numa']}." in table.sentence
    assert (FEATURES["signal"], "torch", "no", "signal was seen") in seen.table
    assert seen.sentence == "3 answers: 1 yes, 1 no, 1 not here."
    text = render.render_markdown(found)
    assert "| torch" in text and "signal was seen" in text
    assert "Native support for schedulers is proposed" in text
    assert "signal was seen" in page.render_html(found)
    assert [one["table"] for one in found.document()["findings"]] == [table.table, seen.table]


def test_latest_answer_counts_unless_it_is_not_here(come_to, probe):
    at = "2026-01-0{}T00:00:00.000Z".format
    first = probe(fields={"created": at(1)}, signal="no", numa="yes", affinity="not here")
    later = probe(fields={"created": at(2)}, signal="yes", numa="not here", affinity="yes")
    for records in ((first, later), (later, first)):
        found = lines(come_to(*records).findings[0])
        assert found[FEATURES["signal"]] == found[FEATURES["numa"]] == ("yes",)
        assert found[FEATURES["affinity"]] == ("yes",)


def test_another_machine_has_its_own_column(come_to, probe):
    knl = describe().model_copy(update={"cpu_model": "Xeon Phi"})
    found = come_to(probe(numa="not here"), probe(fields={"machine": knl}, numa="yes"))
    table = found.findings[0].table
    assert len(table[0]) == 3 and sum("Xeon Phi" in head for head in table[0]) == 1
    assert sorted(lines(found.findings[0])[FEATURES["numa"]]) == ["not here", "yes"]


def test_refusal_without_a_machine_adds_no_column(come_to, probe):
    refused = probe(
        "huge_pages",
        fields={"machine": None, "status": "unavailable", "reason": "Slurm took\n no job"},
    )
    table, seen = come_to(probe(signal="yes"), refused).findings
    assert len(table.table[0]) == 2
    assert lines(table)[FEATURES["huge_pages"]] == ("not here",)
    assert (FEATURES["huge_pages"], "reference", "not here", "Slurm took no job") in seen.table
    [alone, _] = come_to(refused).findings
    assert alone.table[0] == ("feature", "reference")


@pytest.mark.parametrize(
    ("status", "reason", "supported", "said"),
    [
        ("crashed", "ended by SIGSEGV", "no", "crashed: ended by SIGSEGV"),
        ("timed_out", "too long", "no", "timed_out: too long"),
        ("unavailable", "no Lmod", "not here", "no Lmod"),
        ("unsupported", "it has none", "no", "it has none"),
    ],
)
def test_failed_probe_uses_its_reason_as_the_answer(probe, status, reason, supported, said):
    fields = {"status": status, "reason": reason, "support": ()}
    found = probing.support_of_record(probe(fields=fields))
    assert {one.feature for one in found} == {
        *("affinity", "transparent_huge_pages", "numa", "high_bandwidth", "signal")
    }
    assert {(one.supported, one.evidence) for one in found} == {(supported, said)}


def test_missing_gpu_makes_the_gpu_feature_not_here(probe):
    fields = {"status": "unsupported", "reason": "it has no cuda", "support": ()}
    without = probe("ranks", fields=fields, of={**RANKS, "device": "cuda"})
    [told] = probing.support_of_record(without)
    assert (told.feature, told.supported) == ("gpus", "not here")
    there = describe().model_copy(update={"accelerators": ("a GPU",)})
    on_it = probe("ranks", fields={**fields, "machine": there}, of={**RANKS, "device": "cuda"})
    assert [one.supported for one in probing.support_of_record(on_it)] == ["no"]


@pytest.mark.parametrize(
    ("answers", "verdict", "why"),
    [
        ({"signal": "yes"}, "cannot be told", "no matching feature was tested here"),
        ({"affinity": "yes", "numa": "not here"}, "cannot be told", FEATURES["numa"]),
        ({"affinity": "yes", "numa": "no"}, "holds", "1 of 2 answers yes"),
        ({"affinity": "yes", "numa": "yes"}, "does not hold", "2 of 2 answers yes"),
    ],
)
def test_claim_is_judged_by_the_share_of_answers(come_to, probe, answers, verdict, why):
    *_, hardware = come_to(probe(**answers)).findings[0].judged
    assert "hardware" in hardware.text
    assert hardware.verdict == verdict and why in hardware.why


def test_probes_and_measurements_stay_in_separate_studies(probe, record, study):
    made = study({"name": "values"}, {"batch_size": [4]})
    measured = record(fields={"machine": describe()})
    assert cells.select_records(made, "laptop", [measured, probe(signal="yes")]) == [measured]
    probing_it = study({"name": "support"}, {"probe": "process"})
    tried = probe(signal="yes")
    assert cells.select_records(probing_it, "laptop", [measured, tried]) == [tried]


def test_rank_probe_keeps_its_launcher(tmp_path, monkeypatch):
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path))
    choices = running.Choices(frameworks=["torch"], launcher="mpi")
    made = running.prepare(experiment.load("hpc-support"), "smoke", choices).plan
    ranks = {one.launcher for one in made.requests if one.probe == "ranks"}
    assert ranks == {"local", "mpi", "slurm"}
    assert {one.launcher for one in made.requests if one.probe == "process"} == {"mpi"}


def test_study_without_answers_reports_that_no_probe_ran(come_to):
    table, seen = come_to().findings
    assert table.sentence == seen.sentence == "No feature was tested."
    assert table.table == seen.table == ()


def test_report_has_the_support_page_without_timings(probe):
    own = {"framework": "torch", "kernel": "onednn", "affinity": "cores", "steps": 4, "warmup": 1}
    own |= {"batch_size_per_rank": 128, "global_batch_size": 128}
    [found] = page.build_sections([vary_record(probe(signal="yes"), request=own)], {}, print)
    assert found.name == "hpc-support"
    assert (
        page.build_sections(
            [vary_record(probe(signal="yes"), request=own | {"steps": 9})], {}, print
        )
        == []
    )
