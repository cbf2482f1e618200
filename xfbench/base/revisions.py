"""Git revisions of xfbench: the commit of the running code, and the code of other commits.

Only the code that measures is used of other commits: the worker, the adapters and the workloads. It
is extracted to `revisions/HASH` in the cache.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from xfbench.base import paths, processes, tool_output
from xfbench.base.errors import UsageError
from xfbench.base.process_variables import Purpose, select_variables

WORKING_TREE = "working-tree"
_CODE_FOLDERS = ("adapters", "workloads", "xfbench/worker")
_CODE_FILES = ("xfbench/__init__.py",)
_UNUSED_SECONDS = 30 * 24 * 3600.0  # extracted code that was unused for so long is removed
_HASH = "[0-9a-f]{40}|[0-9a-f]{64}"
_CHANGED_FILE = rf":[0-7]{{6}} [0-7]{{6}} ({_HASH}) ({_HASH}) [A-Z]\d*\s.+"  # git diff --raw
# Equal working trees become equal commits, because these do not depend on the user or the time.
_SNAPSHOT_VARIABLES = {
    f"GIT_{role}_{name}": value
    for role in ("AUTHOR", "COMMITTER")
    for name, value in (("NAME", "xfbench"), ("EMAIL", "xfbench"), ("DATE", "@0 +0000"))
}


@cache
def find_revision() -> tuple[str | None, bool | None]:
    """Return the commit, and whether tracked files were changed since that commit.

    If xfbench does not run from a checkout, both values are None.
    """
    checkout = find_checkout()
    if checkout is None:
        return None, None
    try:
        commit = _git_hash(checkout, "rev-parse", "HEAD")
        listing = _git(checkout, "diff", "--raw", "--no-abbrev", "--no-color", "HEAD", "--")
    except processes.CommandError:
        return None, None
    return commit, bool(tool_output.find_matching_lines(listing, _CHANGED_FILE))


def find_checkout() -> Path | None:
    """Return the git checkout from which xfbench runs; None if xfbench is an installed package."""
    root = paths.package_folder("xfbench").parent
    return root if (root / ".git").exists() else None


def resolve_revisions(names: Sequence[str]) -> list[str]:
    """Return the full hash of the commit that each name stands for.

    A name is a branch, a tag, a hash, or "working-tree". The working tree becomes a commit without
    a branch. It has the uncommitted changes of the code that measures, new files included. If there
    are none, the working tree is the commit HEAD.

    Raises UsageError if there is no checkout, if a name is unknown, or if two names stand for the
    same commit.
    """
    checkout = _require_checkout()
    name_by_commit: dict[str, str] = {}
    for name in names:
        try:
            commit = (
                _commit_working_tree(checkout)
                if name == WORKING_TREE
                else _find_commit(checkout, name)
            )
        except processes.CommandError as error:
            raise UsageError(f"--revisions {name}: {error}") from error
        if commit in name_by_commit:
            unchanged = f": {WORKING_TREE} has no uncommitted changes of {', '.join(_CODE_FOLDERS)}"
            raise UsageError(
                f"--revisions: {name_by_commit[commit]} and {name} are the same commit "
                f"{shorten(commit)}"
                + (unchanged if WORKING_TREE in (name, name_by_commit[commit]) else "")
            )
        name_by_commit[commit] = name
    return list(name_by_commit)


def shorten(commit: str) -> str:
    """Return the start of a commit's hash, which is long enough to name the commit."""
    return commit[:12]


def ensure_code(commit: str) -> Path:
    """Return the folder with the measuring code of a commit. Extract the code if it is missing.

    The folder has the parts of a checkout that measure: `adapters`, `workloads`, `xfbench/worker`.
    Code that was not used for 30 days is removed. Processes may extract the same commit at the same
    time.

    - `commit`: the full hash of the commit.

    Raises UsageError if the code is missing and cannot be extracted.
    """
    folder = paths.cache_folder("revisions", commit)
    if folder.is_dir():
        with contextlib.suppress(OSError):  # the cache may be read-only
            os.utime(folder)  # in use
        return folder
    checkout = _require_checkout()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as scratch:
        _move_unused_code(folder.parent, Path(scratch))
        code = Path(scratch, "code")
        code.mkdir()
        try:
            _git(
                *(checkout, "-c", "core.hooksPath=/dev/null", f"--work-tree={code}"),
                *("checkout", commit, "--", *_CODE_FOLDERS, *_CODE_FILES),
                variables={"GIT_INDEX_FILE": str(Path(scratch, "index"))},
            )
        except processes.CommandError as error:
            raise UsageError(
                f"cannot extract the code of revision {shorten(commit)} from {checkout}: {error}"
            ) from error
        try:
            code.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    return folder


def _move_unused_code(folder: Path, trash: Path) -> None:
    """Move code that was not used for 30 days from `folder` to `trash`."""
    oldest = time.time() - _UNUSED_SECONDS
    for number, entry in enumerate(folder.iterdir()):
        with contextlib.suppress(OSError):  # another process was faster
            if entry.stat().st_mtime < oldest:
                entry.rename(trash / str(number))


def _require_checkout() -> Path:
    checkout = find_checkout()
    if checkout is None:
        raise UsageError(
            "--revisions needs xfbench to run from a git checkout, but it is an installed package: "
            "clone the repository and run `python -m pip install --editable .` in it"
        )
    return checkout


def _find_commit(checkout: Path, name: str) -> str:
    try:
        return _git_hash(
            checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
    except processes.CommandError as error:
        if error.status is None:  # git did not run
            raise
    answer = _git(checkout, "rev-parse", "--is-shallow-repository")
    is_shallow = "true" in tool_output.find_matching_lines(answer, "true|false")
    advice = (
        "the clone is shallow: run `git fetch --unshallow` in it"
        if is_shallow
        else f"give a branch, a tag, a commit or {WORKING_TREE}"
    )
    raise UsageError(f"--revisions {name}: no such revision in {checkout}: {advice}")


def _commit_working_tree(checkout: Path) -> str:
    """Return the commit of the working tree. The index and all branches stay as they are."""
    with tempfile.TemporaryDirectory(prefix="xfbench-") as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch, "index"))}
        _git(checkout, "read-tree", "HEAD", variables=index)
        _git(checkout, "add", "--all", "--", *_CODE_FOLDERS, *_CODE_FILES, variables=index)
        tree = _git_hash(checkout, "write-tree", variables=index)
    if tree == _git_hash(checkout, "rev-parse", "HEAD^{tree}"):
        return _git_hash(checkout, "rev-parse", "HEAD")
    return _git_hash(
        *(checkout, "commit-tree", tree, "-p", "HEAD", "-m", "xfbench: uncommitted changes"),
        variables=_SNAPSHOT_VARIABLES,
    )


def _git_hash(checkout: Path, *words: str, variables: dict[str, str] | None = None) -> str:
    """Return the hash that git prints. Raises CommandError if git fails or prints no hash."""
    printed = _git(checkout, *words, variables=variables)
    hashes = {*tool_output.find_matching_lines(printed, _HASH)}
    if len(hashes) != 1:
        raise processes.CommandError(
            f"git {words[0]} printed no hash, or several: {tool_output.quote_output(printed)}"
        )
    return hashes.pop()


def _git(checkout: Path, *words: str, variables: dict[str, str] | None = None) -> str:
    """Run git in the checkout and return its output. Raises CommandError if git fails."""
    return processes.output(
        ["git", "-C", str(checkout), *words],
        environment={**select_variables(Purpose.GIT), **(variables or {})},
        timeout=60,
    )
