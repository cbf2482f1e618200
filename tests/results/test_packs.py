"""Packs: many records in one file, verifiable one by one; nothing is lost or there twice."""

import hashlib
import json
import signal
import subprocess
import sys
import time

import pytest

from xfbench.records.sealed import EditedError
from xfbench.results import pack
from xfbench.results.store import Store


@pytest.fixture
def store(tmp_path, record):
    """A results folder of 30 records in files of their own."""
    made = Store(tmp_path / "results")
    made.prepare()
    for launch in range(1, 31):
        made.add(record(steps=(0.1 + launch / 1000, 1e-7, 5.5e-05), launch=launch))
    return made


def read(store):
    complaints = []
    return list(store.records(complaints.append)), complaints


def files(store):
    return sorted(path.relative_to(store.folder).parts[0] for path in store.folder.rglob("*.*json"))


def test_packed_records_read_back_unchanged(store):
    before, _ = read(store)
    assert store.pack() == 30
    assert files(store) == ["packs"]
    assert read(store) == (before, [])


def test_pack_line_is_verifiable_with_plain_sha256(store):
    before, _ = read(store)
    store.pack()
    [path] = store.packs()
    found = set()
    for line in path.read_bytes().splitlines():
        assert json.loads(line)["schema"] == "xfbench.record/1"
        identity = "sha256:" + hashlib.sha256(b"{" + line[80:]).hexdigest()
        assert identity == json.loads(line)["id"]
        found.add(identity)
    assert found == {record.id for record in before}


def test_pack_adds_only_new_records_unless_all_are_repacked(store, record):
    store.pack()
    assert store.pack() == 0
    store.add(record(launch=99))
    assert len(read(store)[0]) == 31
    assert store.pack() == 1
    assert len(store.packs()) == 2
    assert len(read(store)[0]) == 31
    assert store.pack(repack=True) == 31
    assert len(store.packs()) == 1
    assert len(read(store)[0]) == 31
    assert store.pack(repack=True) == 0


def test_equal_records_make_equal_packs(store, tmp_path):
    other = Store(tmp_path / "other")
    other.prepare()
    for one in reversed(read(store)[0]):
        other.add(one)
    store.pack()
    other.pack()
    assert store.packs()[0].name == other.packs()[0].name
    assert store.packs()[0].read_bytes() == other.packs()[0].read_bytes()


def test_record_in_a_pack_and_a_file_counts_once(store):
    before, _ = read(store)
    store.pack()
    store.add(before[3])
    assert read(store) == (before, [])
    assert store.pack() == 0
    assert files(store) == ["packs"]


def test_pack_keeps_unknown_fields(store):
    path = next(store.record_files())
    document = {**json.loads(path.read_bytes()), "weather": "fair"}
    del document["id"]
    body = pack.digests.rfc8785.dumps(document)
    identity = hashlib.sha256(body).hexdigest()
    path.unlink()
    target = store.record_path(identity)
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({**document, "id": f"sha256:{identity}"}))
    assert store.pack() == 30
    [line] = [line for line in pack.read_lines(store.packs()[0]) if line.identity == identity]
    assert json.loads(line.content)["weather"] == "fair"
    assert f"sha256:{identity}" in {record.id for record in read(store)[0]}


def test_pack_reports_invalid_files_without_moving_files(store):
    path = next(store.record_files())
    path.write_text(path.read_text().replace('"ok"', '"failed"'))
    half = store.folder / "records" / "00" / "half.json"
    half.parent.mkdir(exist_ok=True)
    half.write_text('{"schema": "xfb')
    complaints = []
    assert store.pack(complaints.append) == 29
    assert sorted(store.record_files()) == sorted([path, half])
    assert sorted(line.split(":")[0] for line in complaints) == sorted([path.name, half.name])


@pytest.mark.parametrize(
    ("damage", "left", "words"),
    [
        (
            lambda text: text.replace(b'"ok"', b'"no"', 1),
            29,
            ["its content is not what its id says"],
        ),
        (lambda text: text[:-40], 29, ["the line is cut off"]),
        (lambda text: b"".join(text.splitlines(True)[1:]), 29, ["some are missing"]),
        (lambda text: text + b"{}\n", 30, ["its content is not", "its name is not that"]),
        (lambda text: b"\xff\x00" + text, 29, ["its content is not", "its name is not that"]),
    ],
)
def test_damaged_pack_is_reported_and_intact_records_are_read(store, damage, left, words):
    store.pack()
    [path] = store.packs()
    path.write_bytes(damage(path.read_bytes()))
    records, complaints = read(store)
    assert len(records) == left
    assert len(complaints) == len(words)
    for line, word in zip(complaints, words, strict=True):
        assert line.startswith(path.name) and word in line


