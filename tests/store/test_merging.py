"""Merging: records are merged by content, with certificates and runs, and it is idempotent."""

import hashlib
import json
import stat

import pytest

from tests.sample_records import make_certified_record
from xfbench.store import merging, pack
from xfbench.store.results_folder import Store


@pytest.fixture
def make_results(tmp_path, record):
    """Return a function that makes a results folder of records with these launch numbers."""

    def make_store(name, launches, **fields):
        new_store = Store(tmp_path / name)
        new_store.create_and_check_folders()
        for launch in launches:
            run = new_store.create_run_folder()
            (run / "stdout").write_text(f"launch {launch}")
            new_store.add(record(steps=(0.1 + launch / 100,), launch=launch, fields=fields), run)
        return new_store

    return make_store


def read_files(store):
    files = {}
    for path in store.folder.rglob("*"):
        is_note = path.parent.name == "origins"
        if path.is_file() and not is_note and path.name not in ("README", "lock"):
            files[path.relative_to(store.folder)] = path.read_bytes()
    return files


def merge_stores(sources, target):
    complaints = []
    return (*merging.merge_stores(sources, target, complaints.append), complaints)


def test_merge_copies_records_with_runs_and_is_idempotent(make_results, tmp_path):
    first, second = make_results("a", (1, 2, 3)), make_results("b", (4, 5))
    target = Store(tmp_path / "all")
    assert merge_stores([first, second], target) == (5, 0, [])
    assert read_files(target) == {**read_files(first), **read_files(second)}
    merged_files = read_files(target)
    assert merge_stores([first, second, target], target) == (0, 5, [])
    assert read_files(target) == merged_files


def test_merge_reads_packs_and_skips_packed_records(make_results, tmp_path):
    first, target = make_results("a", (1, 2, 3)), make_results("all", ())
    single = read_files(first)
    first.pack()
    assert merge_stores([first], target) == (3, 0, [])
    records = {path: text for path, text in single.items() if path.parts[0] == "records"}
    for path, text in records.items():
        assert json.loads(read_files(target)[path]) == json.loads(text)
    target.pack()
    assert merge_stores([first], target) == (0, 3, [])
    assert not list(target.record_files())


def test_merge_copies_only_certificates_of_its_records(make_results, tmp_path, record):
    certified_record, certificate = make_certified_record(record)
    source, target = make_results("a", ()), Store(tmp_path / "all")
    source.add(certified_record)
    certificate.write(source.certificate_path(certificate.id))
    unrelated = certificate.model_copy(update={"seed": 9})
    unrelated = unrelated.model_copy(update={"id": unrelated.computed_id()})
    unrelated.write(source.certificate_path(unrelated.id))
    assert merge_stores([source], target) == (1, 0, [])
    path = target.certificate_path(certificate.id)
    assert path.read_bytes() == source.certificate_path(certificate.id).read_bytes()
    assert not target.certificate_path(unrelated.id).exists()


def test_damaged_records_and_certificates_are_not_merged(make_results, tmp_path, record):
    certified_record, certificate = make_certified_record(record)
    source, target = make_results("a", (1, 2)), Store(tmp_path / "all")
    source.add(certified_record)
    certificate.write(source.certificate_path(certificate.id))
    path = source.certificate_path(certificate.id)
    path.write_text(path.read_text().replace('"equal"', '"different"'))
    edited_path = next(
        path for path in source.record_files() if path.stem != certified_record.id[7:]
    )
    edited_path.write_text(edited_path.read_text().replace('"ok"', '"failed"'))
    added_count, duplicate_count, complaints = merge_stores([source], target)
    assert (added_count, duplicate_count) == (2, 0)
    assert any(edited_path.name in line for line in complaints)
    assert any("was edited" in line for line in complaints)
    assert not target.certificate_path(certificate.id).exists()
    assert not target.record_path(edited_path.stem).exists()


