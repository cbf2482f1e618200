"""The index: queries return what the record files contain, even if the index is wrong."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import temporary_mounts
from tests.sample_records import vary_record
from xfbench.base import safe_read
from xfbench.base.errors import UsageError
from xfbench.host.machine import describe_machine
from xfbench.store import index, indexing, selection
from xfbench.store.results_folder import Store


@pytest.fixture
def store(tmp_path, record):
    """Return a store with five launches of two networks, each on one and two threads."""
    new_store = Store(tmp_path / "results")
    new_store.create_and_check_folders()
    for launch in range(1, 6):
        for workload in ("lenet", "convnet"):
            for threads in (1, 2):
                new_store.add(
                    record(
                        steps=(0.1 + launch / 100,),
                        launch=launch,
                        workload=workload,
                        threads=threads,
                        fields={"machine": describe_machine()},
                    )
                )
    return new_store


def query_ids(store, *conditions, **options):
    """Return the ids of matching records and the reports of damage."""
    with index.open_index(store, print) as record_index:
        ids = [
            record.id
            for _, record in record_index.select(selection.parse_conditions(conditions), **options)
        ]
        return ids, record_index.damaged


def list_all_ids(store):
    return [record.id for record in store.records()]


def test_index_returns_all_records_in_order(store):
    assert query_ids(store) == (list_all_ids(store), [])
    newest_ids = query_ids(store, newest_first=True)[0]
    assert newest_ids == list_all_ids(store)[::-1]


def test_selection_returns_records_that_meet_all_conditions(store):
    ids, _ = query_ids(store, "workload=lenet", "threads>=2")
    expected_ids = [
        record.id
        for record in store.records()
        if (record.request.workload, record.request.threads) == ("lenet", 2)
    ]
    assert ids == expected_ids and len(ids) == 5


def test_index_reads_packed_and_single_records_alike(store, record):
    expected_ids = list_all_ids(store)
    assert query_ids(store)[0] == expected_ids
    store.pack()
    assert query_ids(store) == (expected_ids, [])
    new_record = record(launch=77)
    store.add(new_record)
    assert query_ids(store) == (list_all_ids(store), [])
    assert new_record.id in query_ids(store)[0]


def test_defects_of_a_pack_name_their_lines(store):
    store.pack()
    [path] = store.packs()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"ok"', b'"no"', 1)
    lines[11] = lines[11].replace(b'"ok"', b'"\xff"', 1)
    lines[17] = lines[17][:100]  # the next line is lost with it
    path.write_bytes(b"".join(lines))
    ids, damaged = query_ids(store)
    assert len(ids) == 20 - 4
    [edited, encoding, joined, name] = sorted(
        damaged,
        key=lambda line: int(line.split(" line ")[1].split(":")[0]) if " line " in line else 99,
    )
    for number, line in ((4, edited), (12, encoding), (18, joined)):
        assert line == f"{path.name} line {number}: the content does not match the id; left out"
    assert name == f"{path.name}: the name does not match the records: some are missing; left out"


def test_pack_with_a_record_twice_counts_it_once(store, monkeypatch):
    store.pack()
    monkeypatch.setattr(indexing, "_BATCH_RECORDS", 5)
    [path] = store.packs()
    content = path.read_bytes()
    path.write_bytes(content + content)
    ids, damaged = query_ids(store)
    assert ids == list_all_ids(store)
    assert len(damaged) == 1 and "the name does not match" in damaged[0]
    with index.open_index(store, print) as record_index:
        assert record_index.count_preselected() == 20


def test_text_with_a_null_character_is_stored(store, record):
    new_record = vary_record(record(launch=61), status="failed", reason="a\x00é")
    store.add(new_record)
    with index.open_index(store, print) as record_index:
        conditions = selection.parse_conditions(["reason=a\x00é"])
        assert [found.id for _, found in record_index.select(conditions)] == [new_record.id]
        assert record_index.count_preselected(conditions) == 1


def test_index_follows_added_and_removed_records(store, record):
    query_ids(store)
    new_record = record(launch=50)
    store.add(new_record)
    assert new_record.id in query_ids(store)[0]
    store.record_path(new_record.id[7:]).unlink()
    assert new_record.id not in query_ids(store)[0]
    assert query_ids(store)[0] == list_all_ids(store)


def test_record_added_without_a_folder_time_change_is_returned(store, record):
    """Some file systems keep the folder's time when a file is added."""
    query_ids(store)
    new_record = record(launch=51)
    folder = store.record_path(new_record.id[7:]).parent
    folder.mkdir(exist_ok=True)
    query_ids(store)
    times = folder.stat().st_atime_ns, folder.stat().st_mtime_ns
    store.add(new_record)
    os.utime(folder, ns=times)
    assert new_record.id in query_ids(store)[0]


