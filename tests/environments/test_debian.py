"""Debian packages in a private prefix: exactly the locked bytes, or an error with a reason."""

import subprocess
import sys

import pytest

from xfbench.base.errors import UnavailableError
from xfbench.environments import debian
from xfbench.model import adapter

CAFFE = adapter.load("caffe").folder / "requirements.lock"


@pytest.fixture
def small_lock(tmp_path):
    """Return a lock with one small package of the Debian release that Caffe comes from."""
    [line] = [entry for entry in CAFFE.read_text().splitlines() if entry.startswith("libblas3=")]
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"# of a test\n{line}\n")
    return lock


def test_locked_package_is_unpacked_only_into_its_prefix(small_lock, tmp_path):
    lines = []
    packages_before = subprocess.run(["dpkg", "-l"], capture_output=True, check=True).stdout
    debian.create_prefix(small_lock, "bullseye", tmp_path / "prefix", lines.append)
    assert list((tmp_path / "prefix").rglob("libblas.so.3*"))
    assert not (tmp_path / "prefix" / ".archives").exists()
    assert any("downloading 1/1" in line for line in lines)
    assert subprocess.run(["dpkg", "-l"], capture_output=True, check=True).stdout == packages_before


def test_a_package_with_another_digest_is_refused(small_lock, tmp_path):
    digest = small_lock.read_text().split("sha256:")[1][:64]
    small_lock.write_text(small_lock.read_text().replace(digest, "0" * 64))
    with pytest.raises(UnavailableError, match="sha256 differs"):
        debian.create_prefix(small_lock, "bullseye", tmp_path / "prefix", print)


def test_missing_version_error_says_to_renew_the_lock(small_lock, tmp_path):
    version = small_lock.read_text().split("=")[1].split(" ")[0]
    small_lock.write_text(small_lock.read_text().replace(version, "0.0.1-1"))
    with pytest.raises(UnavailableError, match=r"libblas3 0\.0\.1-1: create"):
        debian.create_prefix(small_lock, "bullseye", tmp_path / "prefix", print)


def test_invalid_lock_line_is_refused_with_its_place(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("# comment\n\nlibblas3 3.9\n")
    with pytest.raises(UnavailableError, match=r"requirements\.lock:3"):
        debian.read_lock(lock)


def test_mirrors_come_from_the_debian_sources_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.delenv("XFBENCH_DEBIAN_MIRROR", raising=False)
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://commented.example/debian bookworm main\n"
        "deb [signed-by=/usr/share/keyrings/other.gpg] http://third.example/ bookworm main\n"
        "deb http://first.example/debian bookworm main contrib\n"
        "deb http://security.example/debian-security bookworm-security main\n"
    )
    (tmp_path / "sources.list.d" / "debian.sources").write_text(
        "Types: deb\nURIs: http://second.example/debian\nSuites: bookworm bookworm-updates\n"
        "Components: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    assert debian.list_override_or_apt_mirrors(tmp_path) == [
        "http://first.example/debian",
        "http://second.example/debian",
    ]


def test_command_in_the_lock_reproduces_the_lock():
    command = CAFFE.read_text().splitlines()[0].removeprefix("# python ").split()
    generated_lock = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=True, timeout=300
    ).stdout
    assert generated_lock == CAFFE.read_text()
