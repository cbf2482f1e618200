"""Programs are kept whole, for their interpreter alone, in a folder of limited size."""

import os
from pathlib import Path

import pytest

from xfbench.worker import program_cache
from xfbench.worker.protocol import Unavailable


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "programs"


def private_copy(root, link="programs.0", **options):
    return program_cache.private_copy(root, "odd", Path(link), **options)


def keep(root, name, content=b"code"):
    """Keep a program, as a process does that compiles it."""
    with private_copy(root, "programs.1") as folder:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def list_kept(root):
    with private_copy(root, "programs.2") as folder:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_programs_are_kept_for_later_processes(root, tmp_path):
    keep(root, "step")
    keep(root, "tuning/product")
    assert list_kept(root) == {"step": b"code", "tuning/product": b"code"}
    assert [path.name for path in root.iterdir()] == [
        f"odd-{program_cache._interpreter_digest()}"  # and no private copy
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["programs"]  # and no link to it


def test_unfinished_file_of_another_process_is_not_seen(root):
    with private_copy(root) as first:
        (first / "step").write_bytes(b"co")
        assert list_kept(root) == {}
        (first / "step").write_bytes(b"code")
    assert list_kept(root) == {"step": b"code"}


def test_first_of_two_equal_names_is_kept(root):
    with private_copy(root) as slow:
        (slow / "step").write_bytes(b"second")
        keep(root, "step", b"first")
    assert list_kept(root) == {"step": b"first"}


def test_process_that_fails_keeps_nothing(root):
    with pytest.raises(RuntimeError), private_copy(root) as folder:
        (folder / "step").write_bytes(b"code")
        raise RuntimeError
    assert list_kept(root) == {}


def test_other_libraries_have_other_programs(root, monkeypatch):
    keep(root, "step")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/other/cudnn")
    assert list_kept(root) == {}


def test_oldest_programs_are_deleted(root):
    for age, name in enumerate(("new", "middle", "old")):
        keep(root, name, bytes(100))
        [file] = root.rglob(name)
        os.utime(file, (1e9 - age, 1e9 - age))
    with private_copy(root, max_bytes=250):
        pass
    assert set(list_kept(root)) == {"new", "middle"}


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_folder_that_others_may_write_to_is_refused(root, mode):
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(Unavailable, match="other users may write"):
        list_kept(root)


def test_no_programs_are_kept_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    with private_copy(tmp_path / "file" / "programs") as folder:
        assert folder is None


def test_programs_of_another_user_are_not_loaded(root, monkeypatch):
    keep(root, "step")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with private_copy(root) as folder:
        assert folder is None


def test_copy_of_a_process_that_crashed_is_deleted_later(root):
    keep(root, "step")
    crashed, running = root / "private-crashed", root / "private-running"
    for folder in (crashed, running):
        folder.mkdir()
    os.utime(crashed, (1e9, 1e9))
    keep(root, "other step")
    assert running.exists() and not crashed.exists()
