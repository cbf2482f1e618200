"""What strangers send: each is refused, or read without harm, by the commands that read it."""

import gzip
import hashlib
import io
import json
import os
import tarfile

import pytest

from tests.sample_records import make_certified_record, vary_record
from xfbench import bundle
from xfbench.base import digests, tar_files
from xfbench.exchange import archive, audit, figures, importing, submission
from xfbench.store import pack
from xfbench.store.results_folder import Store

FUTURE = "2099-01-01T00:00:00.000Z"
OTHER_ID = "sha256:" + "ab" * 32


def seal(document):
    """Return the document with the id that it must have."""
    body = {name: value for name, value in document.items() if name != "id"}
    return {"id": digests.of_json(body), **body}


def encode(document):
    return json.dumps(document).encode()


def write_archive(path, contents, manifest=None):
    """Write an archive of these members (content by name), with a manifest that matches them."""
    files = {
        name: {"bytes": len(content), "digest": digests.of_bytes(content)}
        for name, content in contents.items()
    }
    manifest = manifest or encode({"schema": archive.SCHEMA, "files": files})
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, content in {**contents, "manifest.json": manifest}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def archive_of_record(change=lambda document: document, encode_record=encode, name=None):
    """Return a builder of an archive with one record, which `change` edits before it is sealed."""

    def build(folder, document):
        changed = seal(change(dict(document)))
        name_of_member = f"records/{(name or changed['id'])[7:]}.json"
        return write_archive(folder / "evil.tar", {name_of_member: encode_record(changed)})

    return build


def with_key_twice(key, first, second=None):
    """Return an encoder of a record that states a key before, with another value."""

    def encode_record(document):
        text = json.dumps(document)
        return f'{{"{key}": {json.dumps(first)}, {text[1:]}'.encode()

    return encode_record


def set_created(text):
    return archive_of_record(lambda document: {**document, "created": text})


def manifest_bomb(folder, document):
    spaces = encode({"schema": archive.SCHEMA, "files": {}}) + b" " * 2**24
    return write_archive(folder / "evil.tar.gz", {}, spaces)


def manifest_with_a_key_twice(folder, document):
    text = f'{{"schema": "{archive.SCHEMA}", "files": {{}}, "files": {{}}}}'
    return write_archive(folder / "evil.tar", {}, text.encode())


def manifest_of_many_values(folder, document):
    content = b'{"schema": "x", "files": [' + b"[]," * 300_000 + b"[]]}"
    return write_archive(folder / "evil.tar", {}, content)


def expanding_archive(folder, document):
    zeros = {f"records/{n:064x}.json": b"\0" * 2**20 for n in range(4)}
    return write_archive(folder / "evil.tar.gz", zeros)


