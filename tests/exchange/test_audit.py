"""What is wrong with results is named, each defect with its file."""

import json

import pytest

from tests.sample_records import make_certified_record
from xfbench.base import digests
from xfbench.base.errors import UsageError
from xfbench.exchange import archive, audit
from xfbench.model.record import Limit, Record
from xfbench.store.results_folder import Store


@pytest.fixture
def store(tmp_path, record):
    """Three good records, one of them certified."""
    new_store = Store(tmp_path / "results")
    new_store.create_and_check_folders()
    new_store.add(record(steps=(0.11,), launch=1))
    new_store.add(record(steps=(0.12,), launch=2))
    certified_record, certificate = make_certified_record(record)
    new_store.add(certified_record)
    certificate.write(new_store.certificate_path(certificate.id))
    return new_store


def write_changed_record(store, record, **changes):
    """Keep a record with other fields, whose id is right."""
    document = record.document()
    for path, value in changes.items():
        *parents, field = path.split("__")
        section = document
        for name in parents:
            section = section[name]
        section[field] = value
    del document["id"]
    identity = digests.of_json(document)
    path = store.record_path(identity[7:])
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps({**document, "id": identity}))
    return path


def list_defects(path):
    return [(defect.file, defect.defect) for defect in audit.validate_results(path)[1]]


def test_valid_results_have_no_defects(store):
    assert audit.validate_results(store.folder) == (4, [])
    store.pack()
    assert audit.validate_results(store.folder) == (4, [])
    assert audit.validate_results(store.packs()[0]) == (3, [])
    store.add(next(store.records()))
    assert audit.validate_results(store.folder) == (5, [])


def test_changed_byte_in_a_record_is_a_defect(store):
    path = next(store.record_files())
    content = path.read_bytes()
    for position in range(0, len(content), 23):
        changed = bytearray(content)
        changed[position] ^= 1
        if parse_json(bytes(changed)) == parse_json(content):
            continue  # a space became another
        path.write_bytes(bytes(changed))
        [(file, defect)] = list_defects(path)
        assert (file, defect in ("digest", "schema", "name")) == (str(path), True)


def parse_json(content):
    try:
        return json.loads(content)
    except ValueError:
        return None


def test_throughput_above_the_peak_is_a_defect(store, record):
    limit = Limit(
        threads=1, precision="float32", matrix_product=1e3, memory_bandwidth=1, source="measured"
    )
    path = write_changed_record(store, record(steps=(0.14,), launch=4, fields={"limit": limit}))
    assert list_defects(store.folder) == list_defects(path) == [(str(path), "peak")]


def test_impossible_number_is_a_defect(store, record):
    limit = Limit(
        threads=1, precision="float32", matrix_product=0.0, memory_bandwidth=1, source="measured"
    )
    path = write_changed_record(store, record(steps=(0.14,), launch=4, fields={"limit": limit}))
    assert list_defects(store.folder) == list_defects(path) == [(str(path), "number")]


def test_steps_longer_than_the_wall_time_are_a_defect(store, record):
    path = write_changed_record(
        store, record(steps=(0.14,), launch=4), measurement__wall_seconds=0.2
    )
    assert list_defects(store.folder) == list_defects(path) == [(str(path), "time")]


@pytest.mark.parametrize(
    "changes",
    [
        {"request__launch": 9, "created": "2026-01-01T00:00:00.000Z"},
        {"created": "2026-01-01T00:00:00.000Z"},
        {"request__threads": 64},
        {"measurement__first_step_seconds": 0.2, "reason": "no reason"},
    ],
)
def test_duplicate_launch_is_a_defect(store, changes):
    first = next(store.records())
    duplicate_path = write_changed_record(store, first, **changes)
    [(file, defect)] = list_defects(store.folder)
    assert defect == "duplicate"
    assert file == max(str(duplicate_path), str(store.record_path(first.id[7:])))
    store.pack()
    [(file, defect)] = list_defects(store.folder)
    assert (defect, file.split(":")[0]) == ("duplicate", str(store.packs()[0]))