def iterate_damages():
    yield "empty", lambda path: path.write_bytes(b"")
    yield "not a database", lambda path: path.write_bytes(b"junk" * 4096)
    yield "truncated", lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    yield "overwritten", overwrite_after_header
    yield "missing", lambda path: path.unlink()
    yield "another version", lambda path: execute_sql(path, "UPDATE meta SET version = 'x'")
    yield "another database", lambda path: execute_sql(path, "DROP TABLE records")
    yield "no meta", lambda path: execute_sql(path, "DROP TABLE meta")
    yield (
        "rows gone",
        lambda path: execute_sql(path, "DELETE FROM records WHERE starts_with(id, 'a')"),
    )
    yield "copies gone", lambda path: execute_sql(path, "DELETE FROM copies")


def overwrite_after_header(path):
    content = bytearray(path.read_bytes())
    start = 3 * 4096
    content[start:] = b"\xa5" * (len(content) - start)
    path.write_bytes(content)


def execute_sql(path, sql):
    with duckdb.connect(str(path)) as connection:
        connection.execute(sql)


DAMAGES = dict(iterate_damages())


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_index_is_rebuilt(store, damage):
    expected_answer = query_ids(store)
    DAMAGES[damage](store.folder / index.FILE_NAME)
    assert query_ids(store) == expected_answer
    assert query_ids(store, "workload=lenet")[0] == [
        record.id for record in store.records() if record.request.workload == "lenet"
    ]


def test_wrong_index_value_does_not_affect_a_selection(store):
    query_ids(store)
    execute_sql(store.folder / index.FILE_NAME, "UPDATE records SET \"request.workload\" = 'lenet'")
    matching_ids, _ = query_ids(store, "workload=lenet")
    assert matching_ids == [
        record.id for record in store.records() if record.request.workload == "lenet"
    ]


def test_edited_record_is_omitted_and_reported(store):
    first, second = list(store.record_files())[:2]
    first.write_text(first.read_text().replace('"ok"', '"failed"'))
    ids, damaged = query_ids(store)
    assert len(ids) == 19 and len(damaged) == 1 and first.name in damaged[0]
    time.sleep(0.01)
    second.write_text(second.read_text().replace("0.5", "0.4"))
    ids, damaged = query_ids(store)
    assert len(ids) == 18
    assert sorted(line.split(":")[0] for line in damaged) == sorted([first.name, second.name])


def test_repaired_record_is_returned_again(store):
    path = next(store.record_files())
    intact_text = path.read_text()
    path.write_text(intact_text.replace('"ok"', '"failed"'))
    old_time_s = path.stat().st_mtime - 100
    os.utime(path.parent, (old_time_s, old_time_s))
    assert len(query_ids(store)[0]) == 19
    path.write_text(intact_text)
    os.utime(path.parent, (old_time_s, old_time_s))
    assert query_ids(store) == (list_all_ids(store), [])


def replace_by_link(path):
    path.unlink()
    path.symlink_to(path.with_name("nothing"))


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


