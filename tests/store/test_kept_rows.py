"""Tables with rows that the index kept equal those from whole records."""

import dataclasses
import os

import duckdb
import pytest

from tests.sample_records import vary_record
from tests.store import diverse_records
from xfbench.analysis import leaderboard, ranked
from xfbench.base import parallel
from xfbench.store import index, indexing, pack, selection
from xfbench.store.results_folder import Place, Store

CONDITIONS = (
    (),
    ("framework=torch",),
    ("threads>=2", "checkpoints=0"),
    ("session!=null", "seed<5"),
    ("machine.cpu_model~É", "status!=ok"),
    ("software.packages.numpy=2", "observed.affinity=1", "threads=2"),
    ("source=published",),
)
KEPT = ("profile=false", "ranks=1")  # selects rows without profiles and communication


@pytest.fixture(scope="module")
def certificates():
    return diverse_records.build_certificates()


@pytest.fixture(scope="module")
def documents(certificates):
    return [*diverse_records.generate_documents(600, certificates)]


@pytest.fixture(autouse=True)
def keep_all_rows(monkeypatch):
    """Rows are kept however few records there are."""
    monkeypatch.setattr(ranked, "MIN_KEPT_RECORDS", 0)


def fill_store(folder, documents):
    """Return a results folder with some records in two packs, some as files, and some in both."""
    store = Store(folder)
    store.create_and_check_folders()
    singles = len(documents) // 10
    diverse_records.write_single_files(store, documents[:singles])
    lines = diverse_records.format_pack_lines(documents[singles // 2 :])
    middle = len(lines) // 2
    for part in (lines[:middle], lines[middle:]):
        pack.write_pack(store.folder / "packs", part)
    for path in store.record_files():
        make_old(path)
    return store


def make_old(path):
    """Give a file an earlier modification time, which the index trusts."""
    modified_s = path.stat().st_mtime - 60
    os.utime(path, (modified_s, modified_s))


@pytest.fixture
def store(documents, tmp_path):
    return fill_store(tmp_path / "results", documents)


def read_tables(store, certificates, conditions=(), **options):
    with index.open_index(store, print) as record_index:
        tables = ranked.leaderboard_tables(
            record_index, [selection.parse_conditions(conditions)], certificates, **options
        )
        return tables, record_index.damaged


def build_tables(store, certificates, conditions=()):
    """Return the tables from whole records."""
    parsed = selection.parse_conditions(conditions)
    records = [
        record
        for record in store.records()
        if all(condition.holds(record.document()) for condition in parsed)
    ]
    return leaderboard.build_tables(records, certificates)


def assert_equal_tables(tables, expected_tables):
    assert [table.title for table in tables] == [table.title for table in expected_tables]
    for table, expected in zip(tables, expected_tables, strict=True):
        assert table.document() == expected.document()
        for row, expected_row in zip(list_rows(table), list_rows(expected), strict=True):
            assert dataclasses.astuple(row) == dataclasses.astuple(expected_row)


def list_rows(table):
    return [*table.rows, *table.unranked]


@pytest.fixture
def read_ids(monkeypatch):
    """Return a list that gets the id of each record that is read for a table."""
    ids, read = [], Place.record

    def note_and_read(place, identity):
        ids.append(identity)
        return read(place, identity)

    monkeypatch.setattr(Place, "record", note_and_read)
    return ids


def test_sample_has_rows_of_each_kind(store, certificates):
    rows = [row for table in build_tables(store, certificates) for row in list_rows(table)]
    assert any(row.rank for row in rows) and any(row.rank is None for row in rows)
    for name in (
        *("communication", "checkpointing", "profile", "accuracy", "cpus_busy", "pixels_off"),
        *("input_share", "input_cpu_share", "peak_share", "failed", "unstable", "asynchronous"),
        *("outliers", "medium", "efficiency"),
    ):
        assert any(getattr(row, name) for row in rows), name
    assert {row.source for row in rows} == {"measured", "published", "imported"}
    assert any(row.costs.joules_per_image for row in rows)
    assert any(row.costs.accuracy_seconds for row in rows)
    assert max(row.sessions for row in rows) > 3


@pytest.mark.parametrize("conditions", CONDITIONS, ids=",".join)
def test_first_and_second_tables_equal_those_from_records(store, certificates, conditions):
    expected = build_tables(store, certificates, conditions)
    assert_equal_tables(read_tables(store, certificates, conditions)[0], expected)
    assert_equal_tables(read_tables(store, certificates, conditions)[0], expected)


@pytest.mark.deep
def test_tables_of_ten_thousand_records_equal_those_from_records(certificates, tmp_path):
    documents = [*diverse_records.generate_documents(10_000, certificates, seed=1)]
    store = fill_store(tmp_path / "results", documents)
    expected = build_tables(store, certificates)
    for _ in range(2):
        tables, damaged = read_tables(store, certificates)
        assert damaged == []
        assert_equal_tables(tables, expected)


def test_several_processes_give_the_same_tables(store, certificates, monkeypatch, read_ids):
    """This process reads no record."""
    monkeypatch.setattr(parallel.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(indexing, "_BATCH_RECORDS", 50)
    monkeypatch.setattr(ranked, "_MIN_PARALLEL_RECORDS", 1)
    monkeypatch.setattr(ranked, "_PART_RECORDS", 50)
    tables, _ = read_tables(store, certificates)
    assert read_ids == []
    assert_equal_tables(tables, build_tables(store, certificates))


def test_kept_rows_are_not_computed_again(store, certificates, read_ids):
    tables, _ = read_tables(store, certificates, KEPT)
    assert len({*read_ids}) > 100
    read_ids.clear()
    assert_equal_tables(read_tables(store, certificates, KEPT)[0], tables)
    assert read_ids == []


@pytest.fixture
def kept_record(store):
    """Return an ok record whose row is kept. It is in a pack."""
    single_ids = {path.stem for path in store.record_files()}
    return next(
        record
        for record in store.records()
        if record.request
        and record.request.ranks == 1
        and not record.request.profile
        and (record.status, record.source) == ("ok", "measured")
        and record.id[7:] not in single_ids
    )


def row_fields(record):
    request = record.request
    machine = record.machine.cpu_model if record.machine else None
    settings = request.workload, request.framework, request.kernel, request.threads
    return *settings, request.device, request.precision, request.ranks, machine


def test_new_record_is_read_with_the_records_of_its_rows_only(
    store, certificates, kept_record, read_ids
):
    read_tables(store, certificates, KEPT)
    store.add(vary_record(kept_record, request={"launch": 99}))
    read_ids.clear()
    tables, _ = read_tables(store, certificates, KEPT)
    records = {record.id[7:]: record for record in store.records()}
    assert {row_fields(records[identity]) for identity in read_ids} == {row_fields(kept_record)}
    assert_equal_tables(tables, build_tables(store, certificates, KEPT))


def test_deleted_pack_leaves_no_row(store, certificates):
    read_tables(store, certificates)
    for path in store.packs():
        path.unlink()
    assert_equal_tables(read_tables(store, certificates)[0], build_tables(store, certificates))


def test_edited_file_leaves_its_row(store, certificates, kept_record):
    """Its folder has the same modification time as before."""
    record = vary_record(kept_record, request={"launch": 99})
    store.add(record)
    path = store.record_path(record.id[7:])
    make_old(path)
    make_old(path.parent)
    tables, damaged = read_tables(store, certificates)
    assert damaged == []
    assert record.id in [i for table in tables for row in list_rows(table) for i in row.records]
    folder_times = path.parent.stat().st_atime_ns, path.parent.stat().st_mtime_ns
    path.write_text(path.read_text().replace('"ok"', '"failed"', 1))
    os.utime(path.parent, ns=folder_times)
    tables, damaged = read_tables(store, certificates)
    assert record.id not in [i for table in tables for row in list_rows(table) for i in row.records]
    assert len(damaged) == 1 and path.name in damaged[0]
    assert_equal_tables(tables, build_tables(store, certificates))


def test_rows_are_computed_again_if_certificates_change(store, certificates):
    read_tables(store, certificates)
    assert_equal_tables(read_tables(store, {})[0], build_tables(store, {}))


def test_rows_are_computed_again_for_another_accuracy(store, certificates):
    read_tables(store, certificates)
    tables, _ = read_tables(store, certificates, target_accuracy=0.5)
    rows = [row for table in tables for row in list_rows(table)]
    assert {row.costs.target for row in rows} == {0.5}


def test_rows_are_computed_again_by_other_code(store, certificates, monkeypatch, read_ids):
    read_tables(store, certificates)
    monkeypatch.setattr(ranked, "_digest_code", lambda: "other")
    read_ids.clear()
    read_tables(store, certificates)
    assert len({*read_ids}) == len([*store.records()])


def test_few_records_are_not_kept(store, certificates, monkeypatch, read_ids):
    monkeypatch.setattr(ranked, "MIN_KEPT_RECORDS", 10_000)
    read_tables(store, certificates)
    read_ids.clear()
    read_tables(store, certificates)
    assert len({*read_ids}) == len([*store.records()])


def test_invalid_record_is_reported_each_time(store, certificates, kept_record):
    document = kept_record.document()
    document["request"]["threads"] = "many"
    [line] = diverse_records.format_pack_lines(
        [{name: value for name, value in document.items() if name != "id"}]
    )
    pack.write_pack(store.folder / "packs", [line])
    for _ in range(2):
        _, damaged = read_tables(store, certificates)
        assert len(damaged) == 1 and "not a record" in damaged[0]


def test_damaged_kept_rows_are_computed_again(store, certificates):
    tables, _ = read_tables(store, certificates)
    with duckdb.connect(str(store.folder / index.FILE_NAME)) as connection:
        connection.execute("UPDATE kept SET text = '[]x'")
    assert_equal_tables(read_tables(store, certificates)[0], tables)


def test_oldest_kept_rows_are_dropped(store, certificates, monkeypatch):
    monkeypatch.setattr(index, "_MAX_KEPT_TEXTS", 5)
    for conditions in ((), ("status=ok",)):
        read_tables(store, certificates, conditions)
    with duckdb.connect(str(store.folder / index.FILE_NAME)) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchall() == [(5,)]
    tables, _ = read_tables(store, certificates)
    assert_equal_tables(tables, build_tables(store, certificates))