def announced_size(folder, document):
    member = tarfile.TarInfo(f"records/{OTHER_ID[7:]}.json")
    member.size = 2**33
    (folder / "evil.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + b"\0" * 2048)
    return folder / "evil.tar"


def header_bomb(name):
    """Return a builder of a compressed archive whose first header announces 8 GiB."""

    def build(folder, document):
        member = tarfile.TarInfo("x")
        member.type, member.size = tarfile.XHDTYPE, 2**33 - 512
        (folder / name).write_bytes(gzip.compress(member.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 512))
        return folder / name

    return build


def headers_of_many_fields(folder, document):
    with tarfile.open(folder / "evil.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.pax_headers = {f"field{n}": "x" for n in range(200)}
    with tarfile.open(
        folder / "evil.tar", "w", pax_headers={f"field{n}": "x" for n in range(200)}
    ) as tar:
        tar.addfile(tarfile.TarInfo("manifest.json"), io.BytesIO())
    return folder / "evil.tar"


def encode_headers(*members):
    """Return the bytes of these members: pairs of a type and a content."""
    encoded = b""
    for kind, content in members:
        member = tarfile.TarInfo("launches/x/y")
        member.type, member.size = kind, len(content)
        encoded += member.tobuf(tarfile.USTAR_FORMAT) + content + b"\0" * (-len(content) % 512)
    return encoded


def pax_header(field):
    text = f" {field}\n"
    return tarfile.XHDTYPE, f"{len(text) + 2}{text}".encode()


def archive_of_headers(*members):
    """Return a builder of a compressed archive of these members."""

    def build(folder, document):
        (folder / "evil.tar.gz").write_bytes(gzip.compress(encode_headers(*members), 1))
        return folder / "evil.tar.gz"

    return build


def sparse_header_without_end(folder, document):
    header = bytearray(encode_headers((tarfile.GNUTYPE_SPARSE, b"")))
    header[386:410], header[482] = b"00000000000 00000000000 ", 1
    header[483:495], header[148:156] = b"00000000000\0", b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    more = (b"\0" * 504 + b"\1" + b"\0" * 7) * 2100
    (folder / "evil.tar.gz").write_bytes(gzip.compress(bytes(header) + more, 1))
    return folder / "evil.tar.gz"


def pack_with(change):
    """Return a builder of a pack with one line, whose text after the id `change` changes."""

    def build(folder, document):
        rest = change(pack.format_line(seal(document))[80:].rstrip())
        identity = hashlib.sha256(b"{" + rest).hexdigest()
        name = hashlib.sha256(f"{identity}\n".encode()).hexdigest()
        path = folder / f"{name}.ndjson"
        path.write_bytes(f'{{"id":"sha256:{identity}",'.encode() + rest + b"\n")
        return path

    return build


def folder_with(name, content=None):
    """Return a builder of a results folder with this file; None: a pipe."""

    def build(folder, document):
        path = folder / "theirs" / name
        path.parent.mkdir(parents=True)
        (folder / "theirs" / "records").mkdir(exist_ok=True)
        if content is None:
            os.mkfifo(path)
        else:
            path.write_bytes(content)
        return folder / "theirs"

    return build


def file_with(name, content):
    """Return a builder of a file of another tool."""

    def build(folder, document):
        (folder / name).write_bytes(content)
        return folder / name

    return build


def benchmarks(text="", when="2026-01-01T00:00:00"):
    return (
        f'{{"machine_info": {{"node": "x"}}, "datetime": "{when}", "version": "5", {text}'
        '"benchmarks": [{"name": "a", "stats": {"median": 1.0}}]}'
    ).encode()


REFRAME = {"session_info": {"time_end": "2026-01-01T00:00:00"}, "runs": []}
NODES = {"testcases": [{"nodelist": [f"node{n}" for n in range(20_001)]}]}
EMPTY = (tarfile.REGTYPE, b"")
# Archives with headers that are wrong in any kind of archive, and words of the message.
HEADERS = {
    "a sparse header without end": (sparse_header_without_end, "invalid size"),
    "headers in headers": (
        archive_of_headers(*[(tarfile.XHDTYPE, b"")] * 1500),
        "too many headers",
    ),
    "a sparse map of words": (
        archive_of_headers(
            pax_header("GNU.sparse.major=0"), pax_header("GNU.sparse.map=a,b"), EMPTY
        ),
        "invalid header",
    ),
    "a member that ends before it starts": (
        archive_of_headers(pax_header("size=-4096"), EMPTY),
        "invalid size",
    ),
}
# name: (what builds the file, exit status, words of the message)
CASES = {
    **{name: (build, 2, words) for name, (build, words) in HEADERS.items()},
    "a manifest of 16 MiB": (manifest_bomb, 2, "'manifest.json' exceeds"),
    "a manifest with a key twice": (manifest_with_a_key_twice, 2, "'files' occurs twice"),
    "a manifest of many values": (manifest_of_many_values, 2, "values"),
    "an archive that expands": (expanding_archive, 2, "exceeds"),
    "an announced size": (announced_size, 2, "exceeds"),
    "a header of 8 GiB": (header_bomb("evil.tar.gz"), 2, "invalid size"),
    "a header of 8 GiB in another file": (header_bomb("evil.bin"), 2, "invalid size"),
    "headers of many fields": (headers_of_many_fields, 2, "exceeds"),
    "a created of the year 9999": (set_created("9999-01-01T00:00:00Z"), 1, "expected a time"),
    "a created in the future": (set_created(FUTURE), 1, "created in the future"),
    "a created without a zone": (set_created("2026-01-01T00:00:00"), 1, "expected a time"),
    "a created in another zone": (set_created("2026-01-01T00:00:00+14:00"), 1, "expected a time"),
    "a created that is no date": (set_created("2026-13-01T00:00:00Z"), 1, "month"),
    "a created that is a word": (set_created("~newest"), 1, "expected a time"),
    "a created with other digits": (set_created("٢٠٢٦-01-01T00:00:00Z"), 1, "expected a time"),
    "a record with two ids": (
        archive_of_record(encode_record=with_key_twice("id", OTHER_ID)),
        1,
        "occurs twice",
    ),
    "a record with two statuses": (
        archive_of_record(encode_record=with_key_twice("status", "failed")),
        1,
        "occurs twice",
    ),
    "a record with an escaped second key": (
        archive_of_record(encode_record=with_key_twice("statu\\u0073", "failed")),
        1,
        "occurs twice",
    ),
    "a record under another name": (archive_of_record(name=OTHER_ID), 1, "does not match"),
    "a record of many values": (
        archive_of_record(encode_record=lambda _: b'{"x":[' + b"," * 4_000_001),
        1,
        "values",
    ),
    "a record that is nested deeply": (
        archive_of_record(encode_record=lambda _: b'{"x":' + b"[" * 10**6),
        1,
        "not a record",
    ),
    "a record with NaN": (
        archive_of_record(encode_record=lambda d: encode(d)[:-1] + b', "x": NaN}'),
        1,
        "NaN",
    ),
    "a pack's line with a second id": (
        pack_with(lambda rest: rest[:-1] + f',"id":"{OTHER_ID}"}}'.encode()),
        1,
        "occurs twice",
    ),
    "a pack's line with an escaped second id": (
        pack_with(lambda rest: rest[:-1] + f',"\\u0069d":"{OTHER_ID}"}}'.encode()),
        1,
        "twice",
    ),
    "a pack's line with a second status": (
        pack_with(lambda rest: rest[:-1] + b',"status":"failed"}'),
        1,
        "occurs twice",
    ),
    "a pack's line with a nested key twice": (
        pack_with(lambda rest: rest[:-1] + b',"x":{"a":1,"a":2}}'),
        1,
        "occurs twice",
    ),
    "a pipe as a pack": (folder_with(f"packs/{'ab' * 32}.ndjson"), 1, "not a plain file"),
    "a pipe as a record": (folder_with(f"records/ab/{'ab' * 32}.json"), 1, "not a plain file"),
    "a pipe as a certificate": (folder_with(f"certificates/{'ab' * 32}.json"), 0, ""),
    "a search with a key twice": (
        folder_with("tuned/x.json", b'{"schema": "xfbench.tuning/1", "id": 1, "id": 2}'),
        1,
        "",
    ),
    "benchmarks with a key twice": (
        file_with("b.json", benchmarks('"benchmarks": [],')),
        2,
        "occurs twice",
    ),
    "benchmarks of the future": (
        file_with("b.json", benchmarks(when="2099-01-01")),
        2,
        "created in the future",
    ),
    "benchmarks of the year 9999": (
        file_with("b.json", benchmarks(when="9999-01-01")),
        2,
        "expected a time",
    ),
    "benchmarks of many values": (
        file_with("b.json", b'{"machine_info": {}, "benchmarks": [' + b"1," * 5000 + b"1]}"),
        2,
        "more than 4,000 values",
    ),
    "a report of many hosts": (
        file_with("r.json", encode({**REFRAME, "runs": [NODES]})),
        2,
        "20,000 hosts",
    ),
    "a log with a key twice": (
        file_with("log", b':::MLLOG {"key": "run_start", "key": "x", "time_ms": 1}'),
        2,
        "occurs twice",
    ),
    "a log line of many spaces": (
        file_with("log", b":::MLPv0.5.0 resnet 1.0 (a:1) key: a" + b" " * 500_000 + b"b"),
        2,
        "",
    ),
    "a log line of many events": (file_with("log", b":::MLLOG " * 100_000), 2, "too many events"),
    "a log of many lines": (file_with("log", b":::MLLOG {}" + b"\n" * 10**6), 2, "no key"),
    "a log of many evaluations": (
        file_with(
            "log",
            b"".join(
                b':::MLLOG {"key":"eval_accuracy","value":0.%d,"time_ms":1,'
                b'"metadata":{"epoch_num":%d}}\n' % (n, n)
                for n in range(40_000)
            ),
        ),
        2,
        "figures and messages",
    ),
}


@pytest.fixture
def document(record):
    return make_certified_record(record)[0].document()


@pytest.mark.parametrize("name", CASES)
def test_what_a_stranger_sends_is_refused_or_left_out(
    name, document, tmp_path, run_inline, monkeypatch
):
    build, status, words = CASES[name]
    if name == "an archive that expands":
        monkeypatch.setattr(tar_files, "_SMALL_BYTES", 2**20)
    monkeypatch.setattr(figures, "_MAX_VALUES", 4000)
    monkeypatch.setattr(figures, "_MAX_ENTRIES", 4000)
    if name == "a report of many hosts":
        monkeypatch.setattr(figures, "_MAX_VALUES", 40_000)
    (tmp_path / "sent").mkdir()
    path = build(tmp_path / "sent", document)
    result = run_inline("results", "import", path)
    assert result.returncode == status, result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr and max(map(len, result.stderr.splitlines())) < 1000
    assert not [*Store(tmp_path / "results").contents()]
    if path.is_dir() or path.suffix in (".tar", ".gz", ".ndjson"):
        validated = run_inline("results", "validate", path)
        assert validated.returncode == 1, "the audit finds it too"


@pytest.mark.parametrize("name", HEADERS)
def test_a_bundle_with_hostile_headers_is_refused(name, tmp_path, run_inline):
    build, words = HEADERS[name]
    result = run_inline("results", "import", "--bundle", build(tmp_path, None))
    assert result.returncode == 2 and words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_bundle_writes_no_file_that_a_bundle_does_not_have(tmp_path, run_inline, monkeypatch):
    """Hostile names, links and devices are left out, whatever the order."""
    scratch = tmp_path / "scratch"
    (tmp_path / "home").mkdir()
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    names = [
        *("../evil", "../../home/evil", str(tmp_path / "home" / "evil"), "launches/../../evil"),
        *(
            "launches/x/../../../home/evil",
            "launches/x/y/evil",
            "plan.json/evil",
            "launches/x/.evil",
        ),
        *("launches/link/evil", "evil/x/y", "launches/x/evil\n"),
    ]
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        for place in ("launches/link", "launches/x/link"):
            link = tarfile.TarInfo(place)
            link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "home")
            tar.addfile(link)
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"evil"))
    seen = []
    with bundle.open_bundle(tmp_path / "evil.tar", print) as folder:
        seen += [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    assert seen == ["launches/link/evil"], "in a folder, not through the link"
    result = run_inline("results", "import", "--bundle", "evil.tar")
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"evil.tar", "home", "scratch"}
    assert not [*scratch.iterdir()] and not [*(tmp_path / "home").iterdir()]


