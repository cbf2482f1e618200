"""Packs: many records in a file, each verifiable, with no record lost or duplicated."""

import hashlib
import json
import signal
import subprocess
import sys
import time

import pytest

from xfbench.model.sealed import EditedError
from xfbench.store import pack
from xfbench.store.results_folder import Store


@pytest.fixture
def store(tmp_path, record):
    """Return a results folder with 30 records in separate files."""
    new_store = Store(tmp_path / "results")
    new_store.create_and_check_folders()
    for launch in range(1, 31):
        new_store.add(record(steps=(0.1 + launch / 1000, 1e-7, 5.5e-05), launch=launch))
    return new_store


def read_records(store):
    complaints = []
    return list(store.records(complaints.append)), complaints


def list_top_folders(store):
    return sorted(path.relative_to(store.folder).parts[0] for path in store.folder.rglob("*.*json"))


def test_packed_records_read_back_unchanged(store):
    stored_records, _ = read_records(store)
    assert store.pack() == 30
    assert list_top_folders(store) == ["packs"]
    assert read_records(store) == (stored_records, [])


def test_pack_line_is_verifiable_with_plain_sha256(store):
    stored_records, _ = read_records(store)
    store.pack()
    [path] = store.packs()
    identities = set()
    for line in path.read_bytes().splitlines():
        assert json.loads(line)["schema"] == "xfbench.record/1"
        identity = "sha256:" + hashlib.sha256(b"{" + line[80:]).hexdigest()
        assert identity == json.loads(line)["id"]
        identities.add(identity)
    assert identities == {record.id for record in stored_records}


def test_pack_adds_only_new_records_unless_all_are_repacked(store, record):
    store.pack()
    assert store.pack() == 0
    store.add(record(launch=99))
    assert len(read_records(store)[0]) == 31
    assert store.pack() == 1
    assert len(store.packs()) == 2
    assert len(read_records(store)[0]) == 31
    assert store.pack(repack=True) == 31
    assert len(store.packs()) == 1
    assert len(read_records(store)[0]) == 31
    assert store.pack(repack=True) == 0


def test_equal_records_make_equal_packs(store, tmp_path):
    other_store = Store(tmp_path / "other")
    other_store.create_and_check_folders()
    for record in reversed(read_records(store)[0]):
        other_store.add(record)
    store.pack()
    other_store.pack()
    assert store.packs()[0].name == other_store.packs()[0].name
    assert store.packs()[0].read_bytes() == other_store.packs()[0].read_bytes()


def test_record_in_a_pack_and_a_file_counts_once(store):
    stored_records, _ = read_records(store)
    store.pack()
    store.add(stored_records[3])
    assert read_records(store) == (stored_records, [])
    assert store.pack() == 0
    assert list_top_folders(store) == ["packs"]


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
    [line] = [
        line for line in pack.read_lines_and_defects(store.packs()[0]) if line.identity == identity
    ]
    assert json.loads(line.content)["weather"] == "fair"
    assert f"sha256:{identity}" in {record.id for record in read_records(store)[0]}


def test_pack_reports_invalid_files_without_moving_files(store):
    path = next(store.record_files())
    path.write_text(path.read_text().replace('"ok"', '"failed"'))
    partial_record = store.folder / "records" / "00" / "half.json"
    partial_record.parent.mkdir(exist_ok=True)
    partial_record.write_text('{"schema": "xfb')
    complaints = []
    assert store.pack(complaints.append) == 29
    assert sorted(store.record_files()) == sorted([path, partial_record])
    assert sorted(line.split(":")[0] for line in complaints) == sorted(
        [path.name, partial_record.name]
    )


@pytest.mark.parametrize(
    ("damage", "remaining", "words"),
    [
        (
            lambda text: text.replace(b'"ok"', b'"no"', 1),
            29,
            ["the content does not match the id"],
        ),
        (lambda text: text[:-40], 29, ["the line is truncated"]),
        (lambda text: b"".join(text.splitlines(True)[1:]), 29, ["some are missing"]),
        (
            lambda text: text + b"{}\n",
            30,
            ["the content does not", "the name does not"],
        ),
        (
            lambda text: b"\xff\x00" + text,
            29,
            ["the content does not", "the name does not"],
        ),
    ],
)
def test_damaged_pack_is_reported_and_intact_records_are_read(store, damage, remaining, words):
    store.pack()
    [path] = store.packs()
    path.write_bytes(damage(path.read_bytes()))
    records, complaints = read_records(store)
    assert len(records) == remaining
    assert len(complaints) == len(words)
    for line, word in zip(complaints, words, strict=True):
        assert line.startswith(path.name) and word in line


