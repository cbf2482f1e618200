"""Paths of the cache, of results, of prepared data sets and of packages."""

from __future__ import annotations

import importlib
import os
import stat
from pathlib import Path

import platformdirs

from xfbench.base.errors import UsageError


def cache() -> Path:
    """Return the cache folder: `XFBENCH_HOME`, else `xfbench` in the user's cache folder.

    Raises UsageError if another user owns the folder or all users can write to it, because xfbench
    runs programs from the cache.
    """
    override = os.environ.get("XFBENCH_HOME")
    folder = (
        Path(override).expanduser().absolute()
        if override
        else platformdirs.user_cache_path("xfbench")
    )
    require_private(folder, "set XFBENCH_HOME to a folder of your own")
    return folder


def require_private(folder: Path, advice: str) -> None:
    """Raise UsageError if another user owns `folder` or all users can write to it.

    - `advice` ends the error's message.
    - A folder that does not exist is accepted.
    - A folder that belongs to root counts as the user's own.
    - If root runs xfbench, the owner of the folder does not matter.
    """
    try:
        owners = {folder.stat().st_uid, folder.lstat().st_uid}
        mode = folder.stat().st_mode
    except OSError:
        return
    if os.geteuid() != 0 and owners - {0, os.geteuid()}:
        raise UsageError(f"{folder} belongs to another user: {advice}")
    if mode & stat.S_IWOTH:
        raise UsageError(f"{folder} is writable by all users: chmod o-w it, or {advice}")


def results(folder: Path | None = None) -> Path:
    """Return the results folder: `folder`, else `XFBENCH_RESULTS`, else `./results`."""
    return (folder or Path(os.environ.get("XFBENCH_RESULTS") or "results")).absolute()


def data() -> Path:
    """Return the folder of prepared data sets: `XFBENCH_DATA`, else `data` in the cache."""
    override = os.environ.get("XFBENCH_DATA")
    return Path(override).expanduser().absolute() if override else cache() / "data"


def package_folder(name: str) -> Path:
    """Return the folder of an importable package. Raises FileNotFoundError if it has no file."""
    file = importlib.import_module(name).__file__
    if file is None:
        raise FileNotFoundError(f"the package {name} has no folder")
    return Path(file).parent