def test_a_bundle_of_zeros_or_of_many_empty_members_is_refused(tmp_path, run_inline, monkeypatch):
    monkeypatch.setattr(tar_files, "_SMALL_BYTES", 2**20)
    monkeypatch.setattr(bundle, "_MAX_MEMBERS", 3)
    for members in ([(tarfile.REGTYPE, b"\0" * 2**22)], [EMPTY] * 4):
        path = archive_of_headers(*members)(tmp_path, None)
        result = run_inline("results", "import", "--bundle", path)
        assert result.returncode == 2 and "too large for a bundle" in result.stderr


@pytest.mark.parametrize("place", ["sent/x", "results/records/x", "files"])
def test_folders_that_are_nested_deeply_are_refused(submission_folder, run_inline, tmp_path, place):
    (tmp_path / place / ("d/" * 110)).mkdir(parents=True)
    source = tmp_path / place.split("/")[0]
    results = []
    if place != "files":  # of other tools
        results += [run_inline("results", "validate", source)]
    if place != "results/records/x":  # only its own folders are read
        results += [run_inline("results", "import", source, "--results", "ours")]
    for result in results:
        assert result.returncode == 2 and "folders inside each other" in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert ("nothing of the submission" in results[-1].stderr) == (place == "sent/x")
    assert not (tmp_path / "ours").exists()