@pytest.fixture
def read_names(monkeypatch):
    """The names of the record files that are read, by the index and by its users."""
    names = []
    read = safe_read.read_bytes

    def note_and_read(path, *arguments, **options):
        names.append(path.name)
        return read(path, *arguments, **options)

    monkeypatch.setattr(safe_read, "read_bytes", note_and_read)
    return names


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text(path.read_text().replace('"ok"', '"failed"')),
        lambda path: path.write_bytes(path.read_bytes()[:99]),
        lambda path: path.write_bytes(b"\xff\x00" * 999),
        lambda path: path.write_bytes(b""),
        replace_by_link,
        replace_by_folder,
    ],
    ids=["edited", "cut", "binary", "empty", "link", "folder"],
)
@pytest.mark.parametrize("is_indexed", [False, True])
def test_damaged_file_is_read_once_until_it_changes(
    store, record, read_names, monkeypatch, damage, is_indexed
):
    monkeypatch.setattr(indexing, "_SETTLED_S", -1)  # what was just written has its final time
    path = next(store.record_files())
    intact_content = path.read_bytes()
    if is_indexed:
        query_ids(store)
    damage(path)
    ids, damaged = query_ids(store)
    assert path.name in read_names and len(ids) == 19 and len(damaged) == 1
    for launch in (90, 91):
        added = record(launch=launch)
        store.add(added)
        os.utime(path.parent)  # as if the record were in the same folder
        read_names.clear()
        assert query_ids(store)[1] == damaged and path.name not in read_names
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    assert query_ids(store)[1] == []
    path.write_bytes(intact_content)
    ids, damaged = query_ids(store)
    assert len(ids) == 22 and not damaged


def test_leaderboard_reads_a_damaged_file_once(store, read_names, run_inline, monkeypatch):
    monkeypatch.setattr(indexing, "_SETTLED_S", -1)
    run_inline("leaderboard")
    path = next(store.record_files())
    path.write_text(path.read_text().replace('"ok"', '"failed"'))
    first = run_inline("leaderboard")
    assert path.name in first.stderr and path.name in read_names
    for command in ("leaderboard", "results list", "report"):
        read_names.clear()
        outcome = run_inline(*command.split())
        assert path.name in outcome.stderr and path.name not in read_names
        assert len(read_names) >= 19


def test_unreadable_file_is_read_again(store, monkeypatch):
    """A plain file that cannot be read may be readable later, without any change of its state."""
    path = next(store.record_files())
    read = safe_read.read_bytes

    def fail(each, *arguments, **options):
        if each == path:
            raise OSError(5, "Input/output error")
        return read(each, *arguments, **options)

    with monkeypatch.context() as patches:
        patches.setattr(safe_read, "read_bytes", fail)
        assert [len(part) for part in query_ids(store)] == [19, 1]
    assert query_ids(store) == (list_all_ids(store), [])


def test_intact_copy_replaces_a_damaged_copy(store):
    original_records = list(store.records())
    store.pack()
    query_ids(store)
    store.add(original_records[0])
    with index.open_index(store, print) as record_index:
        assert record_index.count_preselected() == len(list(record_index.select())) == 20
    path = store.record_path(original_records[0].id[7:])
    path.write_text(path.read_text().replace('"ok"', '"failed"'))
    assert query_ids(store)[0] == [record.id for record in original_records]


def write_record(store, document):
    """Write a record with these fields to the store and return its id."""
    document = {name: value for name, value in document.items() if name != "id"}
    identity = indexing.digests.of_json(document)
    path = store.record_path(identity[7:])
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**document, "id": identity}))
    return identity


def test_record_with_unknown_fields_is_returned(store, record):
    document = {**record(launch=60).document(), "weather": {"\x00": "\x00", "deep": [[[{}]]]}}
    identity = write_record(store, document)
    assert identity in query_ids(store, "launch=60")[0]


def test_record_without_newer_fields_matches_their_defaults(store, record):
    document = record(launch=60).document()
    del document["request"]["checkpoints"], document["request"]["affinity"]
    identity = write_record(store, document)
    assert identity in query_ids(store, "checkpoints=0", "affinity=none", "checkpoints<1")[0]