def test_next_pack_removes_a_partial_file(store):
    (store.folder / "packs").mkdir()
    partial_path = store.folder / "packs" / "left.partial"
    partial_path.write_text("half")
    assert len(read_records(store)[0]) == 30
    store.pack()
    assert not partial_path.exists()


def test_record_with_a_wrong_file_name_is_reported_and_skipped(store):
    path = next(store.record_files())
    misnamed_path = path.with_name(f"{'ab' * 32}.json")
    path.rename(misnamed_path)
    records, [line] = read_records(store)
    assert (
        len(records) == 29
        and line == f"{misnamed_path.name}: the file name does not match the id; left out"
    )


def test_edited_record_cannot_be_packed(record):
    document = {**record().document(), "status": "failed"}
    with pytest.raises(EditedError):
        pack.format_line(document)


PACK_SCRIPT = """
import sys
from pathlib import Path
from xfbench.store.results_folder import Store
print("started", flush=True)
while True:
    Store(Path(sys.argv[1])).pack(repack=True)
    print("packed", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.004, 0.008, 0.012, 0.016, 0.02])
def test_killed_packing_neither_loses_nor_duplicates_records(store, record, delay_s):
    stored_records, _ = read_records(store)
    store.pack()
    for launch in range(31, 61):
        stored_records.append(record(launch=launch))
        store.add(stored_records[-1])
    packing = subprocess.Popen(
        [sys.executable, "-c", PACK_SCRIPT, str(store.folder)], stdout=subprocess.PIPE
    )
    packing.stdout.readline()
    time.sleep(delay_s)
    packing.send_signal(signal.SIGKILL)
    packing.wait()
    records, complaints = read_records(store)
    assert complaints == []
    assert sorted(packed_record.id for packed_record in records) == sorted(
        packed_record.id for packed_record in stored_records
    )
    store.pack(repack=True)
    assert list_top_folders(store) == ["packs"]
    assert not list((store.folder / "packs").glob("*.partial"))
    assert sorted(packed_record.id for packed_record in read_records(store)[0]) == sorted(
        packed_record.id for packed_record in stored_records
    )


def test_concurrent_packing_loses_no_records(store):
    stored_records, _ = read_records(store)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PACK_SCRIPT, str(store.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for process in processes:
        process.stdout.readline()
        process.stdout.readline()
        process.kill()
        process.communicate()
    assert read_records(store) == (stored_records, [])
    assert list_top_folders(store) == ["packs"]


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
    assert len(read_records(store)[0]) == 30


def test_pack_keeps_a_record_that_is_edited_meanwhile(store):
    """The first file is edited after it is read, while the last file is reported."""
    first_file, *_, last_file = sorted(store.record_files())
    last_file.write_text("{}")
    complaints = []

    def edit(line):
        complaints.append(line)
        first_file.write_text(first_file.read_text().replace('"ok"', '"failed"'))

    assert store.pack(edit) == 28
    assert sorted(store.record_files()) == [first_file, last_file]
    assert [line.split(":")[0] for line in complaints] == [last_file.name, first_file.name]


def test_a_record_in_two_packs_is_repacked_once(store, record, tmp_path):
    store.pack()
    other_store = Store(tmp_path / "other")
    other_store.create_and_check_folders()
    for packed_record in (*read_records(store)[0], record(launch=99)):
        other_store.add(packed_record)
    other_store.pack()
    [other_pack] = other_store.packs()
    (store.folder / "packs" / other_pack.name).write_bytes(other_pack.read_bytes())
    assert store.pack(repack=True) == 31
    [path] = store.packs()
    assert len(path.read_bytes().splitlines()) == 31


def test_pack_sorts_records_by_id(store):
    store.pack()
    identities = [line.identity for line in pack.read_lines_and_defects(store.packs()[0])]
    assert identities == sorted(identities)


def test_pack_has_the_permissions_of_other_new_files(store, tmp_path):
    store.pack()
    (tmp_path / "new").touch()
    [path] = store.packs()
    assert path.stat().st_mode == (tmp_path / "new").stat().st_mode


def test_simultaneous_records_come_in_the_order_of_their_ids(store, simultaneous):
    assert [record.id for record in store.records()][:8] == sorted(simultaneous)
