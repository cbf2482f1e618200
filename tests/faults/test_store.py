"""What can befall a results folder: what is done is kept, what is no record is told, and the rest.

Kills while packing and indexing are in tests/results, of a whole run in tests/cli/test_study.py.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests import temporary_mounts
from tests.faults.driver import command
from xfbench.base.errors import UsageError
from xfbench.exchange import audit
from xfbench.model import certificate
from xfbench.model.sealed import MAX_DOCUMENT_BYTES
from xfbench.store import index, lookup
from xfbench.store.results_folder import Store

ROOT = Path(__file__).parents[2]
# In its second launch the worker takes all the room there is, and says so as well as it can.
FILLS = """
import os
if len(os.listdir("..")) > 1:
    with open("filler", "wb", buffering=0) as file:
        while True: file.write(b"x" * 65536)
"""


@pytest.fixture
def small_disk(tmp_path):
    """A results folder on a disk of some megabytes."""
    with temporary_mounts.tmpfs(tmp_path, "disk", options="size=6m") as point:
        yield point / "results"


def test_full_disk_ends_the_run_in_one_line_and_resume_finishes(odd, xfbench, small_disk):
    words = [*odd(FILLS, launches=3), f"--results={small_disk}"]
    told = xfbench(*words)
    assert told.returncode == 1
    last = told.stderr.strip().splitlines()[-1]
    assert "No space left on device" in last and "--resume" in last, told.stderr
    store = Store(small_disk)
    [first] = store.records()
    assert first.status == "ok"
    assert not list((store.folder / "records").rglob("*.partial"))
    [left] = (small_disk / "runs").glob("running-*")
    (left / "filler").unlink()
    words = [*odd("", launches=3), f"--results={small_disk}", "--resume"]
    assert xfbench(*words).returncode == 0
    kept = list(store.records())
    assert sorted(record.request.launch for record in kept) == [1, 2, 3]
    assert first in kept


def test_read_only_results_folder_is_reported_before_a_launch(odd, xfbench, tmp_path):
    words = odd("")
    with temporary_mounts.tmpfs(tmp_path, "disk") as point:
        for there in (False, True):
            folder = point / "results"
            if there:
                temporary_mounts.remount(point, "rw")
                Store(folder).prepare()
            temporary_mounts.make_read_only(point)
            told = xfbench(*words, f"--results={folder}")
            assert told.returncode in (1, 2)
            assert "Read-only file system" in told.stderr.splitlines()[-1]
            assert not list(point.rglob("running-*"))


@pytest.mark.deep
def test_two_drivers_in_one_folder_keep_all_records(odd, tmp_path):
    results = tmp_path / "results"
    words = [odd("", launches=2, steps=steps, results=results) for steps in (3, 4)]
    both = [
        subprocess.Popen(
            command(*one), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for one in words
    ]
    said = [one.communicate(timeout=120)[1] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    complaints = []
    kept = list(Store(results).records(complaints.append))
    assert sorted((one.request.steps, one.request.launch) for one in kept) == [
        *((3, 1), (3, 2)),
        *((4, 1), (4, 2)),
    ]
    assert complaints == []
    assert sorted(path.name for path in (results / "runs").iterdir()) == sorted(
        one.id[7:23] for one in kept
    )


def endless(path):
    with path.open("wb") as file:
        file.truncate(MAX_DOCUMENT_BYTES + 1)


DAMAGE = {
    "empty": lambda path, _: path.write_bytes(b""),
    "cut off": lambda path, text: path.write_text(text[: len(text) // 2]),
    "no text": lambda path, _: path.write_bytes(b"\xff\xfe{}"),
    "another's content": lambda path, text: path.write_text(text.replace('"ok"', '"failed"')),
    "nested without end": lambda path, _: path.write_bytes(b"[" * 10**5),
    "endless": lambda path, _: endless(path),
    "of a schema to come": lambda path, text: path.write_text(text.replace("record/1", "record/2")),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a folder": lambda path, _: path.mkdir(),
    "a link to nowhere": lambda path, _: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_record_is_reported_and_good_records_are_read(record, tmp_path, damage):
    store = Store(tmp_path / "results")
    store.prepare()
    good, bad = record(launch=1), record(launch=2)
    store.add(good)
    store.add(bad)
    path = store.record_path(bad.id[7:])
    text = path.read_text()
    path.unlink()
    DAMAGE[damage](path, text)
    complaints = []
    assert list(store.records(complaints.append)) == [good]
    with index.open_index(store, print) as found:
        assert [one for _, one in found.select()] == [good]
        assert [len(told.splitlines()) for told in found.damaged] == [1] * len(found.damaged)
        assert found.damaged or damage == "a link to nowhere"
    assert lookup.finished_records([good.request, bad.request], store) == [good]
    if damage != "a link to nowhere":  # as one that was packed meanwhile
        [told] = complaints
        assert path.name in told and len(told) < 300
        assert str(path) in {one.file for one in audit.validate(store.folder)[1]}
    store.pack()
    assert os.path.lexists(path)
    if damage != "a folder":
        store.add(bad)
        assert list(store.records()) == [good, bad]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_certificate_is_reported_in_one_line(tmp_path, damage):
    path = tmp_path / "certificates" / f"{'ab' * 32}.json"
    path.parent.mkdir()
    DAMAGE[damage](path, '{"schema": "xfbench.record/1", "verdict": "ok"}')
    [(identity, told)] = certificate.read_folder(tmp_path).items()
    assert identity == f"sha256:{path.stem}"
    assert isinstance(told, str) and len(told.splitlines()) == 1 and path.name in told


def test_clock_set_back_hides_no_record(record, tmp_path):
    store = Store(tmp_path / "results")
    store.prepare()
    today = record(launch=1)
    store.add(today)
    with index.open_index(store, print) as found:
        assert [one for _, one in found.select()] == [today]
    early = record(launch=2, fields={"created": "1970-01-01T00:00:01.000Z"})
    store.add(early)
    path = store.record_path(early.id[7:])
    for one in (path, path.parent):
        os.utime(one, (1, 1))
    assert lookup.finished_records([today.request, early.request], store) == [early, today]
    assert list(store.records()) == [early, today]


def test_index_of_another_user_is_not_opened(record, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("giving a file away needs root")
    store = Store(tmp_path / "results")
    store.prepare()
    kept = record()
    store.add(kept)
    with index.open_index(store, print) as found:
        assert found.count() == 1
    theirs = store.folder / index.FILE_NAME
    os.chown(theirs, 65534, 65534)
    before = theirs.read_bytes()
    with index.open_index(store, print) as found:
        assert [one for _, one in found.select()] == [kept]
    assert theirs.read_bytes() == before
    theirs.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(before)
    theirs.symlink_to(elsewhere)
    with index.open_index(store, print) as found:
        assert [one for _, one in found.select()] == [kept]
    assert elsewhere.read_bytes() == before


@pytest.mark.parametrize("which", [".", "runs"])
def test_world_writable_results_folder_is_refused(tmp_path, which):
    store = Store(tmp_path / "results")
    store.prepare()
    (store.folder / which).chmod(0o777)
    with pytest.raises(UsageError, match=r"writable by everybody.*--results"):
        store.prepare()
    (store.folder / which).chmod(0o1777)  # where each may replace his own, as in /tmp
    store.prepare()


def test_file_modes_follow_the_umask(record, tmp_path):
    store = Store(tmp_path / "results")
    store.prepare()
    for launch, mask in enumerate((0o077, 0o027, 0o022, 0o002), 1):
        kept = record(launch=launch)
        before = os.umask(mask)
        try:
            store.add(kept, store.create_run_folder())
            assert store.record_path(kept.id[7:]).stat().st_mode & 0o777 == 0o666 & ~mask
        finally:
            os.umask(before)
        assert store.run_folder(kept).stat().st_mode & 0o777 == 0o700
