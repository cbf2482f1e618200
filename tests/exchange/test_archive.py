"""Archives: what goes in comes out, and nothing else gets in."""

import io
import json
import subprocess
import tarfile

import pytest

from tests import sample_records
from tests.sample_records import make_certified_record
from xfbench.base import digests
from xfbench.base.errors import UsageError
from xfbench.exchange import archive, audit
from xfbench.exchange.archive import ArchiveError
from xfbench.host.machine import describe_machine
from xfbench.model import certificate
from xfbench.model.certificate import Certificate
from xfbench.store import merging
from xfbench.store.results_folder import Store


@pytest.fixture
def store(tmp_path, record):
    """Five records, one of them certified."""
    new_store = Store(tmp_path / "results")
    new_store.create_and_check_folders()
    for launch in range(1, 5):
        new_store.add(record(steps=(0.1 + launch / 100,), launch=launch))
    certified_record, certificate = make_certified_record(record)
    new_store.add(certified_record)
    certificate.write(new_store.certificate_path(certificate.id))
    return new_store


def export_all(store, target):
    pairs = sorted(((p, r) for r, p, _ in store.contents()), key=lambda pair: pair[1].id)
    archive.write_archive(target, pairs, store)
    return target


def import_into(source, target):
    complaints = []
    return (*archive.import_archive(source, target, complaints.append), complaints)


@pytest.mark.parametrize("name", ["all.tar", "all.tar.gz", "all.tgz"])
def test_export_and_import_keep_records_and_are_idempotent(store, tmp_path, name):
    source, target = export_all(store, tmp_path / name), Store(tmp_path / "there")
    assert import_into(source, target) == (5, 0, [])
    for folder in ("records", "certificates"):
        for path in (store.folder / folder).rglob("*.json"):
            imported_path = target.folder / path.relative_to(store.folder)
            assert imported_path.read_bytes() == path.read_bytes()
    assert import_into(source, target) == (0, 5, [])
    second_export = export_all(target, tmp_path / f"again-{name}")
    assert second_export.read_bytes() == source.read_bytes()


def test_export_takes_the_certificate_that_covers_a_record_which_names_none(record, tmp_path):
    store, target = Store(tmp_path / "results"), Store(tmp_path / "there")
    store.create_and_check_folders()
    certified_record, proof = make_certified_record(record)
    proof.write(store.certificate_path(proof.id))
    unverified = sample_records.vary_record(
        certified_record, cell=certified_record.cell, certificate=None
    )
    store.add(unverified)
    assert import_into(export_all(store, tmp_path / "all.tar"), target) == (1, 0, [])
    assert target.certificate_path(proof.id).is_file()
    merged = Store(tmp_path / "merged")
    merging.merge_stores([target], merged, pytest.fail)
    assert merged.certificate_path(proof.id).is_file()


def test_export_and_merge_take_the_certificate_of_the_timed_batch(record, tmp_path):
    store, target = Store(tmp_path / "results"), Store(tmp_path / "there")
    store.create_and_check_folders()
    certified_record, proof = make_certified_record(record)
    batch = sample_records.build_batch_certificate(certified_record)
    for each in (proof, batch):
        each.write(store.certificate_path(each.id))
    store.add(
        sample_records.vary_record(
            certified_record, cell=certified_record.cell, batch_certificate=batch.id
        )
    )
    assert import_into(export_all(store, tmp_path / "all.tar"), target) == (1, 0, [])
    merged = Store(tmp_path / "merged")
    merging.merge_stores([target], merged, pytest.fail)
    for copy in (target, merged):
        assert {*certificate.read_certificates(copy.folder)} == {proof.id, batch.id}
        _, defects = audit.validate_results(copy.folder)
        assert not defects
        copy.certificate_path(batch.id).unlink()
        _, defects = audit.validate_results(copy.folder)
        assert [defect.detail for defect in defects] == [f"{batch.id} is missing"]


def test_export_takes_the_certificate_that_speaks_against_a_record(record, tmp_path):
    store, target = Store(tmp_path / "results"), Store(tmp_path / "there")
    store.create_and_check_folders()
    certified_record, equal = make_certified_record(record)
    different = Certificate.make(
        **{**equal.model_dump(exclude={"id", "verdict", "schema_"}), "verdict": "different"}
    )
    for each in (equal, different):
        each.write(store.certificate_path(each.id))
    store.add(
        sample_records.vary_record(certified_record, cell=certified_record.cell, certificate=None)
    )
    assert import_into(export_all(store, tmp_path / "all.tar"), target) == (1, 0, [])
    merged = Store(tmp_path / "merged")
    merging.merge_stores([target], merged, pytest.fail)
    for copy in (target, merged):
        certificates = certificate.read_certificates(copy.folder)
        assert [each.verdict for each in certificates.values()] == ["different"]