def test_next_pack_removes_a_partial_file(store):
    (store.folder / "packs").mkdir()
    left = store.folder / "packs" / "left.partial"
    left.write_text("half")
    assert len(read(store)[0]) == 30
    store.pack()
    assert not left.exists()


def test_record_with_a_wrong_file_name_is_reported_and_skipped(store):
    path = next(store.record_files())
    other = path.with_name(f"{'ab' * 32}.json")
    path.rename(other)
    records, [line] = read(store)
    assert len(records) == 29 and line == f"{other.name}: its name is not its id; left out"


def test_edited_record_cannot_be_packed(record):
    document = {**record().document(), "status": "failed"}
    with pytest.raises(EditedError):
        pack.format_line(document)


PACK = """
import sys
from pathlib import Path
from xfbench.results.store import Store
print("at it", flush=True)
while True:
    Store(Path(sys.argv[1])).pack(repack=True)
    print("packed", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("moment", [0.0, 0.004, 0.008, 0.012, 0.016, 0.02])
def test_killed_packing_neither_loses_nor_duplicates_records(store, record, moment):
    before, _ = read(store)
    store.pack()
    for launch in range(31, 61):
        before.append(record(launch=launch))
        store.add(before[-1])
    packing = subprocess.Popen(
        [sys.executable, "-c", PACK, str(store.folder)], stdout=subprocess.PIPE
    )
    packing.stdout.readline()
    time.sleep(moment)
    packing.send_signal(signal.SIGKILL)
    packing.wait()
    records, complaints = read(store)
    assert complaints == []
    assert sorted(one.id for one in records) == sorted(one.id for one in before)
    store.pack(repack=True)
    assert files(store) == ["packs"]
    assert not list((store.folder / "packs").glob("*.partial"))
    assert sorted(one.id for one in read(store)[0]) == sorted(one.id for one in before)


def test_concurrent_packing_loses_no_records(store):
    before, _ = read(store)
    both = [
        subprocess.Popen(
            [sys.executable, "-c", PACK, str(store.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for one in both:
        one.stdout.readline()
        one.stdout.readline()
        one.kill()
        one.communicate()
    assert read(store) == (before, [])
    assert files(store) == ["packs"]


def test_pack_everything_keeps_a_damaged_pack(store, record):
    store.pack()
    [damaged] = store.packs()
    content = damaged.read_bytes().replace(b'"ok"', b'"no"', 1)
    damaged.write_bytes(content)
    store.add(record(launch=99))
    store.pack()
    [intact] = [path for path in store.packs() if path != damaged]
    assert store.pack(repack=True) == 30
    assert damaged.read_bytes() == content
    assert not intact.exists()
    assert len(read(store)[0]) == 30


def test_pack_keeps_a_record_that_is_edited_meanwhile(store):
    """The first file is read, then edited while the last one is complained of."""
    first, *_, last = sorted(store.record_files())
    last.write_text("{}")
    complaints = []

    def edit(line):
        complaints.append(line)
        first.write_text(first.read_text().replace('"ok"', '"failed"'))

    assert store.pack(edit) == 28
    assert sorted(store.record_files()) == [first, last]
    assert [line.split(":")[0] for line in complaints] == [last.name, first.name]


def test_pack_everything_writes_a_record_of_two_packs_once(store, record, tmp_path):
    store.pack()
    other = Store(tmp_path / "other")
    other.prepare()
    for one in (*read(store)[0], record(launch=99)):
        other.add(one)
    other.pack()
    [more] = other.packs()
    (store.folder / "packs" / more.name).write_bytes(more.read_bytes())
    assert store.pack(repack=True) == 31
    [path] = store.packs()
    assert len(path.read_bytes().splitlines()) == 31


def test_a_pack_has_its_records_in_the_order_of_their_ids(store):
    store.pack()
    identities = [line.identity for line in pack.read_lines(store.packs()[0])]
    assert identities == sorted(identities)


def test_a_pack_is_as_readable_as_other_new_files(store, tmp_path):
    store.pack()
    (tmp_path / "new").touch()
    [path] = store.packs()
    assert path.stat().st_mode == (tmp_path / "new").stat().st_mode


def test_simultaneous_records_come_in_the_order_of_their_ids(store, simultaneous):
    assert [one.id for one in store.records()][:8] == sorted(simultaneous)
