"""A study's own data: digits and photographs on the media that there are, made where missing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from xfbench.base import errors, paths
from xfbench.data import photographs, sets, sources, writing
from xfbench.data.manifest import FormatName, Preprocessing
from xfbench.experiment import Experiment
from xfbench.matrix import Matrix

CACHE, MEMORY = "cache", "memory"
_EVERY = "*"
_PATIENCE = 600.0  # seconds, of which making a set takes a small part


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
    own = study.prepared
    names = {f"{images}-{form}": (images, form) for images in own.of for form in own.format}
    data: list[str] = []
    for wanted in one.data:
        name, _, medium = wanted.partition("@")
        if name not in names:
            data.append(wanted)
            continue
        if medium not in ("", _EVERY, *known):
            raise errors.unknown_name_error("medium", medium, known)
        chosen = known.values() if medium == _EVERY else [known[medium or CACHE]]
        data += [str(_made(folder / name, *names[name])) for folder in chosen]
    return one.model_copy(update={"data": data})


def present(study: Experiment, one: Matrix) -> tuple[Matrix | None, tuple[str, ...]]:
    """The matrix with the folders of data sets that may be there, and those that are not.

    None for one that has no other. Of several of a name the first is taken.
    """
    there = {
        name: str(found.folder)
        for found in reversed(sets.list_prepared())
        for name in (found.manifest.name, found.folder.name)
        if name in study.present
    }
    absent = tuple(n for n in one.data or () if n in study.present and n not in there)
    data = [there.get(name, name) for name in one.data or () if name not in absent]
    if not absent and data == list(one.data or ()):
        return one, ()
    return (one.model_copy(update={"data": data}) if data else None), absent


def missing(name: str) -> str:
    """Why a data set that may be there is not trained on."""
    return f"there is no data set {name}: it is made by `xfbench data prepare`"


def _made(folder: Path, images: str, form: FormatName) -> Path:
    instead = "remove it, or name another medium with --medium"
    paths.require_private(folder.parent, instead)
    if not (folder / "manifest.json").is_file():
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            paths.require_private(folder.parent, instead)  # somebody may have been faster
            if images == "digits":
                how = Preprocessing(channels=1)
                writing.make_data_set(sources.digits(), folder, form, how, lock_timeout_s=_PATIENCE)
            else:
                # Files stay what they are; raw keeps what they are after decoding.
                size = (photographs.SIDE,) * 2 if form == "raw" else None
                how = Preprocessing(channels=3, size=size)
                writing.make_data_set(
                    photographs.source(), folder, form, how, lock_timeout_s=_PATIENCE
                )
        except OSError as error:
            raise errors.UsageError(f"{folder}: {error.strerror}") from error
    return folder
