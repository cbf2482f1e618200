"""Where things are kept: the cache, the results, the folders of our packages."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import platformdirs


def cache() -> Path:
    """Environments, worker archives: `XFBENCH_HOME`, else the user's cache folder."""
    chosen = os.environ.get("XFBENCH_HOME")
    return (
        Path(chosen).expanduser().absolute() if chosen else platformdirs.user_cache_path("xfbench")
    )


def results(chosen: Path | None = None) -> Path:
    """The results folder: the one named, else `XFBENCH_RESULTS`, else `./results`."""
    return (chosen or Path(os.environ.get("XFBENCH_RESULTS") or "results")).absolute()


def data() -> Path:
    """Prepared data sets: `XFBENCH_DATA`, else beside the environments in the cache."""
    chosen = os.environ.get("XFBENCH_DATA")
    return Path(chosen).expanduser().absolute() if chosen else cache() / "data"


def package_folder(name: str) -> Path:
    """The folder of an importable package, wherever the installation put it."""
    file = importlib.import_module(name).__file__
    if file is None:
        raise FileNotFoundError(f"the package {name} has no folder")
    return Path(file).parent
