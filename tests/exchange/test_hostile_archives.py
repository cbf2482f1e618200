"""200 archives of results that mean no good, made by chance from a seed, are taken in one by one.

None writes outside of the results folder, starts anything, or has a row with a rank.
"""

import copy
import gzip
import io
import json
import pickle
import random
import re
import stat
import sys
import tarfile

import pytest

from tests.sample_records import make_certified_record
from xfbench.analysis import leaderboard
from xfbench.base import digests
from xfbench.exchange import archive
from xfbench.exchange.archive import ArchiveError
from xfbench.model import certificate
from xfbench.rendering import tables
from xfbench.store.results_folder import Store

ARCHIVE_COUNT = 200
ALLOWED_FILE = re.compile(
    r"README|records/[0-9a-f]{2}/[0-9a-f]{64}\.json|(certificates|origins)/[0-9a-f]{64}\.json"
)
PROCESS_START_EVENTS = (
    "subprocess.Popen",
    "os.posix_spawn",
    "os.fork",
    "os.exec",
    "os.system",
    "os.startfile",
)
FAKE_DIGEST = "ab" * 32
MEMBER_NAMES = [
    *("../evil.json", "../../evil.json", "/tmp/evil.json", "~/.bashrc", "./records/../evil"),
    *(f"records/../../{FAKE_DIGEST}.json", f"records/{FAKE_DIGEST}.json/../../evil", "records/"),
    *(
        f"./records/{FAKE_DIGEST}.json",
        f"records//{FAKE_DIGEST}.json",
        f"records/{FAKE_DIGEST.upper()}.json",
    ),
    *(f"certificates/{FAKE_DIGEST}.json/x", "manifest.json/x", "lock", "index.duckdb", "README"),
    *("runs/x/command.sh", "packs/x.jsonl.gz", "tuned/x.json", "C:\\evil.json", "$(touch evil)"),
    *(f"records/{FAKE_DIGEST}.json\n", "records/\x1b[2J\u202e.json", "records/" + "x" * 5000, ""),
]
MEMBER_TYPES = [
    *(tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE),
    *(tarfile.DIRTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, b"Z"),
]
LINK_TARGETS = ["/etc/passwd", "../outside", "../../outside/kept", "records", "."]
PAX_HEADERS = [
    *({"path": "../../evil"}, {"linkpath": "/etc/passwd"}, {"size": "-1"}, {"size": str(2**62)}),
    *({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, {"GNU.sparse.size": str(2**50)}),
    *({"GNU.sparse.map": "0,1,2"}, {"hdrcharset": "BINARY"}, {"mtime": "nan"}, {"uid": "x"}),
]


class MaliciousPickle:
    """What a pickle would run."""

    def __reduce__(self):
        return (open, ("evil", "w"))


CONTENTS = [
    *(b"", b"{}", b"[]", b"null", b"NaN", b"[" * 10**5, b'{"schema": ' * 10**4, b"\xff\xfe{}"),
    *(
        pickle.dumps(MaliciousPickle()),
        b"!!python/object/apply:os.system ['touch evil']",
        b"\0" * 10**6,
    ),
    *(
        b'{"id": 1e999}',
        b'{"id": 1180591620717411303424}',
        b'"' + b"x" * 10**6 + b'"',
        b"#!/bin/sh\ntouch evil\n",
    ),
]
HOSTILE_TEXTS = [
    *("<script>alert(1)</script>", "=cmd|' /C calc'!A0", "\x1b[2J\u202e", "x" * 10**5, "../evil"),
    *("\0", "$(touch evil)", "\\input{evil}", "'; DROP TABLE records; --"),
]
# Where a record says what its certificate is bound to, or which one that is.
CERTIFICATE_FIELDS = [
    *(("request", name) for name in ("framework", "workload", "kernel", "device", "precision")),
    *(("workload", "digest"), ("machine", "microarchitecture"), ("certificate",)),
    *(("software", name) for name in ("adapter_digest", "environment_digest")),
]


@pytest.fixture
def valid_documents(record):
    """The documents of a record that was proven equal and of its certificate."""
    certified_record, certificate_file = make_certified_record(record)
    return certified_record.document(), certificate_file.document()


@pytest.fixture
def started_processes():
    """Processes that were started meanwhile."""
    events, is_watching = [], True

    def hook(event, _):
        if is_watching and event in PROCESS_START_EVENTS:
            events.append(event)

    sys.addaudithook(hook)
    yield events
    is_watching = False


def iterate_leaf_paths(document, path=()):
    """Where its texts and figures are."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from iterate_leaf_paths(value, (*path, name))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from iterate_leaf_paths(value, (*path, number))
    elif path not in (("id",), ("schema",)):
        yield path


def replace_field(document, path, rng):
    """What stands there says something else."""
    *parents, field = path
    for name in parents:
        document = document[name]
    candidates = [*HOSTILE_TEXTS, 0, -1, 1e300, 2**53 - 1, None, True]
    document[field] = rng.choice(
        [candidate for candidate in candidates if candidate != document[field]]
    )


def with_computed_id(document):
    """With the id that it ought to have."""
    body = {name: value for name, value in document.items() if name != "id"}
    return {**body, "id": digests.of_json(body)}


def iterate_forged_files(valid_documents, rng):
    """A record and a certificate that does not cover it: files, by name."""
    record, forged_certificate = copy.deepcopy(valid_documents)
    if rng.random() < 0.5:
        replace_field(
            forged_certificate, ("subject", rng.choice(list(forged_certificate["subject"]))), rng
        )
        forged_certificate = with_computed_id(forged_certificate)
        record["certificate"] = forged_certificate["id"]
    else:
        replace_field(record, rng.choice(CERTIFICATE_FIELDS), rng)
    if rng.random() < 0.5:
        replace_field(record, rng.choice(list(iterate_leaf_paths(record))), rng)
    if rng.random() < 0.7:
        record = with_computed_id(record)
    for folder, document in (("records", record), ("certificates", forged_certificate)):
        file_stem = document["id"][7:] if rng.random() < 0.9 else FAKE_DIGEST
        content = json.dumps(document, indent=1, ensure_ascii=rng.random() < 0.5)
        yield [tarfile.TarInfo(f"{folder}/{file_stem}.json"), content.encode()]


def build_manifest(members, rng):
    """Of these files, and now and then of others, or none at all."""
    files = {
        header.name: {"bytes": len(content), "digest": digests.of_bytes(content)}
        for header, content in members
    }
    if rng.random() < 0.1:
        files[rng.choice(list(files))] = rng.choice([{}, None, {"digest": 1}])
    valid_content = json.dumps({"schema": archive.SCHEMA, "files": files}).encode()
    content = valid_content if rng.random() < 0.9 else rng.choice(CONTENTS)
    return [tarfile.TarInfo("manifest.json"), content]


def build_hostile_archive(valid_documents, rng):
    """The bytes of one archive."""
    members = list(iterate_forged_files(valid_documents, rng))
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 3])):
        rng.choice(
            [
                rename_member,
                change_member_type,
                replace_content,
                duplicate_member,
                add_pax_headers,
                add_link_and_file,
            ]
        )(rng, members)
    rng.shuffle(members)
    members.insert(rng.randint(0, len(members)), build_manifest(members, rng))
    buffer = io.BytesIO()
    tar_format = rng.choice([tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
    for member, content in members:
        member.size = len(content)
        try:
            header = member.tobuf(tar_format)
        except ValueError:  # a name that this format cannot say
            header = member.tobuf(tarfile.PAX_FORMAT)
        buffer.write(header + content + b"\0" * (-len(content) % 512))
    raw = bytearray(buffer.getvalue() + b"\0" * 1024)
    if rng.random() < 0.1:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    archive_bytes = gzip.compress(bytes(raw), 1) if rng.random() < 0.5 else bytes(raw)
    if rng.random() < 0.1:
        archive_bytes = archive_bytes[: rng.randrange(len(archive_bytes))]
    return archive_bytes + rng.choice([b"", b"", b"", b"\x1f\x8b", b"\0" * 700])


def rename_member(rng, members):
    rng.choice(members)[0].name = rng.choice(MEMBER_NAMES)


def change_member_type(rng, members):
    header, _ = rng.choice(members)
    header.type, header.linkname = rng.choice(MEMBER_TYPES), rng.choice(LINK_TARGETS)
    header.mode = 0o7777


def replace_content(rng, members):
    rng.choice(members)[1] = rng.choice(CONTENTS)


def duplicate_member(rng, members):
    header, content = rng.choice(members)
    members.append([copy.copy(header), rng.choice([content, b"{}"])])


def add_pax_headers(rng, members):
    rng.choice(members)[0].pax_headers = rng.choice(PAX_HEADERS)


def add_link_and_file(rng, members):
    """A link, and a file through it."""
    link = tarfile.TarInfo("records")
    link.type, link.linkname = tarfile.SYMTYPE, rng.choice(LINK_TARGETS)
    members[:0] = [[link, b""], [tarfile.TarInfo(f"records/{FAKE_DIGEST}.json"), b"{}"]]


def snapshot(folder, excluded_folder):
    """Everything below `folder` but what is in `excluded_folder`: names, kinds and contents."""
    return {
        path: path.read_bytes() if path.is_file() else stat.S_IFMT(path.lstat().st_mode)
        for path in folder.rglob("*")
        if not path.is_relative_to(excluded_folder)
    }


def list_ranked_rows(store):
    """Rows with a rank; what else there is can be shown."""
    boards = leaderboard.build_tables(
        list(store.records()), certificate.read_certificates(store.folder)
    )
    tables.to_text(boards)
    return [row for table in boards for row in table.rows]


def test_hostile_archives_cannot_escape_run_code_or_rank(
    valid_documents, tmp_path, started_processes, monkeypatch
):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("as it was")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "outside")
    outcome_counts = {"refused": 0, "taken": 0, "left out": 0}
    source = tmp_path / "evil.tar"
    for seed in range(ARCHIVE_COUNT):
        source.write_bytes(build_hostile_archive(valid_documents, random.Random(seed)))
        before = snapshot(tmp_path, tmp_path / "there")
        target, complaints = Store(tmp_path / "there" / str(seed)), []
        try:
            added_count, _ = archive.import_archive(source, target, complaints.append)
        except ArchiveError as error:
            outcome_counts["refused"] += 1
            assert str(error).isprintable(), seed
            assert not target.folder.exists(), seed
        else:
            outcome_counts["taken"] += bool(added_count)
            outcome_counts["left out"] += bool(complaints)
            for path in target.folder.rglob("*"):
                mode, name = path.lstat().st_mode, str(path.relative_to(target.folder))
                assert stat.S_ISDIR(mode) or ALLOWED_FILE.fullmatch(name), (seed, name)
                assert stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and not mode & 0o7111), seed
            assert list_ranked_rows(target) == [], seed
        assert snapshot(tmp_path, tmp_path / "there") == before, seed
    assert started_processes == []
    assert all(count >= ARCHIVE_COUNT // 20 for count in outcome_counts.values()), outcome_counts


def test_valid_record_gets_a_rank(valid_documents, tmp_path):
    """Else the test above would see nothing."""
    target = Store(tmp_path / "there")
    target.create_and_check_folders()
    record_text, certificate_text = (
        json.dumps(document, indent=1, ensure_ascii=False) + "\n" for document in valid_documents
    )
    for path, content in (
        (target.record_path(valid_documents[0]["id"][7:]), record_text),
        (target.certificate_path(valid_documents[1]["id"]), certificate_text),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert len(list_ranked_rows(target)) == 1