def test_a_pipe_as_an_archive_is_refused(tmp_path, run_inline):
    os.mkfifo(tmp_path / "evil.tar")
    for words in (["import", "evil.tar"], ["import", "--bundle", "evil.tar"], ["validate"]):
        result = run_inline("results", *words, *(["evil.tar"] if words == ["validate"] else []))
        assert result.returncode == 2 and len(result.stderr.splitlines()) == 1


@pytest.fixture
def submission_folder(document, record, tmp_path, run_inline):
    """A submission of one certified launch."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    certified, proof = make_certified_record(record)
    store.add(certified)
    proof.write(store.certificate_path(proof.id))
    assert run_inline("results", "submit", "sent").returncode == 0
    return tmp_path / "sent"


def rebuild_manifest(folder):
    (folder / "submission.json").unlink()
    (folder / "submission.json").write_text(json.dumps(submission.build_manifest(folder)))


def link_to_a_secret(folder):
    (folder / "repeat.json").unlink()
    (folder / "repeat.json").symlink_to("/etc/passwd")


def pipe(folder):
    (folder / "README.md").unlink()
    os.mkfifo(folder / "README.md")


def replace_text(name, old, new):
    def change(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))
        if name != "submission.json":
            rebuild_manifest(folder)

    return change


SUBMISSIONS = {
    "a link": link_to_a_secret,
    "a pipe": pipe,
    "a manifest with a key twice": replace_text("submission.json", "{", '{"schema": 1, '),
    "a repeat file with a key twice": replace_text("repeat.json", "{", '{"cells": 1, '),
    "machines with a key twice": replace_text("machine.json", "{", '{"machines": 1, '),
    "many values": replace_text("machine.json", "{", "{" + "," * 4_000_001),
    "shell code": replace_text("repeat.json", "xfbench run", "id; xfbench run"),
    "another framework": replace_text("repeat.json", "--framework ", "--framework evil,"),
    "code in the README": replace_text("README.md", "    xfbench", "    id\n    xfbench"),
    "a machine": replace_text("machine.json", '"cores": ', '"cores": 1'),
    "a record more": lambda folder: (folder / "records" / "x").write_text("{}"),
}


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_a_hostile_submission_is_not_imported(name, submission_folder, run_inline, tmp_path):
    SUBMISSIONS[name](submission_folder)
    assert run_inline("results", "validate", "sent").returncode == 1
    result = run_inline("results", "import", "sent", "--results", "ours")
    assert result.returncode == 2 and "nothing of the submission was imported" in result.stderr
    assert len(result.stderr.splitlines()) == 1 and not (tmp_path / "ours").exists()


def test_a_submission_that_changes_after_its_validation_is_imported_as_it_was(
    submission_folder, run_inline, tmp_path, monkeypatch
):
    [certified] = Store(submission_folder).records()
    validate = audit.validate_results

    def validate_then_change(path):
        result = validate(path)
        Store(submission_folder).add(vary_record(certified, request={"launch": 8}))
        return result

    monkeypatch.setattr(audit, "validate_results", validate_then_change)
    result = run_inline("results", "import", "sent", "--results", "ours")
    assert result.returncode == 0, result.stderr
    assert [record.id for record in Store(tmp_path / "ours").records()] == [certified.id]
    shown = run_inline("results", "show", certified.id[7:19], "--results", "ours").stdout
    assert "origin  submitted (from sent)" in shown
    assert len([*Store(submission_folder).records()]) == 2


def test_a_submission_that_loses_its_manifest_meanwhile_is_not_imported(
    submission_folder, run_inline, tmp_path, monkeypatch
):
    """Without it, the folder would count as results that need no audit."""
    copy = importing._copy_submission

    def remove_manifest_then_copy(source, target):
        (submission_folder / "submission.json").unlink()
        copy(source, target)

    monkeypatch.setattr(importing, "_copy_submission", remove_manifest_then_copy)
    result = run_inline("results", "import", "sent", "--results", "ours")
    assert result.returncode == 2 and "changed while it was copied" in result.stderr
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("limit", ["_MAX_SUBMISSION_BYTES", "_MAX_SUBMISSION_ENTRIES"])
def test_a_submission_that_is_too_large_is_not_imported(
    submission_folder, run_inline, tmp_path, monkeypatch, limit
):
    monkeypatch.setattr(importing, limit, 5)
    result = run_inline("results", "import", "sent", "--results", "ours")
    assert result.returncode == 2
    assert "sent is too large: nothing of the submission was imported" in result.stderr
    assert not (tmp_path / "ours").exists()


def test_an_archive_that_changes_after_its_validation_is_refused(
    document, record, run_inline, tmp_path, monkeypatch
):
    path = archive_of_record()(tmp_path, document)
    read = archive.read_members_then_check_manifest

    def read_then_replace(source):
        yield from read(source)
        archive_of_record()(tmp_path, record(launch=8).document())

    monkeypatch.setattr(archive, "read_members_then_check_manifest", read_then_replace)
    result = run_inline("results", "import", path)
    assert result.returncode == 2 and "changed while it was read" in result.stderr
    assert not [*Store(tmp_path / "results").contents()]


def test_import_audits_or_says_what_it_did_not_check(submission_folder, run_inline, tmp_path):
    """A figure is impossible, and all digests and descriptions are right."""
    store = Store(tmp_path / "results")
    [record] = store.records()
    store.add(vary_record(record, request={"launch": 8}, seconds=1e-14, cell=record.cell))
    assert run_inline("results", "submit", "forged").returncode == 0
    result = run_inline("results", "import", "forged", "--results", "none")
    assert result.returncode == 2 and "which is impossible: nothing of the" in result.stderr
    assert not (tmp_path / "none").exists()
    assert run_inline("results", "export", "all.tar").returncode == 0
    result = run_inline("results", "import", "all.tar", "--results", "ours")
    assert "all.tar has 1 defect, such as number: " in result.stderr
    result = run_inline("results", "import", "results", "--results", "more")
    assert "not whether the figures are possible" in result.stderr


def test_a_record_of_the_future_is_listed_last_and_is_a_defect(record, run_inline, tmp_path):
    """Somebody's clock may be wrong, or an earlier version may have imported the record."""
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    usual, future = record(launch=1), record(launch=2, fields={"created": FUTURE})
    store.add(future)
    store.add(usual)
    listed = json.loads(run_inline("results", "list", "--json").stdout)["records"]
    assert [each["id"] for each in listed] == [usual.id, future.id]
    assert [each.id for each in store.records()] == [future.id, usual.id]
    [row] = json.loads(run_inline("leaderboard", "--json").stdout)["tables"][0]["unranked"]
    assert row["records"] == [future.id, usual.id]
    validated = run_inline("results", "validate")
    assert validated.returncode == 1 and "time: created in the future" in validated.stdout