def test_packed_records_are_exported_like_single_records(store, tmp_path):
    store.pack()
    target = Store(tmp_path / "there")
    assert import_into(export_all(store, tmp_path / "all.tar"), target) == (5, 0, [])
    assert {record.id for record in target.records()} == {record.id for record in store.records()}


def test_archive_is_a_plain_tar_with_a_digest_manifest(store, tmp_path):
    with tarfile.open(export_all(store, tmp_path / "all.tar.gz")) as tar:
        files = {tar_member.name: tar.extractfile(tar_member).read() for tar_member in tar}
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["schema"] == "xfbench.archive/1"
    assert {name: entry["digest"] for name, entry in manifest["files"].items()} == {
        name: digests.of_bytes(content) for name, content in files.items()
    }
    assert len(files) == 6


def make_member(name, content=b"{}", **fields):
    header = tarfile.TarInfo(name)
    header.size = len(content)
    for key, value in fields.items():
        setattr(header, key, value)
    return header, content


NAME = f"records/{'ab' * 32}.json"
HOSTILE_MEMBERS = {
    "an absolute path": ("does not belong", [make_member("/etc/passwd")]),
    "a way out": ("does not belong", [make_member("../../evil.json")]),
    "a way out from inside": ("does not belong", [make_member(f"records/../{'ab' * 32}.json")]),
    "a link": (
        "not a regular file",
        [make_member(NAME, b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")],
    ),
    "a hard link": (
        "not a regular file",
        [make_member(NAME, b"", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
    ),
    "a device": ("not a regular file", [make_member(NAME, b"", type=tarfile.CHRTYPE)]),
    "a folder": ("not a regular file", [make_member("records", b"", type=tarfile.DIRTYPE)]),
    "another file": ("does not belong", [make_member("runs/x/command.sh")]),
    "a name twice": ("occurs twice", [make_member(NAME), make_member(NAME)]),
    "too large a file": ("exceeds", [make_member(NAME, b"x" * 512, size=2**32)]),
    "an empty file": ("is empty", [make_member(NAME, b"")]),
    "a manifest of many lists": (
        "has more than 16 values",
        [make_member(NAME), make_member("manifest.json", b"[" + b"[]," * 1000 + b"[]]")],
    ),
    "a manifest beyond its members": (
        "exceeds",
        [make_member(NAME), make_member("manifest.json", b" " * (2**20 + 1000))],
    ),
    "no manifest": ("not a complete archive", [make_member(NAME)]),
    "a manifest of nothing": (
        "not a complete archive",
        [make_member(NAME), make_member("manifest.json", b'{"files": {}}')],
    ),
    "a manifest that is none": ("not a complete archive", [make_member("manifest.json", b"[[[")]),
    "a manifest of another kind": ("not a complete archive", [make_member("manifest.json", b"[]")]),
    "a name that is hostile": ("does not belong", [make_member("records/\x1b[31m\u202e.json")]),
}


@pytest.mark.parametrize("kind", HOSTILE_MEMBERS)
def test_hostile_archive_is_refused_and_leaves_no_files(tmp_path, kind):
    source = tmp_path / "evil.tar"
    message_pattern, members = HOSTILE_MEMBERS[kind]
    with tarfile.open(source, "w") as tar:
        for header, content in members:
            if header.size == len(content):
                tar.addfile(header, io.BytesIO(content))
            else:
                tar.fileobj.write(header.tobuf() + content)
    with pytest.raises(ArchiveError, match=message_pattern) as error:
        import_into(source, Store(tmp_path / "there"))
    assert not {"\x1b", "\u202e"} & set(str(error.value))
    assert not (tmp_path / "there").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.tar"]


def test_manifest_has_a_limit_however_many_members_there_are(store, tmp_path, monkeypatch):
    source = export_all(store, tmp_path / "all.tar")
    monkeypatch.setattr(archive, "_MAX_MANIFEST_BYTES", 1000)
    with pytest.raises(ArchiveError, match=r"manifest\.json' exceeds the limits"):
        import_into(source, Store(tmp_path / "there"))


def test_archive_that_no_reader_would_accept_is_not_written(store, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "_MAX_FILES", 2)
    with pytest.raises(UsageError, match="can have at most 2 files"):
        export_all(store, tmp_path / "all.tar")
    assert not (tmp_path / "all.tar").exists()


@pytest.mark.parametrize("name", ["all.tar", "all.tar.gz"])
def test_truncated_archive_is_refused_and_leaves_no_files(store, tmp_path, name):
    source = export_all(store, tmp_path / name)
    content = source.read_bytes()
    if name == "all.tar":  # up to 10 kB of zeros after the last member may be missing
        content = content.rstrip(b"\0")
    for fraction in (0.0, 0.01, 0.3, 0.6, 0.8):
        source.write_bytes(content[: int(fraction * len(content))])
        with pytest.raises(ArchiveError):
            import_into(source, Store(tmp_path / "there"))
        assert not (tmp_path / "there").exists()


def test_record_edited_before_export_is_reported_and_skipped(store, tmp_path):
    pairs = [(place, record) for record, place, _ in store.contents()]
    path = pairs[0][0].path
    path.write_text(path.read_text().replace('"ok"', '"failed"'))
    archive.write_archive(tmp_path / "all.tar", pairs, store)
    added_count, duplicate_count, complaints = import_into(
        tmp_path / "all.tar", Store(tmp_path / "there")
    )
    assert (added_count, duplicate_count) == (4, 0)
    assert len(complaints) == 1 and path.name in complaints[0]


def test_a_certificate_under_another_id_is_reported_and_skipped(record, tmp_path):
    _, certificate = make_certified_record(record)
    certificate.write(tmp_path / "certificate.json")
    content = (tmp_path / "certificate.json").read_bytes()
    name = f"certificates/{'ab' * 32}.json"
    entry = {"bytes": len(content), "digest": digests.of_bytes(content)}
    manifest = json.dumps({"schema": archive.SCHEMA, "files": {name: entry}}).encode()
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        for header, data in (make_member(name, content), make_member("manifest.json", manifest)):
            tar.addfile(header, io.BytesIO(data))
    target = Store(tmp_path / "there")
    added_count, duplicate_count, complaints = import_into(tmp_path / "all.tar", target)
    assert (added_count, duplicate_count, len(complaints)) == (0, 0, 1)
    assert name in complaints[0]
    assert not (target.folder / name).exists()


def test_tar_header_with_an_impossible_size_is_refused(tmp_path):
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 2**33 - 512
    (tmp_path / "evil.tar").write_bytes(header.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 10240)
    with pytest.raises(ArchiveError, match="invalid size"):
        import_into(tmp_path / "evil.tar", Store(tmp_path / "there"))


def test_a_compressed_archive_has_no_time_or_name_in_its_header(store, tmp_path):
    header = export_all(store, tmp_path / "all.tar.gz").read_bytes()[:10]
    assert header[:3] == b"\x1f\x8b\x08"
    assert header[3] == 0  # no flags: neither a file name nor a comment (RFC 1952)
    assert header[4:8] == b"\0\0\0\0"  # the modification time


def test_certificates_are_in_the_order_of_their_ids(tmp_path, record):
    """A set's order is another in every process: six are hardly ever in order by chance."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    launches = [
        record(
            kernel=kernel,
            fields={"software": sample_records.SOFTWARE, "machine": describe_machine()},
        )
        for kernel in "abcdef"
    ]
    records, certificates = sample_records.certify_records(launches)
    for certified_record in records:
        store.add(certified_record)
    for certified_record in certificates.values():
        certified_record.write(store.certificate_path(certified_record.id))
    with tarfile.open(export_all(store, tmp_path / "all.tar")) as tar:
        names = [name for name in tar.getnames() if name.startswith("certificates/")]
    assert len(names) == len(certificates) == 6
    assert names == sorted(names)


def test_an_archive_of_too_many_bytes_in_all_is_refused(store, tmp_path, monkeypatch):
    source, target = export_all(store, tmp_path / "all.tar"), Store(tmp_path / "there")
    with tarfile.open(source) as tar:
        # With headers, and in whole blocks.
        sizes = [512 + -(-tar_member.size // 512) * 512 for tar_member in tar]
    monkeypatch.setattr(archive, "_MAX_BYTES", sum(sizes) - 1)
    with pytest.raises(ArchiveError, match="exceeds the limits of such an archive"):
        import_into(source, target)
    assert not target.folder.exists()
    monkeypatch.setattr(archive, "_MAX_BYTES", sum(sizes))
    assert import_into(source, target) == (5, 0, [])


def test_an_unpacked_archive_says_how_to_pack_it_again(store, tmp_path, run_inline):
    folder = tmp_path / "un packed"
    with tarfile.open(export_all(store, tmp_path / "all.tar")) as tar:
        tar.extractall(folder, filter="data")
    (folder / "records" / "._x.json").write_bytes(b"\0\5\x16\7")
    outcome = run_inline("results", "import", folder, "--results", tmp_path / "there")
    assert outcome.returncode == 2 and "is an unpacked archive" in outcome.stderr
    command = outcome.stderr.partition("pack it again: ")[2].strip()
    subprocess.run(command, shell=True, check=True)
    source = tmp_path / "records.tar"
    outcome = run_inline("results", "import", source, "--results", tmp_path / "there")
    assert outcome.stdout.startswith("5 records imported")


def test_hidden_files_of_other_tools_are_no_records(store, run_inline):
    [first, *_] = store.record_files()
    for file in (first, *(store.folder / "certificates").glob("*.json")):
        file.with_name(f"._{file.name}").write_bytes(b"\0\5\x16\7")
    for words in (("list",), ("validate", store.folder)):
        options = () if words[0] == "validate" else ("--results", store.folder)
        outcome = run_inline("results", *words, *options)
        assert "._" not in outcome.stdout + outcome.stderr
