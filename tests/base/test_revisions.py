"""Tests of the commit of xfbench's code that a record names."""

import subprocess

import pytest

from xfbench.base import paths, revisions


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return a folder with one file that xfbench treats as its own source."""
    package = tmp_path / "xfbench"
    package.mkdir()
    (package / "module.py").write_text("A = 1\n")
    monkeypatch.setattr(paths, "package_folder", lambda name: package)
    revisions.find_revision.cache_clear()
    yield tmp_path
    revisions.find_revision.cache_clear()


def git(folder, *words):
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    command = ["git", "-C", folder, *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit_all(folder):
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "x")
    return git(folder, "rev-parse", "HEAD")


def test_a_clean_checkout_has_its_commit(checkout):
    commit = commit_all(checkout)
    assert revisions.find_revision() == (commit, False)


def test_a_changed_file_makes_the_commit_dirty(checkout):
    commit = commit_all(checkout)
    (checkout / "xfbench" / "module.py").write_text("A = 2\n")
    assert revisions.find_revision() == (commit, True)


def test_an_untracked_file_does_not_make_the_commit_dirty(checkout):
    commit = commit_all(checkout)
    (checkout / "notes").write_text("A = 2\n")
    assert revisions.find_revision() == (commit, False)


def test_an_installed_package_has_no_commit(checkout):
    assert revisions.find_revision() == (None, None)


def test_a_package_inside_another_repository_has_no_commit(checkout, monkeypatch):
    """For example in a virtual environment inside another project."""
    commit_all(checkout)
    site_packages = checkout / "site-packages"
    site_packages.mkdir()
    monkeypatch.setattr(paths, "package_folder", lambda name: site_packages / name)
    assert revisions.find_revision() == (None, None)
