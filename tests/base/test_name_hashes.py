"""The salted hash of host names."""

import errno
import hashlib
import os
import stat
import subprocess
import sys

import pytest

from xfbench.base import name_hashes
from xfbench.base.errors import UsageError


@pytest.fixture
def salt_file(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "xfbench" / "host-salt"


def test_host_hash_cannot_be_found_by_trying_names(salt_file):
    found = name_hashes.host_hash("node0123")
    assert stat.S_IMODE(salt_file.stat().st_mode) == 0o600
    assert [*salt_file.parent.iterdir()] == [salt_file]
    assert found != name_hashes.host_hash_of_earlier_versions("node0123")
    tried_names = [f"node{number:04}" for number in range(999)]
    assert found not in {hashlib.sha256(name.encode()).hexdigest()[:16] for name in tried_names}


def test_host_hash_is_the_same_in_each_process_and_differs_between_users(salt_file, monkeypatch):
    script = "from xfbench.base import name_hashes as p; print(p.host_hash('node0123'))"

    def run():
        return subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.strip()

    first = run()
    assert first == run() == name_hashes.host_hash("node0123")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(salt_file.parents[2] / "another"))
    assert name_hashes.host_hash("node0123") != first


def test_salt_is_kept_where_hard_links_fail(salt_file, monkeypatch, capsys):
    def fail(*_, **__):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)
    first = name_hashes.host_hash("node7")
    assert stat.S_IMODE(salt_file.stat().st_mode) == 0o600
    assert [*salt_file.parent.iterdir()] == [salt_file]
    name_hashes.read_or_create_salt.cache_clear()
    assert name_hashes.host_hash("node7") == first and not capsys.readouterr().err


def test_salt_that_others_may_write_is_refused_unless_modes_cannot_change(salt_file, monkeypatch):
    salt_file.parent.mkdir(parents=True)
    salt_file.write_text("0123456789abcdef\n")
    salt_file.chmod(0o777)
    for _ in range(2):
        with pytest.raises(UsageError, match="is not a salt"):
            name_hashes.host_hash("node7")
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    assert name_hashes.host_hash("node7")


def test_unusable_salt_is_reported_or_replaced_for_the_process(salt_file, monkeypatch, capsys):
    salt_file.parent.mkdir(parents=True)
    salt_file.write_text("short\n")
    with pytest.raises(UsageError, match=r"host-salt is not a salt .*delete it"):
        name_hashes.host_hash("node7")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/nowhere")
    assert name_hashes.host_hash("node7") == name_hashes.host_hash("node7")
    assert capsys.readouterr().err.count("host-salt cannot be used") == 1


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_salt_that_is_no_plain_file_is_refused(salt_file, make):
    salt_file.parent.mkdir(parents=True)
    make(salt_file)
    with pytest.raises(UsageError, match="is not a salt"):
        name_hashes.host_hash("node7")


def test_salt_may_be_a_link_to_a_file(salt_file, tmp_path):
    first = name_hashes.host_hash("node7")
    salt_file.rename(tmp_path / "dotfiles")
    salt_file.symlink_to(tmp_path / "dotfiles")
    name_hashes.read_or_create_salt.cache_clear()
    assert name_hashes.host_hash("node7") == first


def test_salt_that_another_process_is_about_to_write_is_awaited(salt_file, monkeypatch):
    salt_file.parent.mkdir(parents=True)
    salt_file.touch(0o600)
    salt = b"0123456789abcdef\n"
    monkeypatch.setattr(name_hashes.time, "sleep", lambda _: salt_file.write_bytes(salt))
    assert name_hashes.read_or_create_salt(salt_file) == salt


def test_salt_of_a_faster_process_is_used_and_stays(salt_file, monkeypatch):
    first = name_hashes.host_hash("node7")
    content = salt_file.read_bytes()
    name_hashes.read_or_create_salt.cache_clear()
    monkeypatch.setattr(os.path, "lexists", lambda _: False)  # it is created a moment later
    assert name_hashes.host_hash("node7") == first and salt_file.read_bytes() == content
    assert [*salt_file.parent.iterdir()] == [salt_file]


def test_salt_of_another_user_that_all_may_write_is_refused(salt_file, monkeypatch):
    def fail(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    salt_file.parent.mkdir(parents=True)
    salt_file.write_text("0123456789abcdef\n")
    salt_file.chmod(0o666)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(os, "fchmod", fail)
    with pytest.raises(UsageError, match="is not a salt"):
        name_hashes.host_hash("node7")