def test_read_only_folder_can_be_queried(store, tmp_path):
    temporary_mounts.require_mounting()
    expected_answer = query_ids(store)
    with temporary_mounts.mount(
        tmp_path / "there", "-t", "tmpfs", "xfbench-results"
    ) as mount_point:
        shutil.copytree(store.folder, mount_point / "old")
        shutil.copytree(store.folder, mount_point / "none")
        (mount_point / "none" / index.FILE_NAME).unlink()
        temporary_mounts.make_read_only(mount_point)
        for name in ("old", "none"):
            assert query_ids(Store(mount_point / name)) == expected_answer
        assert not (mount_point / "none" / index.FILE_NAME).exists()


QUERY_SCRIPT = """
import sys
from pathlib import Path
from xfbench.store import index
from xfbench.store.results_folder import Store
for _ in range(int(sys.argv[2])):
    with index.open_index(Store(Path(sys.argv[1])), print) as found:
        count = sum(1 for _ in found.select())
        print(count, flush=True)
        if len(sys.argv) > 3:
            sys.stdin.readline()
"""


def start_query_process(store, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", QUERY_SCRIPT, str(store.folder), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_concurrent_queries_return_all_records(store):
    processes = [start_query_process(store, "5"), start_query_process(store, "5")]
    for process in processes:
        stdout, _ = process.communicate(timeout=60)
        assert [line for line in stdout.splitlines() if line.isdigit()] == ["20"] * 5
        assert process.returncode == 0
    assert query_ids(store) == (list_all_ids(store), [])


def test_query_uses_a_private_index_if_the_index_is_locked(store, monkeypatch):
    monkeypatch.setattr(index, "_LOCK_TIMEOUT_S", 0.1)
    process = start_query_process(store, "1", "hold")
    assert process.stdout.readline() == "20\n"
    try:
        assert query_ids(store) == (list_all_ids(store), [])
    finally:
        process.communicate("\n", timeout=60)


def test_index_works_while_another_program_has_the_file_open(store):
    query_ids(store)
    inode = (store.folder / index.FILE_NAME).stat().st_ino
    script = "import duckdb,sys; c = duckdb.connect(sys.argv[1]); print(1, flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(store.folder / index.FILE_NAME)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    try:
        assert query_ids(store) == (list_all_ids(store), [])
        assert (store.folder / index.FILE_NAME).stat().st_ino == inode
    finally:
        process.communicate(b"\n", timeout=60)


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.04, 0.08])
def test_index_answers_correctly_after_a_kill(store, delay_s):
    process = subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True)\n" + QUERY_SCRIPT, str(store.folder), "1"],
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    deadline = time.monotonic() + 10
    while not (store.folder / index.FILE_NAME).exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert query_ids(store) == (list_all_ids(store), [])


@pytest.mark.parametrize("interrupted", ["_ids_in_folder", "_add_files", "_note_counts"])
def test_interrupted_update_neither_loses_nor_doubles_records(
    store, record, monkeypatch, interrupted
):
    """All folders seem to have changed, as after a copy. Kept texts are not lost either."""
    with index.open_index(store, print) as record_index:
        record_index.keep({"name": ("1", "text")})
    store.add(record(launch=70))
    for path in (store.folder / "records").iterdir():
        os.utime(path, (1e9, 1e9))

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(indexing, interrupted, interrupt)
        with pytest.raises(KeyboardInterrupt):
            query_ids(store)
    assert query_ids(store) == (list_all_ids(store), [])
    with index.open_index(store, print) as record_index:
        assert record_index.count_preselected() == 21
        assert record_index.find_kept({"name": "1"}) == {"name": "text"}


