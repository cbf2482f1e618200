"""Faults in a results folder: completed records are kept and invalid files are reported.

Kills while packing and indexing are in tests/store, kills of a run in tests/cli/test_study.py.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests import temporary_mounts
from tests.faults.driver import build_command
from xfbench.base.errors import UsageError
from xfbench.exchange import audit
from xfbench.model import certificate
from xfbench.model.sealed import MAX_DOCUMENT_BYTES
from xfbench.store import index, lookup
from xfbench.store.results_folder import Store

ROOT = Path(__file__).parents[2]
# In its second launch the worker fills the disk.
FILL_DISK = """
import os
if len(os.listdir("..")) > 1:
    with open("filler", "wb", buffering=0) as file:
        while True: file.write(b"x" * 65536)
"""


@pytest.fixture
def small_disk(tmp_path):
    """Yield a results folder on a disk of 6 MB."""
    with temporary_mounts.tmpfs(tmp_path, "disk", options="size=6m") as point:
        yield point / "results"


def test_full_disk_ends_the_run_in_one_line_and_resume_finishes(
    run_arguments, run_inline, small_disk
):
    arguments = [*run_arguments(FILL_DISK, launches=3), f"--results={small_disk}"]
    completed = run_inline(*arguments)
    assert completed.returncode == 1
    last_line = completed.stderr.strip().splitlines()[-1]
    assert "No space left on device" in last_line and "--resume" in last_line, completed.stderr
    store = Store(small_disk)
    [first_record] = store.records()
    assert first_record.status == "ok"
    assert not list((store.folder / "records").rglob("*.partial"))
    [unfinished_folder] = (small_disk / "runs").glob("running-*")
    (unfinished_folder / "filler").unlink()
    arguments = [*run_arguments("", launches=3), f"--results={small_disk}", "--resume"]
    assert run_inline(*arguments).returncode == 0
    records = list(store.records())
    assert sorted(record.request.launch for record in records) == [1, 2, 3]
    assert first_record in records


def test_read_only_results_folder_is_reported_before_a_launch(run_arguments, run_inline, tmp_path):
    arguments = run_arguments("")
    with temporary_mounts.tmpfs(tmp_path, "disk") as point:
        for exists in (False, True):
            folder = point / "results"
            if exists:
                temporary_mounts.remount(point, "rw")
                Store(folder).create_and_check_folders()
            temporary_mounts.make_read_only(point)
            completed = run_inline(*arguments, f"--results={folder}")
            assert completed.returncode in (1, 2)
            assert "Read-only file system" in completed.stderr.splitlines()[-1]
            assert not list(point.rglob("running-*"))


@pytest.mark.deep
def test_two_drivers_in_one_folder_keep_all_records(run_arguments, tmp_path):
    results = tmp_path / "results"
    argument_lists = [
        run_arguments("", launches=2, steps=steps, results=results) for steps in (3, 4)
    ]
    drivers = [
        subprocess.Popen(
            build_command(*arguments),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for arguments in argument_lists
    ]
    errors = [driver.communicate(timeout=120)[1] for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], errors
    complaints = []
    records = list(Store(results).records(complaints.append))
    assert sorted((record.request.steps, record.request.launch) for record in records) == [
        *((3, 1), (3, 2)),
        *((4, 1), (4, 2)),
    ]
    assert complaints == []
    assert sorted(path.name for path in (results / "runs").iterdir()) == sorted(
        record.id[7:23] for record in records
    )


def write_oversized_file(path):
    with path.open("wb") as file:
        file.truncate(MAX_DOCUMENT_BYTES + 1)


DAMAGE = {
    "empty": lambda path, _: path.write_bytes(b""),
    "truncated": lambda path, text: path.write_text(text[: len(text) // 2]),
    "not text": lambda path, _: path.write_bytes(b"\xff\xfe{}"),
    "another's content": lambda path, text: path.write_text(text.replace('"ok"', '"failed"')),
    "too deeply nested": lambda path, _: path.write_bytes(b"[" * 10**5),
    "too large": lambda path, _: write_oversized_file(path),
    "a later schema": lambda path, text: path.write_text(text.replace("record/1", "record/2")),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a folder": lambda path, _: path.mkdir(),
    "a link to nowhere": lambda path, _: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_record_is_reported_and_good_records_are_read(record, tmp_path, damage):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    good_record, bad_record = record(launch=1), record(launch=2)
    store.add(good_record)
    store.add(bad_record)
    path = store.record_path(bad_record.id[7:])
    text = path.read_text()
    path.unlink()
    DAMAGE[damage](path, text)
    complaints = []
    assert list(store.records(complaints.append)) == [good_record]
    with index.open_index(store, print) as record_index:
        assert [indexed for _, indexed in record_index.select()] == [good_record]
        assert [len(message.splitlines()) for message in record_index.damaged] == [1] * len(
            record_index.damaged
        )
        assert record_index.damaged or damage == "a link to nowhere"
    assert lookup.find_ok_or_invalid_records([good_record.request, bad_record.request], store) == [
        good_record
    ]
    if damage != "a link to nowhere":  # a missing file may have been packed meanwhile
        [complaint] = complaints
        assert path.name in complaint and len(complaint) < 300
        assert str(path) in {problem.file for problem in audit.validate_results(store.folder)[1]}
    store.pack()
    assert os.path.lexists(path)
    if damage != "a folder":
        store.add(bad_record)
        assert list(store.records()) == [good_record, bad_record]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_certificate_is_reported_in_one_line(tmp_path, damage):
    path = tmp_path / "certificates" / f"{'ab' * 32}.json"
    path.parent.mkdir()
    DAMAGE[damage](path, '{"schema": "xfbench.record/1", "verdict": "ok"}')
    [(identity, message)] = certificate.read_certificates(tmp_path).items()
    assert identity == f"sha256:{path.stem}"
    assert isinstance(message, str) and len(message.splitlines()) == 1 and path.name in message


def test_clock_set_back_hides_no_record(record, tmp_path):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    today_record = record(launch=1)
    store.add(today_record)
    with index.open_index(store, print) as record_index:
        assert [indexed for _, indexed in record_index.select()] == [today_record]
    early_record = record(launch=2, fields={"created": "1970-01-01T00:00:01.000Z"})
    store.add(early_record)
    path = store.record_path(early_record.id[7:])
    for changed_path in (path, path.parent):
        os.utime(changed_path, (1, 1))
    assert lookup.find_ok_or_invalid_records(
        [today_record.request, early_record.request], store
    ) == [
        early_record,
        today_record,
    ]
    assert list(store.records()) == [early_record, today_record]


def test_index_of_another_user_is_not_opened(record, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("changing the owner of a file needs root")
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    stored_record = record()
    store.add(stored_record)
    with index.open_index(store, print) as record_index:
        assert record_index.count_preselected() == 1
    index_file = store.folder / index.FILE_NAME
    os.chown(index_file, 65534, 65534)
    content = index_file.read_bytes()
    with index.open_index(store, print) as record_index:
        assert [indexed for _, indexed in record_index.select()] == [stored_record]
    assert index_file.read_bytes() == content
    index_file.unlink()
    target = tmp_path / "elsewhere"
    target.write_bytes(content)
    index_file.symlink_to(target)
    with index.open_index(store, print) as record_index:
        assert [indexed for _, indexed in record_index.select()] == [stored_record]
    assert target.read_bytes() == content


@pytest.mark.parametrize("name", [".", "runs"])
def test_world_writable_results_folder_is_refused(tmp_path, name):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    (store.folder / name).chmod(0o777)
    with pytest.raises(UsageError, match=r"writable by all users.*--results"):
        store.create_and_check_folders()
    (store.folder / name).chmod(0o1777)  # the sticky bit protects files, as in /tmp
    store.create_and_check_folders()


def test_file_modes_follow_the_umask(record, tmp_path):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    for launch, mask in enumerate((0o077, 0o027, 0o022, 0o002), 1):
        stored_record = record(launch=launch)
        previous_mask = os.umask(mask)
        try:
            store.add(stored_record, store.create_run_folder())
            assert store.record_path(stored_record.id[7:]).stat().st_mode & 0o777 == 0o666 & ~mask
        finally:
            os.umask(previous_mask)
        assert store.run_folder(stored_record).stat().st_mode & 0o777 == 0o700
