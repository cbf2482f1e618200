"""Certificates: which records a certificate covers and gives a rank."""

import json

import pytest

from tests.sample_records import (
    SOFTWARE,
    build_batch_certificate,
    build_certificate,
    build_record_certificate,
    write_older_certificate,
)
from xfbench.analysis.leaderboard import NO_CERTIFICATE, build_tables
from xfbench.equality import certify
from xfbench.execution.launch import LaunchContext
from xfbench.host.machine import describe_machine
from xfbench.model import certificate
from xfbench.model.certificate import CertificateError, certified_fields
from xfbench.rendering.tables import to_text
from xfbench.session import Session
from xfbench.store.results_folder import Store


@pytest.fixture
def build_covered(record):
    """Return a function that builds a record and its certificate, with changes in the subject."""

    def build_pair(**changes):
        fields = {"software": SOFTWARE, "machine": describe_machine()}
        stored = build_record_certificate(record(fields=fields), **changes)
        return record(fields={**fields, "certificate": stored.id}), stored

    return build_pair


def only_row(ranked_record, certificates):
    [table] = build_tables([ranked_record], certificates)
    return [*table.rows, *table.unranked][0]


def test_record_with_a_valid_certificate_is_ranked(build_covered):
    covered_record, stored = build_covered()
    assert only_row(covered_record, {stored.id: stored}).reason is None
    [table] = build_tables([covered_record], {stored.id: stored})
    assert len(table.rows) == 1 and table.unranked == ()


V100, K40 = "Tesla V100-SXM2-16GB", "Tesla K40m"


@pytest.mark.parametrize(
    ("certified", "machine_gpus", "used", "is_covered"),
    [
        ((V100,), (V100,), V100, True),
        ((V100,), (V100,) * 4, V100, True),
        ((V100,), (V100,) * 4, None, True),
        ((V100,), (V100, K40), V100, True),
        ((V100,), (V100, K40), K40, False),
        ((V100,), (V100, K40), None, False),
        ((V100,), (K40,), K40, False),
        ((V100,), (V100,), f"{V100} MIG 1g.5gb", True),
        # Certificates of earlier versions list all GPUs of the machine.
        ((V100,) * 4, (V100,) * 4, V100, True),
        ((V100,) * 4, (V100,), V100, True),
        ((V100, K40), (V100, K40), V100, True),
        ((V100, K40), (V100,), V100, False),
    ],
)
def test_certificate_is_for_the_model_of_the_ranks_gpu(
    record, build_gpu, certified, machine_gpus, used, is_covered
):
    machine = describe_machine().model_copy(update={"accelerators": machine_gpus})
    observed = record().observed.model_copy(update={"gpus": (build_gpu(used),)})
    fields = {"software": SOFTWARE, "machine": machine, "observed": observed}
    launch = {"device": "cuda", "framework": "torch"}
    stored = build_record_certificate(record(fields=fields, **launch), accelerators=certified)
    unnamed = record(fields=fields, **launch)
    named = record(fields={**fields, "certificate": stored.id}, **launch)
    assert (only_row(unnamed, {stored.id: stored}).reason is None) == is_covered
    reason = only_row(named, {stored.id: stored}).reason
    assert (reason is None) == is_covered
    assert is_covered or "the certificate is for another accelerators" in reason


def test_certificate_of_other_strategy_options_gives_no_rank(build_covered):
    covered_record, stored = build_covered(strategy_options=(("overlap", "off"), ("servers", 2)))
    assert only_row(covered_record, {stored.id: stored}).reason == (
        "the certificate is for another strategy options: overlap=off, servers=2, not none"
    )


def test_indistinguishable_cells_share_a_rank(record):
    fields = {"software": SOFTWARE, "machine": describe_machine()}
    records, certificates = [], {}
    for threads, seconds in ((1, 0.1), (2, 0.1), (4, 0.5)):
        settings = {"threads": threads, "fields": fields}
        stored = build_record_certificate(record(**settings))
        certificates[stored.id] = stored
        for launch in range(1, 6):
            step_seconds = seconds * (1 + 0.01 * ((launch * (threads + 2)) % 5))
            settings["fields"] = {**fields, "certificate": stored.id}
            records.append(record(**settings, steps=(step_seconds,), launch=launch))
    [table] = build_tables(records, certificates)
    assert [row.rank for row in table.rows] == [(1, 2), (1, 2), (3, 3)]
    ranks = [line.split()[0] for line in to_text([table]).splitlines() if " reference " in line]
    assert ranks == ["1–2", "1–2", "3"]


def test_a_record_without_a_certificate_has_no_rank(record):
    assert only_row(record(), {}).reason == NO_CERTIFICATE


def test_a_later_certificate_covers_a_record_that_names_none(build_covered):
    covered_record, stored = build_covered()
    unverified = covered_record.model_copy(update={"certificate": None})
    assert only_row(unverified, {stored.id: stored}).reason is None
    assert only_row(unverified, {stored.id: "edited"}).reason == NO_CERTIFICATE