def test_interrupted_first_update_neither_loses_nor_doubles_records(store, monkeypatch):
    monkeypatch.setattr(indexing, "_BATCH_RECORDS", 3)
    note_counts = indexing._note_counts

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(indexing, "_note_counts", interrupt)
    with pytest.raises(KeyboardInterrupt):
        query_ids(store)
    monkeypatch.setattr(indexing, "_note_counts", note_counts)
    with index.open_index(store, print) as record_index:
        assert record_index.count_preselected() == len([*record_index.select()]) == 20


def test_index_that_cannot_keep_texts_goes_on(store, monkeypatch):
    with index.open_index(store, print) as record_index:
        record_index.keep({"name": ("1", "text")})
        assert record_index.find_kept({"name": "1"}) == {"name": "text"}
        assert record_index.find_kept({"name": "2"}) == {}
        record_index._connection.execute("DROP TABLE kept")
        record_index.keep({"name": ("1", "text")})
        assert len([*record_index.select()]) == 20


def test_index_groups_records_with_equal_fields(store):
    fields = ("request.workload", "request.threads")
    conditions = selection.parse_conditions(["launch>1"])
    with index.open_index(store, print) as record_index:
        groups = sorted(record_index.group(fields, conditions))
        numbers = [group.number for group in groups]
        assert [group.records for group in groups] == [4] * 4
        assert len({*numbers}) == len({group.digest for group in groups}) == 4
        chosen = [*record_index.find_in_groups(fields, numbers[:3], conditions)]
        assert sorted(record_index.group(fields, conditions)) == groups
    records_by_number = {
        number: [index.read_if_matching(copies, ())[0][1] for _, copies in group]
        for number, group in itertools.groupby(chosen, key=lambda pair: pair[0])
    }
    assert {*records_by_number} == {*numbers[:3]}
    for records in records_by_number.values():
        assert len({(record.request.workload, record.request.threads) for record in records}) == 1
        assert [record.request.launch for record in records] == [2, 3, 4, 5]


VALUES = {
    "request.framework": st.sampled_from(["reference", "torch", "Ref", "null", "", "ü"]),
    "request.threads": st.sampled_from(["1", "2", "1.5", "null", "-1", "1e0"]),
    "request.checkpoints": st.sampled_from(["0", "1", "null"]),
    "request.site": st.sampled_from(["null", "x"]),
    "created": st.sampled_from(["2000", "2999", "null"]),
    "source": st.sampled_from(["measured", "published"]),
    "schema": st.sampled_from(["xfbench.record/1", "other", "null"]),
    "checkpoints.equal": st.sampled_from(["true", "false", "null"]),
    "software.packages.numpy": st.sampled_from(["1", "null"]),
    "measurement.wall_seconds": st.sampled_from(["0.61", "0.615", "0", "null"]),
    "machine.cpu_model": st.sampled_from(["epyc", "a", "null", "é"]),
    "observed.affinity": st.sampled_from(["0", "1", "null"]),
}
OPERATORS = st.sampled_from(["=", "!=", ">=", "<=", ">", "<", "~"])


@pytest.fixture
def open_records(store):
    with index.open_index(store, print) as record_index:
        yield lambda: (record_index, list(store.records()))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_index_selects_the_same_records_as_the_conditions(open_records, data):
    record_index, records = open_records()
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    texts = [f"{name}{data.draw(OPERATORS)}{data.draw(VALUES[name])}" for name in names]
    try:
        conditions = selection.parse_conditions(texts)
    except UsageError:
        return
    expected_ids = [
        record.id
        for record in records
        if all(condition.holds(record.document()) for condition in conditions)
    ]
    assert [record.id for _, record in record_index.select(conditions)] == expected_ids
    assert [record.id for _, record in record_index.newest(conditions, 3)] == expected_ids[::-1][:3]


def test_simultaneous_records_come_in_the_order_of_their_ids(store, simultaneous):
    assert query_ids(store, "launch>=100")[0] == sorted(simultaneous)
    assert query_ids(store, "launch>=100", newest_first=True)[0] == sorted(
        simultaneous, reverse=True
    )
