"""Files to which another user appends while they are read: no more is read than was checked."""

import os
import zipfile

import numpy as np
import pytest

from xfbench.base import safe_read, shared_files
from xfbench.equality import array_files
from xfbench.store import merging, pack
from xfbench.store.results_folder import Store
from xfbench.worker import formats, prepared
from xfbench.worker.formats import Damaged

GROWTH = 2**20


@pytest.fixture
def grow(monkeypatch):
    """A function: whenever the file at `path` was looked at, another user appends `content`."""

    def start(path, content=b"x" * GROWTH):
        identity = path.stat().st_ino

        def patch(name):
            look = getattr(os, name)

            def look_and_append(*args, **settings):
                status = look(*args, **settings)
                if status.st_ino == identity:
                    with path.open("ab") as file:
                        file.write(content)
                return status

            monkeypatch.setattr(os, name, look_and_append)

        for name in ("stat", "lstat", "fstat"):
            patch(name)

    return start


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    return path


@pytest.mark.parametrize(
    ("read", "looks"), [(safe_read.read_bytes, 2), (shared_files.read_own_file, 3)]
)
def test_document_that_grows_beyond_its_limit_is_refused(file, grow, read, looks):
    assert read(file, 5) == b"12345"
    with pytest.raises(ValueError, match="longer than"):
        read(file, 4)
    file.write_bytes(b"1")
    grow(file, b"2")
    with pytest.raises(ValueError, match="grew"):
        read(file, looks)  # its size when its size was looked at


def test_copy_stops_where_the_file_ended(file, grow, tmp_path):
    grow(file)
    shared_files.copy_content(file, tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_size <= 5 + GROWTH < file.stat().st_size


def test_file_that_another_user_could_change_is_not_copied_as_an_own_one(file, tmp_path):
    """It was replaced after its owner was looked at: now it is a file with a name elsewhere."""
    (tmp_path / "elsewhere").hardlink_to(file)
    with pytest.raises(shared_files.UnsafeFileError, match="several names"):
        shared_files.copy_content(file, tmp_path / "copy", only_own=True)
    assert not (tmp_path / "copy").exists()


def test_run_file_that_outgrows_its_limit_is_not_imported(
    tmp_path, record, run_inline, grow, monkeypatch
):
    theirs, ours = Store(tmp_path / "theirs"), Store(tmp_path / "ours")
    theirs.create_and_check_folders()
    run = theirs.create_run_folder()
    for name in ("stdout", "stderr"):
        (run / name).write_text("short")
    theirs.add(record(), run)
    monkeypatch.setattr(merging, "MAX_RUN_FILE_BYTES", 100)
    run = theirs.run_folder(next(theirs.records()))
    grow(run / "stdout")
    result = run_inline("results", "import", theirs.folder, "--results", ours.folder)
    assert result.returncode == 0, result.stderr
    [copied] = ours.records()
    assert [path.name for path in ours.run_folder(copied).iterdir()] == ["stderr"]


def test_lines_that_are_appended_to_a_pack_are_not_read(tmp_path, record, grow):
    store = Store(tmp_path / "results")
    store.create_and_check_folders()
    store.add(record())
    store.pack()
    [path] = store.packs()
    line = path.read_bytes()
    grow(path, line * 10)
    assert len([*pack.read_lines_and_defects(path)]) <= 1 + 10 + 1
    lines = path.read_bytes().count(b"\n")
    assert len(pack.read_stated_ids(path)) <= lines + 10 < path.read_bytes().count(b"\n")


@pytest.fixture
def arrays_file(tmp_path):
    path = tmp_path / "found.npz"
    np.savez(path, a=np.arange(6.0).reshape(2, 3), b=np.zeros((0, 3)), c=np.float32(7))
    return path


def test_arrays_are_read_as_numpy_reads_them(arrays_file):
    np.savez(arrays_file, a=np.arange(6.0).reshape(2, 3).T, b=np.zeros((0, 3)), c=np.float32(7))
    arrays = array_files.load_arrays(arrays_file)
    with np.load(arrays_file) as expected:
        assert [*arrays] == [*expected]
        for name in expected:
            np.testing.assert_array_equal(arrays[name], expected[name], strict=True)
    content = bytearray(arrays_file.read_bytes())
    content[content.index(np.arange(6.0).tobytes()) + 8] ^= 1
    arrays_file.write_bytes(content)
    with pytest.raises(zipfile.BadZipFile, match="CRC"):
        array_files.load_arrays(arrays_file)


def test_arrays_that_are_replaced_after_the_check_are_not_read(arrays_file, tmp_path, monkeypatch):
    """Another user replaces the content before the list of members is read again."""
    np.savez_compressed(tmp_path / "bomb.npz", a=np.zeros(10**7))
    bomb, lists = (tmp_path / "bomb.npz").read_bytes(), []
    read_list = zipfile.ZipFile._RealGetContents

    def replace_and_read_list(archive):
        lists.append(archive)
        if len(lists) == 2:
            arrays_file.write_bytes(bomb)
        read_list(archive)

    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", replace_and_read_list)
    assert sum(array.size for array in array_files.load_arrays(arrays_file).values()) == 7


def test_arrays_that_are_appended_after_the_check_are_not_read(arrays_file, monkeypatch):
    size = arrays_file.stat().st_size
    read_list = zipfile.ZipFile._RealGetContents

    def append_and_read_list(archive):
        monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", read_list)
        with zipfile.ZipFile(arrays_file, "a") as longer, longer.open("d.npy", "w") as member:
            np.lib.format.write_array(member, np.zeros(1000))
        read_list(archive)

    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", append_and_read_list)
    with pytest.raises(ValueError, match="overlap"):
        array_files.load_arrays(arrays_file)
    assert arrays_file.stat().st_size > size + 8000


def test_image_that_grows_is_read_as_it_was(file, grow, monkeypatch):
    monkeypatch.setattr(formats, "MAX_IMAGE_BYTES", 4)
    with pytest.raises(Damaged, match="larger than"):
        formats.read_image_path(file)
    grow(file)
    monkeypatch.setattr(formats, "MAX_IMAGE_BYTES", 4 * GROWTH)
    assert len(formats.read_image_path(file)) <= 4 * GROWTH


def test_manifest_that_grows_is_refused(tmp_path, grow, monkeypatch):
    path = tmp_path / "manifest.json"
    path.write_text("{}")
    monkeypatch.setattr(prepared, "MAX_MANIFEST_BYTES", 10)
    grow(path)
    with pytest.raises(Damaged, match="larger than"):
        prepared.read_manifest(tmp_path)