def test_a_certificate_of_different_speaks_against_records_that_name_none(build_covered):
    covered_record, stored = build_covered()
    unverified = covered_record.model_copy(update={"certificate": None})
    refuted = build_certificate(stored.subject, verdict="different", finding="wrong at loss")
    for both in (
        {stored.id: stored, refuted.id: refuted},
        {refuted.id: refuted, stored.id: stored},
    ):
        assert only_row(unverified, both).reason == "verified as different: wrong at loss"
        assert only_row(covered_record, both).reason is None


def name_batch(covered_record, batch):
    return covered_record.model_copy(update={"batch_certificate": batch.id})


def test_a_batch_certificate_keeps_the_rank_and_takes_the_mark_away(build_covered):
    covered_record, stored = build_covered()
    batch = build_batch_certificate(covered_record)
    both = {stored.id: stored, batch.id: batch}
    for ranked_record in (covered_record, name_batch(covered_record, batch)):
        row = only_row(ranked_record, both)
        assert (row.reason, row.batch_certificate) == (None, batch.id)
        assert "small batches" not in to_text(build_tables([ranked_record], both))
    assert only_row(covered_record, {stored.id: stored}).is_proven_at_small_batches
    marked = to_text(build_tables([covered_record], {stored.id: stored}))
    assert "Proven at small batches: the gradients of the timed batch were not" in marked


def test_a_wrong_timed_batch_has_no_rank(build_covered):
    covered_record, stored = build_covered()
    equal = build_batch_certificate(covered_record)
    wrong = build_batch_certificate(covered_record, "different", "at a batch of 4: first at conv2")
    certificates = {each.id: each for each in (stored, equal, wrong)}
    reason = "verified as different: at a batch of 4: first at conv2"
    assert only_row(covered_record, certificates).reason == reason
    assert only_row(name_batch(covered_record, wrong), certificates).reason == reason
    # Libraries that choose their algorithms by trying may have chosen others in that launch.
    assert only_row(name_batch(covered_record, equal), certificates).reason == reason
    proven = only_row(name_batch(covered_record, equal), {stored.id: stored, equal.id: equal})
    assert (proven.reason, proven.batch_certificate) == (None, equal.id)


def test_a_batch_certificate_of_an_earlier_rule_proves_nothing(build_covered):
    covered_record, stored = build_covered()
    older = build_batch_certificate(covered_record, rule=1)
    today = build_batch_certificate(covered_record)
    for ranked_record in (covered_record, name_batch(covered_record, older)):
        row = only_row(ranked_record, {stored.id: stored, older.id: older})
        assert row.is_proven_at_small_batches
        assert "small batches" in to_text(
            build_tables([ranked_record], {stored.id: stored, older.id: older})
        )
        both = {each.id: each for each in (stored, older, today)}
        assert only_row(ranked_record, both).batch_certificate == today.id
        assert only_row(ranked_record, both).reason is None
    named = name_batch(covered_record, older)
    assert {older.id, today.id} < {*certificate.find_certificate_ids(named, both)}


def test_a_difference_by_an_earlier_rule_counts_until_the_batch_is_verified_again(build_covered):
    covered_record, stored = build_covered()
    older = build_batch_certificate(covered_record, "different", "wrong at conv2", rule=1)
    today = build_batch_certificate(covered_record)
    for ranked_record in (covered_record, name_batch(covered_record, older)):
        row = only_row(ranked_record, {stored.id: stored, older.id: older})
        assert row.reason == "verified as different: wrong at conv2"
        everything = {each.id: each for each in (stored, older, today)}
        assert only_row(ranked_record, everything).reason is None


@pytest.mark.parametrize("change", [{"batch_size": 999}, {"threads": 99}])
def test_a_certificate_of_another_batch_covers_nothing(build_covered, change):
    covered_record, stored = build_covered()
    batch = build_batch_certificate(covered_record, **change)
    both = {stored.id: stored, batch.id: batch}
    assert only_row(covered_record, both).is_proven_at_small_batches
    reason = only_row(name_batch(covered_record, batch), both).reason
    assert reason.startswith("the certificate is for ")
    assert str(next(iter(change.values()))) in reason


@pytest.mark.parametrize("name", ["certificate", "batch_certificate"])
def test_a_record_cannot_name_a_certificate_of_the_other_kind(build_covered, name):
    covered_record, stored = build_covered()
    batch = build_batch_certificate(covered_record)
    wrong_id = batch.id if name == "certificate" else stored.id
    named = covered_record.model_copy(update={"certificate": stored.id, name: wrong_id})
    reason = only_row(named, {stored.id: stored, batch.id: batch}).reason
    assert reason == "the record names a certificate of another kind"


def test_a_batch_certificate_that_is_missing_or_alone_gives_no_rank(build_covered):
    covered_record, stored = build_covered()
    batch = build_batch_certificate(covered_record)
    named = name_batch(covered_record, batch)
    assert "not in the results folder" in only_row(named, {stored.id: stored}).reason
    unnamed = covered_record.model_copy(update={"certificate": None})
    assert only_row(unnamed, {batch.id: batch}).reason == NO_CERTIFICATE


