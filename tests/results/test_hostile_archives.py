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

from tests.results.test_audit import certified
from xfbench.analysis import leaderboard
from xfbench.base import digests
from xfbench.equality import certificate
from xfbench.layout import tables
from xfbench.results import archive
from xfbench.results.archive import ArchiveError
from xfbench.results.store import Store

ARCHIVES = 200
KEPT = re.compile(r"README|records/[0-9a-f]{2}/[0-9a-f]{64}\.json|certificates/[0-9a-f]{64}\.json")
STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system", "os.startfile")
IDENTITY = "ab" * 32
NAMES = [
    *("../evil.json", "../../evil.json", "/tmp/evil.json", "~/.bashrc", "./records/../evil"),
    *(f"records/../../{IDENTITY}.json", f"records/{IDENTITY}.json/../../evil", "records/"),
    *(
        f"./records/{IDENTITY}.json",
        f"records//{IDENTITY}.json",
        f"records/{IDENTITY.upper()}.json",
    ),
    *(f"certificates/{IDENTITY}.json/x", "manifest.json/x", "lock", "index.duckdb", "README"),
    *("runs/x/command.sh", "packs/x.jsonl.gz", "tuned/x.json", "C:\\evil.json", "$(touch evil)"),
    *(f"records/{IDENTITY}.json\n", "records/\x1b[2J\u202e.json", "records/" + "x" * 5000, ""),
]
KINDS = [
    *(tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE),
    *(tarfile.DIRTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, b"Z"),
]
TARGETS = ["/etc/passwd", "../outside", "../../outside/kept", "records", "."]
PAX = [
    *({"path": "../../evil"}, {"linkpath": "/etc/passwd"}, {"size": "-1"}, {"size": str(2**62)}),
    *({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, {"GNU.sparse.size": str(2**50)}),
    *({"GNU.sparse.map": "0,1,2"}, {"hdrcharset": "BINARY"}, {"mtime": "nan"}, {"uid": "x"}),
]


class Evil:
    """What a pickle would run."""

    def __reduce__(self):
        return (open, ("evil", "w"))


CONTENTS = [
    *(b"", b"{}", b"[]", b"null", b"NaN", b"[" * 10**5, b'{"schema": ' * 10**4, b"\xff\xfe{}"),
    *(pickle.dumps(Evil()), b"!!python/object/apply:os.system ['touch evil']", b"\0" * 10**6),
    *(
        b'{"id": 1e999}',
        b'{"id": 1180591620717411303424}',
        b'"' + b"x" * 10**6 + b'"',
        b"#!/bin/sh\ntouch evil\n",
    ),
]
WORDS = [
    *("<script>alert(1)</script>", "=cmd|' /C calc'!A0", "\x1b[2J\u202e", "x" * 10**5, "../evil"),
    *("\0", "$(touch evil)", "\\input{evil}", "'; DROP TABLE records; --"),
]
# Where a record says what its certificate is bound to, or which one that is.
BOUND = [
    *(("request", name) for name in ("framework", "workload", "kernel", "device", "precision")),
    *(("workload", "digest"), ("machine", "microarchitecture"), ("certificate",)),
    *(("software", name) for name in ("adapter_digest", "environment_digest")),
]


@pytest.fixture
def good(record):
    """The documents of a record that was proven equal and of its certificate."""
    made, proof = certified(record)
    return made.document(), proof.document()


@pytest.fixture
def started():
    """Processes that were started meanwhile."""
    seen, watching = [], True

    def hook(event, _):
        if watching and event in STARTS:
            seen.append(event)

    sys.addaudithook(hook)
    yield seen
    watching = False


def leaves(document, way=()):
    """Where its texts and figures are."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from leaves(value, (*way, name))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from leaves(value, (*way, number))
    elif way not in (("id",), ("schema",)):
        yield way


def lie(document, way, chance):
    """What stands there says something else."""
    *above, last = way
    for step in above:
        document = document[step]
    others = [*WORDS, 0, -1, 1e300, 2**53 - 1, None, True]
    document[last] = chance.choice([one for one in others if one != document[last]])


def identified(document):
    """With the id that it ought to have."""
    rest = {name: value for name, value in document.items() if name != "id"}
    return {**rest, "id": digests.of_json(rest)}


def forged(good, chance):
    """A record and a certificate that does not cover it: files, by name."""
    record, proof = copy.deepcopy(good)
    if chance.random() < 0.5:
        lie(proof, ("subject", chance.choice(list(proof["subject"]))), chance)
        proof = identified(proof)
        record["certificate"] = proof["id"]
    else:
        lie(record, chance.choice(BOUND), chance)
    if chance.random() < 0.5:
        lie(record, chance.choice(list(leaves(record))), chance)
    if chance.random() < 0.7:
        record = identified(record)
    for kind, document in (("records", record), ("certificates", proof)):
        named = document["id"][7:] if chance.random() < 0.9 else IDENTITY
        content = json.dumps(document, indent=1, ensure_ascii=chance.random() < 0.5)
        yield [tarfile.TarInfo(f"{kind}/{named}.json"), content.encode()]


def manifest(members, chance):
    """Of these files, and now and then of others, or none at all."""
    files = {
        one.name: {"bytes": len(content), "digest": digests.of_bytes(content)}
        for one, content in members
    }
    if chance.random() < 0.1:
        files[chance.choice(list(files))] = chance.choice([{}, None, {"digest": 1}])
    whole = json.dumps({"schema": archive.SCHEMA, "files": files}).encode()
    content = whole if chance.random() < 0.9 else chance.choice(CONTENTS)
    return [tarfile.TarInfo("manifest.json"), content]


def hostile(good, chance):
    """The bytes of one archive."""
    members = list(forged(good, chance))
    for _ in range(chance.choice([0, 0, 0, 1, 1, 2, 3])):
        chance.choice([renamed, retyped, refilled, doubled, headed, added])(chance, members)
    chance.shuffle(members)
    members.insert(chance.randint(0, len(members)), manifest(members, chance))
    written = io.BytesIO()
    shape = chance.choice([tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
    for one, content in members:
        one.size = len(content)
        try:
            header = one.tobuf(shape)
        except ValueError:  # a name that this format cannot say
            header = one.tobuf(tarfile.PAX_FORMAT)
        written.write(header + content + b"\0" * (-len(content) % 512))
    raw = bytearray(written.getvalue() + b"\0" * 1024)
    if chance.random() < 0.1:
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    made = gzip.compress(bytes(raw), 1) if chance.random() < 0.5 else bytes(raw)
    if chance.random() < 0.1:
        made = made[: chance.randrange(len(made))]
    return made + chance.choice([b"", b"", b"", b"\x1f\x8b", b"\0" * 700])


def renamed(chance, members):
    chance.choice(members)[0].name = chance.choice(NAMES)


def retyped(chance, members):
    one, _ = chance.choice(members)
    one.type, one.linkname = chance.choice(KINDS), chance.choice(TARGETS)
    one.mode = 0o7777


def refilled(chance, members):
    chance.choice(members)[1] = chance.choice(CONTENTS)


def doubled(chance, members):
    one, content = chance.choice(members)
    members.append([copy.copy(one), chance.choice([content, b"{}"])])


def headed(chance, members):
    chance.choice(members)[0].pax_headers = chance.choice(PAX)


def added(chance, members):
    """A link, and a file through it."""
    link = tarfile.TarInfo("records")
    link.type, link.linkname = tarfile.SYMTYPE, chance.choice(TARGETS)
    members[:0] = [[link, b""], [tarfile.TarInfo(f"records/{IDENTITY}.json"), b"{}"]]


def around(folder, inside):
    """Everything below `folder` but what is in `inside`: names, kinds and contents."""
    return {
        path: path.read_bytes() if path.is_file() else stat.S_IFMT(path.lstat().st_mode)
        for path in folder.rglob("*")
        if not path.is_relative_to(inside)
    }


def ranked(store):
    """Rows with a rank; what else there is can be shown."""
    found = leaderboard.tables(list(store.records()), certificate.read_folder(store.folder))
    tables.to_text(found)
    return [row for table in found for row in table.rows]


def test_hostile_archives_cannot_escape_run_code_or_rank(good, tmp_path, started, monkeypatch):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("as it was")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "outside")
    ends = {"refused": 0, "taken": 0, "left out": 0}
    source = tmp_path / "evil.tar"
    for seed in range(ARCHIVES):
        source.write_bytes(hostile(good, random.Random(seed)))
        before = around(tmp_path, tmp_path / "there")
        target, complaints = Store(tmp_path / "there" / str(seed)), []
        try:
            new, _ = archive.import_archive(source, target, complaints.append)
        except ArchiveError as error:
            ends["refused"] += 1
            assert str(error).isprintable(), seed
            assert not target.folder.exists(), seed
        else:
            ends["taken"] += bool(new)
            ends["left out"] += bool(complaints)
            for path in target.folder.rglob("*"):
                mode, name = path.lstat().st_mode, str(path.relative_to(target.folder))
                assert stat.S_ISDIR(mode) or KEPT.fullmatch(name), (seed, name)
                assert stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and not mode & 0o7111), seed
            assert ranked(target) == [], seed
        assert around(tmp_path, tmp_path / "there") == before, seed
    assert started == []
    assert all(count >= ARCHIVES // 20 for count in ends.values()), ends


def test_valid_record_gets_a_rank(good, tmp_path):
    """Else the test above would see nothing."""
    target = Store(tmp_path / "there")
    target.prepare()
    record, proof = (json.dumps(one, indent=1, ensure_ascii=False) + "\n" for one in good)
    for path, content in (
        (target.record_path(good[0]["id"][7:]), record),
        (target.certificate_path(good[1]["id"]), proof),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert len(ranked(target)) == 1