def test_record_with_a_wrong_file_name_is_a_defect(store, record):
    original_path = write_changed_record(store, record(steps=(0.16,), launch=6))
    path = store.folder / "records" / "ab" / f"{'ab' * 32}.json"
    path.parent.mkdir(exist_ok=True)
    original_path.rename(path)
    assert list_defects(store.folder) == list_defects(path) == [(str(path), "name")]
    path.rename(store.folder / "records" / original_path.name)
    assert list_defects(store.folder) == [
        (str(store.folder / "records" / original_path.name), "name")
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"certificate": "sha256:" + "0" * 64}, "is missing"),
        ({"request__precision": "float16"}, "for another precision"),
        ({"machine__microarchitecture": "m68k"}, "for another microarchitecture"),
        ({"software__adapter_digest": "sha256:9"}, "for another adapter digest"),
    ],
)
def test_mismatched_certificate_is_a_defect(store, changes, words):
    [record] = [record for record in store.records() if record.certificate]
    path = write_changed_record(
        store,
        record,
        measurement__first_step_seconds=0.2,
        created="2026-01-01T00:00:00Z",
        **changes,
    )
    checked, [defect] = audit.validate_results(store.folder)
    assert (checked, defect.file, defect.defect) == (5, str(path), "certificate")
    assert words in defect.detail


def test_edited_certificate_and_its_record_are_defects(store):
    [path] = (store.folder / "certificates").iterdir()
    path.write_text(path.read_text().replace('"safety_factor": 1', '"safety_factor": 2'))
    [record] = [record for record in store.records() if record.certificate]
    assert sorted(list_defects(store.folder)) == sorted(
        [(str(path), "certificate"), (str(store.record_path(record.id[7:])), "certificate")]
    )
    assert list_defects(store.record_path(record.id[7:])) == [
        (str(store.record_path(record.id[7:])), "certificate")
    ]


def test_edited_pack_line_and_missing_pack_line_are_defects(store):
    store.pack()
    [path] = store.packs()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b'"ok"', b'"no"'), lines[2]]))
    assert list_defects(store.folder) == [(f"{path}:2", "digest")]
    path.write_bytes(b"".join(lines[:2]))
    assert (str(path), "whole") in list_defects(store.folder)


def test_failed_launch_may_have_impossible_figures(store, record):
    invalid_record = record(steps=(0.3,), fields={"status": "invalid", "reason": "the clock"})
    write_changed_record(store, invalid_record, measurement__wall_seconds=0.1)
    assert list_defects(store.folder) == []


def test_archive_is_validated_like_a_results_folder(store, tmp_path, record):
    write_changed_record(store, record(steps=(0.13,), launch=3), measurement__wall_seconds=0.2)
    target = tmp_path / "all.tar"
    archive.write_archive(target, ((p, r) for r, p, _ in store.contents()), store)
    checked, [defect] = audit.validate_results(target)
    assert (checked, defect.defect) == (5, "time")
    assert defect.file.startswith(f"{target}:records/")
    content = target.read_bytes()
    assert content.count(b'"launch": 2') == 1  # another record than the one that is too slow
    target.write_bytes(content.replace(b'"launch": 2', b'"launch": 4'))
    defects = [defect.defect for defect in audit.validate_results(target)[1]]
    assert sorted(defects) == ["digest", "time", "whole"]


def test_path_without_results_is_a_usage_error(tmp_path):
    for name in ("none.json", "folder"):
        with pytest.raises(UsageError):
            audit.validate_results(tmp_path / name)
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "folder").mkdir()
    for name in ("x.txt", "folder"):
        with pytest.raises(UsageError):
            audit.validate_results(tmp_path / name)


def test_malformed_record_is_a_schema_defect(store):
    hostile = ["", "{}", "null", "[" * 100_000, '{"id":' * 5000, "\x00", '{"id": 1}', '{"id": []}']
    for number, text in enumerate(hostile):
        path = store.folder / "records" / "00" / f"{number:064x}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        assert list_defects(path) == [(str(path), "schema")]
    assert len(list(store.records())) == 3
    assert isinstance(next(store.records()), Record)
