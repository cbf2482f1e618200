"""Exports of documents of earlier versions, which name people, folders and programs."""

import json
import tarfile

import pytest

from tests.sample_records import SOFTWARE, build_certificate, build_record_certificate, build_tuning
from xfbench.base import digests
from xfbench.exchange import archive, exporting, submission
from xfbench.host.machine import describe_machine
from xfbench.model.certificate import Certificate
from xfbench.model.record import Record
from xfbench.store import merging
from xfbench.store.results_folder import Store

USER, PROGRAM = "quetzalcoatl", "xolotl"
TEXT = f"{USER} has /scratch/{USER}/a and /home/alice/b"
CONDITIONS = {
    **{"load_before": 0.1, "load_after": 0.2, "steal_seconds": 0.0, "swap_bytes": 0},
    "competing": [{"name": PROGRAM, "cpus": 0.5, "pid": 7}],
    "accelerator_processes": [PROGRAM],
}


@pytest.fixture(autouse=True)
def _user(monkeypatch):
    monkeypatch.setenv("USER", USER)


def write_sealed(path_of, document):
    """Write a document with the id that its content needs; return the id."""
    document = {key: value for key, value in document.items() if key != "id"}
    document["id"] = digests.of_json(document)
    path = path_of(document["id"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1))
    return document["id"]


@pytest.fixture
def store(tmp_path, record):
    """A results folder of an earlier version: a record, its certificate, and a search."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    draft = record(steps=(0.1, 0.11), fields={"machine": describe_machine(), "software": SOFTWARE})
    certificate = build_certificate(build_record_certificate(draft).subject, finding=TEXT)
    proof = certificate.document() | {"finding": TEXT, "verdict": "different"}
    certificate_id = write_sealed(store.certificate_path, proof)
    reason = f"the GPU was shared with {PROGRAM} (pid 7), see {TEXT}"
    document = draft.document() | {"certificate": certificate_id, "conditions": CONDITIONS}
    document |= {"status": "invalid", "reason": reason}
    record_id = write_sealed(lambda identity: store.record_path(identity[7:]), document)
    search = build_tuning(draft.request.cell(), draft.request.cell(), records=(record_id,))
    document = search.document() | {"default_reason": TEXT}
    write_sealed(lambda identity: tmp_path / "results/tuned" / f"{identity[7:]}.json", document)
    return store


def export(store, target):
    pairs = [(place, record) for record, place, _ in store.contents()]
    return exporting.choose_file_writer(target)(target, pairs, store, print)


def list_found(contents):
    return [text for text in (USER, "alice", PROGRAM, "pid 7", '"pid": 7') if text in contents]


def test_exported_copies_have_no_private_names(store, tmp_path):
    assert export(store, tmp_path / "all.tar") == 1
    with tarfile.open(tmp_path / "all.tar") as tar:
        contents = {name: tar.extractfile(name).read().decode() for name in tar.getnames()}
    assert [name.split("/")[0] for name in contents] == [
        *("records", "certificates", "tuned", "manifest.json")
    ]
    assert list_found("".join(contents.values())) == []
    by_kind = {name.split("/")[0]: json.loads(text) for name, text in contents.items()}
    record = by_kind["records"]
    assert record["reason"] == "the GPU was shared with another process, see … has …/a and …/b"
    [competitor] = record["conditions"]["competing"]
    assert competitor == {"name": "another process", "cpus": 0.5, "pid": None}
    assert record["certificate"] == by_kind["certificates"]["id"]
    assert by_kind["tuned"]["records"] == [record["id"]]


def test_exported_tables_and_submissions_have_no_private_names(store, tmp_path):
    export(store, tmp_path / "rows.csv")
    assert list_found((tmp_path / "rows.csv").read_text()) == []
    pairs = [(place, record) for record, place, _ in store.contents()]
    assert submission.write_submission(tmp_path / "given", pairs, store, print) == 1
    files = [path for path in (tmp_path / "given").rglob("*") if path.is_file()]
    assert {"certificates", "records"} <= {path.parts[-2] for path in files} | {
        path.parts[-3] for path in files
    }
    assert list_found("".join(path.read_text() for path in files)) == []


def test_copies_are_valid_and_do_not_come_back_to_their_originals(store, tmp_path):
    export(store, tmp_path / "all.tar")
    there = Store(tmp_path / "there")
    assert archive.import_archive(tmp_path / "all.tar", there, print) == (1, 0)
    [copy] = there.records()
    certificate_path = there.certificate_path(copy.certificate)
    assert Certificate.read(certificate_path.read_bytes()).id == copy.certificate
    assert archive.import_archive(tmp_path / "all.tar", store, print) == (0, 1)
    assert merging.merge_stores([there], store, print) == (0, 1)
    assert len([*store.records()]) == 1


def test_documents_without_private_names_are_exported_as_they_are(store, tmp_path, record):
    clean = Store(tmp_path / "clean")
    clean.create_and_check_folders()
    clean.add(record(steps=(0.1, 0.11)))
    export(clean, tmp_path / "all.tar")
    [stored] = clean.record_files()
    with tarfile.open(tmp_path / "all.tar") as tar:
        assert tar.extractfile(tar.getnames()[0]).read() == stored.read_bytes()
    assert not (clean.folder / "copies.json").exists()


def test_name_in_the_settings_is_reported_and_stays(tmp_path, record):
    store, messages = Store(tmp_path / "results"), []
    store.create_and_check_folders()
    for launch in (1, 2):
        store.add(record(steps=(0.1, 0.11), launch=launch, data=f"{USER}-digits"))
    pairs = [(place, record) for record, place, _ in store.contents()]
    archive.write_archive(tmp_path / "all.tar", pairs, store, messages.append)
    assert messages == [
        "request.data is 'quetzalcoatl-digits', which names you: it is part of the settings"
    ]


def test_new_documents_have_no_private_names(record):
    document = record(fields={"reason": TEXT, "status": "failed"}).document()
    assert document["reason"] == "… has …/a and …/b"
    assert Record.model_validate(document).computed_id() == document["id"]
