"""A study's own data: the digits on the media that there are, made where they are missing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from xfbench import errors, paths
from xfbench.data import sources, writing
from xfbench.data.manifest import FormatName, Preprocessing
from xfbench.experiment import Experiment, Matrix

CACHE, MEMORY = "cache", "memory"
_EVERY = "*"


def media(named: Mapping[str, Path]) -> dict[str, Path]:
    """Folders to keep data in, by medium: the cache, memory where there is some, and `named` ones.

    Raises UsageError for a named one that is not there.
    """
    found = {CACHE: paths.cache() / "studies"}
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK):
        found[MEMORY] = memory / f"xfbench-studies-{os.getuid()}"
    for name, folder in named.items():
        if not folder.is_dir():
            raise errors.UsageError(f"--medium {name}={folder}: there is no such folder")
        found[name] = folder.absolute() / "xfbench-studies"
    return found


def placed(study: Experiment, one: Matrix, known: Mapping[str, Path]) -> Matrix:
    """The matrix with the folders of the study's own data for their names, each of them made.

    Raises UsageError for a medium that is not there, or a folder that cannot be written.
    """
    if study.prepared is None or one.data is None:
        return one
    names: dict[str, FormatName] = {f"digits-{form}": form for form in study.prepared.format}
    data: list[str] = []
    for wanted in one.data:
        name, _, medium = wanted.partition("@")
        if name not in names:
            data.append(wanted)
            continue
        if medium not in ("", _EVERY, *known):
            raise errors.unknown("medium", medium, known)
        chosen = known.values() if medium == _EVERY else [known[medium or CACHE]]
        data += [str(_made(folder / name, names[name])) for folder in chosen]
    return one.model_copy(update={"data": data})


def _made(folder: Path, form: FormatName) -> Path:
    if not (folder / "manifest.json").is_file():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            writing.make(sources.digits(), folder, form, Preprocessing(channels=1))
        except OSError as error:
            raise errors.UsageError(f"{folder}: {error.strerror}") from error
    return folder
