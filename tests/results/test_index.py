"""The index: it finds what the files have, whatever becomes of it, and is believed in nothing."""

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
from xfbench.base.errors import UsageError
from xfbench.host.machine import describe
from xfbench.results import index, indexing, selection
from xfbench.results.store import Store


@pytest.fixture
def store(tmp_path, record):
    """Twenty launches of two networks, on one and two threads."""
    made = Store(tmp_path / "results")
    made.prepare()
    for launch in range(1, 6):
        for workload in ("lenet", "convnet"):
            for threads in (1, 2):
                made.add(
                    record(
                        steps=(0.1 + launch / 100,),
                        launch=launch,
                        workload=workload,
                        threads=threads,
                        fields={"machine": describe()},
                    )
                )
    return made


def ask(store, *conditions, **options):
    """Ids of what meets the conditions, and what was complained of."""
    with index.open_index(store, print) as found:
        ids = [one.id for _, one in found.select(selection.parse_conditions(conditions), **options)]
        return ids, found.damaged


def everything(store):
    return [record.id for record in store.records()]


def test_index_returns_all_records_in_order(store):
    assert ask(store) == (everything(store), [])
    newest = ask(store, newest=True)[0]
    assert newest == everything(store)[::-1]


def test_selection_returns_records_that_meet_all_conditions(store):
    ids, _ = ask(store, "workload=lenet", "threads>=2")
    wanted = [
        one.id
        for one in store.records()
        if (one.request.workload, one.request.threads) == ("lenet", 2)
    ]
    assert ids == wanted and len(ids) == 5


def test_index_reads_packed_and_single_records_alike(store, record):
    before = everything(store)
    assert ask(store)[0] == before
    store.pack()
    assert ask(store) == (before, [])
    new = record(launch=77)
    store.add(new)
    assert ask(store) == (everything(store), [])
    assert new.id in ask(store)[0]


def test_index_follows_added_and_removed_records(store, record):
    ask(store)
    new = record(launch=50)
    store.add(new)
    assert new.id in ask(store)[0]
    store.record_path(new.id[7:]).unlink()
    assert new.id not in ask(store)[0]
    assert ask(store)[0] == everything(store)


def test_record_added_without_a_folder_time_change_is_returned(store, record):
    """The folder's time need not change."""
    ask(store)
    new = record(launch=51)
    folder = store.record_path(new.id[7:]).parent
    folder.mkdir(exist_ok=True)
    ask(store)
    times = folder.stat().st_atime_ns, folder.stat().st_mtime_ns
    store.add(new)
    os.utime(folder, ns=times)
    assert new.id in ask(store)[0]


def damages():
    yield "empty", lambda path: path.write_bytes(b"")
    yield "no database", lambda path: path.write_bytes(b"junk" * 4096)
    yield "cut off", lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    yield "a hole", hole
    yield "missing", lambda path: path.unlink()
    yield "another version", lambda path: change(path, "UPDATE meta SET version = 'x'")
    yield "another database", lambda path: change(path, "DROP TABLE records")
    yield "no meta", lambda path: change(path, "DROP TABLE meta")
    yield "rows gone", lambda path: change(path, "DELETE FROM records WHERE starts_with(id, 'a')")
    yield "copies gone", lambda path: change(path, "DELETE FROM copies")


def hole(path):
    content = bytearray(path.read_bytes())
    start = 3 * 4096
    content[start:] = b"\xa5" * (len(content) - start)
    path.write_bytes(content)


def change(path, sql):
    with duckdb.connect(str(path)) as connection:
        connection.execute(sql)


DAMAGES = dict(damages())


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_index_is_rebuilt(store, damage):
    right = ask(store)
    DAMAGES[damage](store.folder / index.FILE_NAME)
    assert ask(store) == right
    assert ask(store, "workload=lenet")[0] == [
        one.id for one in store.records() if one.request.workload == "lenet"
    ]


def test_wrong_index_value_does_not_affect_a_selection(store):
    ask(store)
    change(store.folder / index.FILE_NAME, "UPDATE records SET \"request.workload\" = 'lenet'")
    found, _ = ask(store, "workload=lenet")
    assert found == [one.id for one in store.records() if one.request.workload == "lenet"]


def test_edited_record_is_omitted_and_reported(store):
    first, second = list(store.record_files())[:2]
    first.write_text(first.read_text().replace('"ok"', '"failed"'))
    ids, damaged = ask(store)
    assert len(ids) == 19 and len(damaged) == 1 and first.name in damaged[0]
    time.sleep(0.01)
    second.write_text(second.read_text().replace("0.5", "0.4"))
    ids, damaged = ask(store)
    assert len(ids) == 18
    assert sorted(line.split(":")[0] for line in damaged) == sorted([first.name, second.name])


def test_repaired_record_is_returned_again(store):
    path = next(store.record_files())
    good = path.read_text()
    path.write_text(good.replace('"ok"', '"failed"'))
    old = path.stat().st_mtime - 100
    os.utime(path.parent, (old, old))
    assert len(ask(store)[0]) == 19
    path.write_text(good)
    os.utime(path.parent, (old, old))
    assert ask(store) == (everything(store), [])


def test_intact_copy_replaces_a_damaged_copy(store):
    before = list(store.records())
    store.pack()
    ask(store)
    store.add(before[0])
    with index.open_index(store, print) as found:
        assert found.count() == len(list(found.select())) == 20
    path = store.record_path(before[0].id[7:])
    path.write_text(path.read_text().replace('"ok"', '"failed"'))
    assert ask(store)[0] == [one.id for one in before]