@pytest.mark.parametrize(
    "field", ["adapter_digest", "environment_digest", "kernel", "accelerators"]
)
def test_a_later_certificate_of_another_subject_covers_nothing(build_covered, field):
    value = ("NVIDIA K40",) if field == "accelerators" else "sha256:" + "9" * 64
    covered_record, stored = build_covered(**{field: value})
    unverified = covered_record.model_copy(update={"certificate": None})
    assert only_row(unverified, {stored.id: stored}).reason == NO_CERTIFICATE


def test_missing_certificate_file_gives_no_rank(build_covered):
    covered_record, _ = build_covered()
    assert "not in the results folder" in only_row(covered_record, {}).reason


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workload_digest", "sha256:" + "9" * 64),
        ("adapter_digest", "sha256:" + "9" * 64),
        ("environment_digest", "sha256:" + "9" * 64),
        ("kernel", "other"),
        ("device", "cuda"),
        ("precision", "float64"),
        ("ranks", 4),
        ("strategy", "ddp"),
        ("framework", "other"),
        ("workload", "other"),
        ("microarchitecture", "another machine kind"),
        ("accelerators", ("NVIDIA K40",)),
    ],
)
def test_certificate_with_any_changed_field_gives_no_rank(build_covered, field, value):
    covered_record, stored = build_covered(**{field: value})
    reason = only_row(covered_record, {stored.id: stored}).reason
    assert f"the certificate is for another {field.replace('_', ' ')}" in reason


def test_edited_certificate_is_refused_with_the_reason(build_covered, tmp_path):
    covered_record, stored = build_covered()
    path = tmp_path / "certificates" / f"{stored.id[7:]}.json"
    stored.write(path)
    assert certificate.read_certificates(tmp_path) == {stored.id: stored}
    document = json.loads(path.read_text())
    document["subject"]["kernel"] = "numpy2"
    path.write_text(json.dumps(document))
    with pytest.raises(CertificateError, match="was edited"):
        certificate.read(path)
    assert "was edited" in only_row(covered_record, certificate.read_certificates(tmp_path)).reason


@pytest.mark.parametrize(("device", "is_used"), [("cuda", True), ("cpu", False)])
def test_cached_certificate_that_lists_every_gpu_is_used(
    cell, tmp_path, monkeypatch, device, is_used
):
    request = cell(device=device).request(1)
    session = Session(LaunchContext(Store(tmp_path / "results")))
    session.prepare([request.framework])
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    machine = describe_machine().model_copy(update={"accelerators": (V100,)})
    environment = session.context.environments[request.framework]
    subject = certify.build_subject(request, environment, machine)
    earlier = build_certificate(subject.model_copy(update={"accelerators": (V100,) * 4}))
    earlier.write(tmp_path / "home" / "certificates" / f"{earlier.subject.key}.json")
    cached = certify.find_cached_certificate(subject)
    assert (cached and cached.id) == (earlier.id if is_used else None)


def test_cached_older_certificate_is_used_unchanged(cell, tmp_path, monkeypatch):
    """An older certificate has fewer fields, and its id covers only those."""
    request = cell().request(1)
    session = Session(LaunchContext(Store(tmp_path / "results")))
    session.prepare([request.framework])
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "home"))
    subject = certify.build_subject(request, session.context.environments[request.framework])
    older_id = write_older_certificate(build_certificate(subject), tmp_path / "home")
    certify.attach_cached_certificate(request, session.context)
    [copied] = certificate.read_certificates(session.context.store.folder).values()
    assert copied.id == older_id == session.context.certificates[certified_fields(request)]
    assert copied.subject == subject


def test_edited_certificate_with_a_recomputed_id_is_refused(build_covered, tmp_path):
    covered_record, stored = build_covered(kernel="other")
    forged = stored.model_copy(update={"subject": build_record_certificate(covered_record).subject})
    forged = forged.model_copy(update={"id": forged.computed_id()})
    forged.write(tmp_path / "certificates" / f"{stored.id[7:]}.json")  # the original name
    reason = only_row(covered_record, certificate.read_certificates(tmp_path)).reason
    assert reason == f"{stored.id[7:]}.json has the content of {forged.id}"


def test_invalid_certificate_file_is_reported(build_covered, tmp_path):
    covered_record, stored = build_covered()
    path = tmp_path / "certificates" / f"{stored.id[7:]}.json"
    path.parent.mkdir()
    path.write_text('{"schema": "xfbench.certificate/1"')
    assert (
        "is not a certificate"
        in only_row(covered_record, certificate.read_certificates(tmp_path)).reason
    )


def test_verdict_different_gives_no_rank(build_covered):
    covered_record, stored = build_covered()
    different = stored.model_copy(update={"verdict": "different"})
    assert "different" in only_row(covered_record, {stored.id: different}).reason
