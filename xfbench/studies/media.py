"""A study's prepared data: digits and photographs, written to the available media if missing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from xfbench.base import errors, paths
from xfbench.datasets import photographs, sets, sources, writing
from xfbench.datasets.manifest import FormatName, Preprocessing
from xfbench.planning.experiment import Experiment
from xfbench.planning.matrix import Matrix

CACHE, MEMORY = "cache", "memory"
_ALL_MEDIA = "*"
_TIMEOUT_S = 600.0  # to wait for a lock; writing a data set takes far less


def medium_folders(named_folders: Mapping[str, Path]) -> dict[str, Path]:
    """Return the folder for the data of studies on each storage medium, by name of the medium.

    The media are "cache", "memory" (if /dev/shm is writable) and the keys of `named_folders`.
    `named_folders` has the folders that the user named with `--medium`. Raises UsageError if one of
    them does not exist.
    """
    folders = {CACHE: paths.cache_folder("studies")}
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK):
        folders[MEMORY] = memory / f"xfbench-studies-{os.getuid()}"
    for name, folder in named_folders.items():
        if not folder.is_dir():
            raise errors.UsageError(f"--medium {name}={folder}: no such folder")
        folders[name] = folder.absolute() / "xfbench-studies"
    return folders


def write_prepared_data(
    study: Experiment, matrix: Matrix, folders_by_medium: Mapping[str, Path]
) -> Matrix:
    """Write the study's prepared data sets that do not exist, and return a changed matrix.

    In the returned matrix, the name of each prepared data set is replaced by its folder. Raises
    UsageError if a medium is unknown or a folder cannot be written.
    """
    if study.prepared is None or matrix.data is None:
        return matrix
    prepared = study.prepared
    names = {
        f"{images}-{form}": (images, form) for images in prepared.of for form in prepared.format
    }
    data: list[str] = []
    for data_name in matrix.data:
        name, _, medium = data_name.partition("@")
        if name not in names:
            data.append(data_name)
            continue
        if medium not in ("", _ALL_MEDIA, *folders_by_medium):
            raise errors.unknown_name_error("medium", medium, folders_by_medium)
        chosen = (
            folders_by_medium.values()
            if medium == _ALL_MEDIA
            else [folders_by_medium[medium or CACHE]]
        )
        data += [str(_make_data_set(folder / name, *names[name])) for folder in chosen]
    return matrix.model_copy(update={"data": data})


def replace_optional_data_sets_by_folders(
    study: Experiment, matrix: Matrix
) -> tuple[Matrix | None, tuple[str, ...]]:
    """Replace the names of optional data sets in the matrix by their folders.

    - First value: the matrix with these folders and without missing data sets; None if all data
      sets of the matrix are missing.
    - Second value: the names of the missing data sets.

    If several data sets in the data folder have the same name, the first of them is used. "NAME@*"
    stands for all of them: one copy on each medium.
    """
    folders: dict[str, list[str]] = {}
    for data_set in sets.list_prepared():
        manifest = data_set.manifest
        names = {manifest.name, f"{manifest.name}-{manifest.format}", data_set.folder.name}
        for name in names.intersection(study.present):
            folders.setdefault(name, []).append(str(data_set.folder))
    data, absent = [], []
    for data_name in matrix.data or ():
        name, _, medium = data_name.partition("@")
        copies = folders.get(name, [])
        if name not in study.present:
            data.append(data_name)
        elif copies:
            data += copies if medium == _ALL_MEDIA else copies[:1]
        else:
            absent.append(name)
    if data == list(matrix.data or ()):
        return matrix, ()
    return (matrix.model_copy(update={"data": data}) if data else None), tuple(absent)


def missing_data_message(name: str) -> str:
    """Return the error message for an optional data set that does not exist."""
    return f"there is no data set {name}: create it with `xfbench data prepare`"


def _make_data_set(folder: Path, images: str, format_name: FormatName) -> Path:
    remedy = "remove it, or name another medium with --medium"
    paths.require_private(folder.parent, remedy)
    if not (folder / "manifest.json").is_file():
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            paths.require_private(folder.parent, remedy)  # another user may have created it
            if images == "digits":
                preprocessing = Preprocessing(channels=1)
                writing.make_data_set(
                    sources.open_bundled_digits(),
                    folder,
                    format_name,
                    preprocessing,
                    lock_timeout_s=_TIMEOUT_S,
                )
            else:
                # Formats other than raw keep the files; raw stores decoded pixels of one size.
                size = (photographs.SIDE,) * 2 if format_name == "raw" else None
                preprocessing = Preprocessing(channels=3, size=size)
                writing.make_data_set(
                    photographs.open_photographs(),
                    folder,
                    format_name,
                    preprocessing,
                    lock_timeout_s=_TIMEOUT_S,
                )
        except OSError as error:
            raise errors.UsageError(f"{folder}: {error.strerror}") from error
    return folder
