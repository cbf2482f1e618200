"""Tests of the commit of xfbench's code that a record names, and of the code of other commits."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from xfbench.base import paths, revisions
from xfbench.base.errors import UsageError


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


@pytest.fixture
def code(checkout, monkeypatch, tmp_path_factory):
    """Return a checkout with two commits of code that measures, and an empty cache."""
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path_factory.mktemp("cache")))
    names = ("adapters/odd/train.py", "workloads/net.py", "workloads/old.py", "xfbench/worker/x.py")
    for name in names:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("A = 1\n")
    (checkout / "xfbench/__init__.py").write_text("")
    commit_all(checkout)
    git(checkout, "branch", "first")
    (checkout / "adapters/odd/train.py").write_text("A = 2\n")
    commit_all(checkout)
    git(checkout, "tag", "--annotate", "second", "--message", "x")
    return checkout


def read_train(commit):
    return (revisions.ensure_code(commit) / "adapters/odd/train.py").read_text()


def test_a_branch_a_tag_and_hashes_name_commits(code):
    first, second = (git(code, "rev-parse", name) for name in ("first", "HEAD"))
    for names in (["first", "second"], ["HEAD~1", "HEAD"], [first, second], [first[:9], "HEAD"]):
        assert revisions.resolve_revisions(names) == [first, second]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["HEAD", "frist"], "--revisions frist: no such revision in .*: give a branch, a tag"),
        (["--all"], "--revisions --all: no such revision"),
        (["HEAD:adapters"], "--revisions HEAD:adapters: no such revision"),
        (["second", "HEAD"], "second and HEAD are the same commit [0-9a-f]{12}$"),
        (["HEAD", "working-tree"], "the same commit .*: working-tree has no uncommitted changes"),
    ],
)
def test_unsuitable_revisions_are_refused(code, names, words):
    with pytest.raises(UsageError, match=words):
        revisions.resolve_revisions(names)


def test_revisions_of_an_installed_package_are_refused(checkout):
    with pytest.raises(UsageError, match=r"needs xfbench to run from a git checkout.*--editable"):
        revisions.resolve_revisions(["HEAD"])


def test_a_missing_commit_of_a_shallow_clone_has_advice(code, tmp_path_factory, monkeypatch):
    clone = tmp_path_factory.mktemp("clone") / "shallow"
    git(code, "clone", "--quiet", "--depth", "1", f"file://{code}", clone)
    monkeypatch.setattr(paths, "package_folder", lambda name: clone / "xfbench")
    with pytest.raises(UsageError, match="the clone is shallow: run `git fetch --unshallow`"):
        revisions.resolve_revisions(["HEAD~1"])


def test_code_of_a_commit_is_extracted_once(code):
    first, second = revisions.resolve_revisions(["first", "second"])
    assert (read_train(first), read_train(second)) == ("A = 1\n", "A = 2\n")
    assert not (revisions.ensure_code(first) / "xfbench/module.py").exists()
    shutil.rmtree(code / ".git")
    assert read_train(first) == "A = 1\n"
    assert {path.name for path in (paths.cache() / "revisions").iterdir()} == {first, second}


def test_processes_may_extract_the_same_commit_at_the_same_time(code):
    [commit] = revisions.resolve_revisions(["first"])
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(read_train, [commit] * 8)] == ["A = 1\n"] * 8
    assert [path.name for path in (paths.cache() / "revisions").iterdir()] == [commit]


def test_code_that_was_unused_for_a_month_is_removed(code):
    first, second = revisions.resolve_revisions(["first", "second"])
    folder = revisions.ensure_code(first)
    os.utime(folder, (0, 0))
    revisions.ensure_code(first)  # is used now
    revisions.ensure_code(second)
    assert folder.is_dir()
    os.utime(folder, (0, 0))
    shutil.rmtree(revisions.ensure_code(second))
    revisions.ensure_code(second)
    assert [path.name for path in folder.parent.iterdir()] == [second]


def test_uncommitted_changes_are_a_commit_of_their_own(code):
    [head] = revisions.resolve_revisions(["HEAD"])
    (code / "xfbench/module.py").write_text("A = 3\n")  # measures nothing
    assert revisions.resolve_revisions(["working-tree"]) == [head]
    (code / "adapters/odd/train.py").write_text("A = 3\n")
    (code / "adapters/odd/new.py").write_text("B = 1\n")
    (code / "workloads/old.py").unlink()
    before = git(code, "status", "--porcelain"), git(code, "rev-parse", "HEAD")
    _, commit = revisions.resolve_revisions(["HEAD", "working-tree"])
    assert (git(code, "status", "--porcelain"), git(code, "rev-parse", "HEAD")) == before
    assert git(code, "rev-parse", f"{commit}~1") == head
    changes = git(code, "diff", "--name-status", head, commit).split()
    assert changes == "A adapters/odd/new.py M adapters/odd/train.py D workloads/old.py".split()
    assert read_train(commit) == "A = 3\n"
    assert revisions.resolve_revisions(["working-tree"]) == [commit]
    (code / "adapters/odd/new.py").write_text("B = 2\n")
    assert revisions.resolve_revisions(["working-tree"]) != [commit]


def test_variables_of_a_git_hook_do_not_select_another_repository(code, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    assert revisions.resolve_revisions(["first", "second"])


GIT_WITH_BANNER = """#!/bin/sh
echo "Welcome: 1 message"; echo "A quick note"; echo "Please log out" >&2
{git} "$@"
status=$?
echo Goodbye
exit $status
"""


def test_banners_around_the_answers_of_git_change_nothing(code, tmp_path_factory, monkeypatch):
    first = git(code, "rev-parse", "first")
    clean = revisions.find_revision()
    revisions.find_revision.cache_clear()
    folder = tmp_path_factory.mktemp("programs")
    (folder / "git").write_text(GIT_WITH_BANNER.format(git=shutil.which("git")))
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    assert revisions.find_revision() == clean
    assert revisions.resolve_revisions(["first"]) == [first]
    (code / "workloads/net.py").write_text("A = 3\n")
    revisions.find_revision.cache_clear()
    assert revisions.find_revision() == (clean[0], True)
    with pytest.raises(UsageError, match="no such revision"):
        revisions.resolve_revisions(["third"])


def test_git_without_an_answer_is_shown_with_its_words(code, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("programs")
    (folder / "git").write_text("#!/bin/sh\necho Welcome")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match="printed no hash, or several: 'Welcome'"):
        revisions.resolve_revisions(["first"])
