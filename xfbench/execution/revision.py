"""The git revision of xfbench's code, if it runs from a checkout."""

from __future__ import annotations

from functools import cache

from xfbench.base import paths, processes


@cache
def find_revision() -> tuple[str | None, bool | None]:
    """Return the commit, and whether tracked files were changed since that commit.

    If xfbench does not run from a checkout, both values are None.
    """
    root = paths.package_folder("xfbench").parent
    if not (root / ".git").exists():
        return None, None
    try:
        commit = processes.output(["git", "-C", str(root), "rev-parse", "HEAD"], timeout=10)
        changed = processes.output(
            ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"], timeout=10
        )
    except processes.CommandError:
        return None, None
    return commit.strip(), bool(changed.strip())