def test_a_certificate_that_is_replaced_while_it_is_copied_is_left_out(
    make_results, tmp_path, record, monkeypatch
):
    certified_record, certificate_file = make_certified_record(record)
    source, target = make_results("a", ()), Store(tmp_path / "all")
    source.add(certified_record)
    path = source.certificate_path(certificate_file.id)
    certificate_file.write(path)
    read = merging.certificate.read_certificates

    def read_then_replace(folder):
        certificates = read(folder)
        path.write_text("{}")
        return certificates

    monkeypatch.setattr(merging.certificate, "read_certificates", read_then_replace)
    new_count, _, [complaint] = merge_stores([source], target)
    assert new_count == 1 and path.name in complaint
    assert not target.certificate_path(certificate_file.id).exists()


def test_links_in_a_run_are_not_followed(make_results, tmp_path):
    source, target = make_results("a", (1,)), Store(tmp_path / "all")
    (tmp_path / "secret").write_text("secret")
    [record] = source.records()
    (source.run_folder(record) / "link").symlink_to(tmp_path / "secret")
    merge_stores([source], target)
    assert [path.name for path in target.run_folder(record).iterdir()] == ["stdout"]


def test_a_run_folder_that_is_a_link_is_not_followed(make_results, tmp_path):
    source, target = make_results("a", (1,)), Store(tmp_path / "all")
    [record] = source.records()
    run = source.run_folder(record)
    run.rename(tmp_path / "elsewhere")
    run.symlink_to(tmp_path / "elsewhere")
    assert merge_stores([source], target) == (1, 0, [])
    assert not target.run_folder(record).exists()


def test_existing_run_folder_is_left_unchanged(make_results, tmp_path):
    source, target = make_results("a", (1,)), make_results("all", ())
    [record] = source.records()
    target.run_folder(record).mkdir()
    (target.run_folder(record) / "stdout").write_text("kept")
    assert merge_stores([source], target) == (1, 0, [])
    assert [path.name for path in target.run_folder(record).iterdir()] == ["stdout"]
    assert (target.run_folder(record) / "stdout").read_text() == "kept"


def test_merged_runs_share_only_their_worker_and_nothing_with_the_source(make_results, tmp_path):
    source, target = make_results("a", (1, 2)), Store(tmp_path / "all")
    for record in source.records():
        run = source.run_folder(record)
        (run / "worker.pyz").write_bytes(b"archive")
        (run / "command.sh").write_text("exit")
        (run / "command.sh").chmod(0o6755)
    merge_stores([source], target)
    first, second = (target.run_folder(record) for record in source.records())
    assert (first / "worker.pyz").samefile(second / "worker.pyz")
    for path in (*first.iterdir(), *second.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        links = 2 if path.name == "worker.pyz" else 1
        assert path.stat().st_nlink == links, "the source has no name of it"
        assert path.read_bytes() == (source.folder / path.relative_to(target.folder)).read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda rest: rest[:-1] + b',"id":"sha256:' + b"ab" * 32 + b'"}',
        lambda rest: rest.replace(b'"ok"', b'"ok" ', 1),
        lambda rest: rest[:-1] + b',"extra":NaN}',
        lambda rest: rest[:-1] + b',"extra":' + b"9" * 4200 + b"}",
    ],
    ids=["second id", "not canonical", "not a number", "long number"],
)
@pytest.mark.parametrize("as_folder", [False, True])
def test_a_hostile_line_of_a_pack_is_not_stored(record, tmp_path, change, as_folder):
    """Its digest is right, but not that of the record that would be stored."""
    rest = change(b"{" + pack.format_line(record().document())[80:].rstrip())
    identity = hashlib.sha256(rest).hexdigest()
    name = hashlib.sha256(f"{identity}\n".encode()).hexdigest()
    packs = tmp_path / "given" / "packs"
    packs.mkdir(parents=True)
    file = packs / f"{name}.ndjson"
    file.write_bytes(f'{{"id":"sha256:{identity}",'.encode() + rest[1:] + b"\n")
    target, complaints = Store(tmp_path / "target"), []
    if as_folder:
        counts = merging.merge_stores([Store(packs.parent)], target, complaints.append)
    else:
        counts = merging.import_pack(file, target, complaints.append)
    assert counts == (0, 0) and len(complaints) == 1
    assert not list(target.record_files())