def keep(store, document):
    """A record of these values in the store; its id."""
    document = {name: value for name, value in document.items() if name != "id"}
    identity = indexing.digests.of_json(document)
    path = store.record_path(identity[7:])
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**document, "id": identity}))
    return identity


def test_record_with_unknown_fields_is_returned(store, record):
    document = {**record(launch=60).document(), "weather": {"\x00": "\x00", "deep": [[[{}]]]}}
    identity = keep(store, document)
    assert identity in ask(store, "launch=60")[0]


def test_record_without_newer_fields_matches_their_defaults(store, record):
    document = record(launch=60).document()
    del document["request"]["checkpoints"], document["request"]["affinity"]
    identity = keep(store, document)
    assert identity in ask(store, "checkpoints=0", "affinity=none", "checkpoints<1")[0]


def test_read_only_folder_can_be_queried(store, tmp_path):
    temporary_mounts.require_mounting()
    right = ask(store)
    with temporary_mounts.mount(tmp_path / "there", "-t", "tmpfs", "xfbench-results") as point:
        shutil.copytree(store.folder, point / "old")
        shutil.copytree(store.folder, point / "none")
        (point / "none" / index.FILE_NAME).unlink()
        temporary_mounts.make_read_only(point)
        for name in ("old", "none"):
            assert ask(Store(point / name)) == right
        assert not (point / "none" / index.FILE_NAME).exists()


ASK = """
import sys
from pathlib import Path
from xfbench.results import index
from xfbench.results.store import Store
for _ in range(int(sys.argv[2])):
    with index.open_index(Store(Path(sys.argv[1])), print) as found:
        count = sum(1 for _ in found.select())
        print(count, flush=True)
        if len(sys.argv) > 3:
            sys.stdin.readline()
"""


def asking(store, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", ASK, str(store.folder), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_concurrent_queries_return_all_records(store):
    both = [asking(store, "5"), asking(store, "5")]
    for one in both:
        said, _ = one.communicate(timeout=60)
        assert [line for line in said.splitlines() if line.isdigit()] == ["20"] * 5
        assert one.returncode == 0
    assert ask(store) == (everything(store), [])


def test_query_uses_a_private_index_if_the_index_is_locked(store, monkeypatch):
    monkeypatch.setattr(index, "_LOCK_TIMEOUT_S", 0.1)
    other = asking(store, "1", "hold")
    assert other.stdout.readline() == "20\n"
    try:
        assert ask(store) == (everything(store), [])
    finally:
        other.communicate("\n", timeout=60)


def test_index_works_while_another_program_has_the_file_open(store):
    ask(store)
    inode = (store.folder / index.FILE_NAME).stat().st_ino
    script = "import duckdb,sys; c = duckdb.connect(sys.argv[1]); print(1, flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(store.folder / index.FILE_NAME)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    other.stdout.readline()
    try:
        assert ask(store) == (everything(store), [])
        assert (store.folder / index.FILE_NAME).stat().st_ino == inode
    finally:
        other.communicate(b"\n", timeout=60)


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.04, 0.08])
def test_index_answers_correctly_after_a_kill(store, moment):
    other = subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True)\n" + ASK, str(store.folder), "1"],
        stdout=subprocess.PIPE,
    )
    other.stdout.readline()
    deadline = time.monotonic() + 10
    while not (store.folder / index.FILE_NAME).exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(moment)
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert ask(store) == (everything(store), [])


def test_index_groups_records_with_equal_fields(store):
    with index.open_index(store, print) as found:
        parts = [
            [one for _, one in part]
            for part in found.parts(("request.workload", "request.threads"))
        ]
    assert [len(part) for part in parts] == [5] * 4
    for part in parts:
        assert len({(one.request.workload, one.request.threads) for one in part}) == 1


VALUES = {
    "request.framework": st.sampled_from(["reference", "torch", "Ref", "null", "", "ü"]),
    "request.threads": st.sampled_from(["1", "2", "1.5", "null", "-1", "1e0"]),
    "request.checkpoints": st.sampled_from(["0", "1", "null"]),
    "request.site": st.sampled_from(["null", "x"]),
    "created": st.sampled_from(["2000", "2999", "null"]),
    "source": st.sampled_from(["measured", "published"]),
    "checkpoints.equal": st.sampled_from(["true", "false", "null"]),
    "software.packages.numpy": st.sampled_from(["1", "null"]),
    "measurement.wall_seconds": st.sampled_from(["0.61", "0.615", "0", "null"]),
    "machine.cpu_model": st.sampled_from(["epyc", "a", "null", "é"]),
    "observed.affinity": st.sampled_from(["0", "1", "null"]),
}
HOWS = st.sampled_from(["=", "!=", ">=", "<=", ">", "<", "~"])


@pytest.fixture
def known(store):
    with index.open_index(store, print) as found:
        yield lambda: (found, list(store.records()))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_index_selects_the_same_records_as_the_conditions(known, data):
    found, records = known()
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    texts = [f"{name}{data.draw(HOWS)}{data.draw(VALUES[name])}" for name in names]
    try:
        conditions = selection.parse_conditions(texts)
    except UsageError:
        return
    wanted = [one.id for one in records if all(each.holds(one.document()) for each in conditions)]
    assert [one.id for _, one in found.select(conditions)] == wanted
    assert [one.id for _, one in found.newest(conditions, 3)] == wanted[::-1][:3]


def test_simultaneous_records_come_in_the_order_of_their_ids(store, simultaneous):
    assert ask(store, "launch>=100")[0] == sorted(simultaneous)
    assert ask(store, "launch>=100", newest=True)[0] == sorted(simultaneous, reverse=True)
