"""Folder: one JPEG or PNG file per image, `SPLIT/CLASS/NAME`, as `ImageFolder` readers expect.

A sample's key is the path `CLASS/NAME`. Its label is the position of the class in the manifest's
list. Without a manifest, the classes are sorted by name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Sequence, Set, Tuple

from xfbench.worker.formats import Damaged, SampleList, read_image_file
from xfbench.worker.samples import Sample

SUFFIXES = (".jpeg", ".jpg", ".png")
_MAX_DEPTH = 100  # of folders inside each other
_LEFT_BEHIND = {
    "__MACOSX",
    "__pycache__",
    "@eaDir",
    "#recycle",
    "$RECYCLE.BIN",
    "System Volume Information",
    "lost+found",
}
"""Folders that other tools create next to the user's folders. Hidden folders are not listed."""


def samples(folder: Path, split: str, listed: SampleList | None) -> Sequence[Sample]:
    """Return the samples of a split in the order of `listed`.

    If `listed` is None, return all images, sorted by class and name.
    """
    if listed is None:
        classes = list_class_names(folder / split)
        keys = [
            f"{name}/{file}" for name in classes for file in list_image_names(folder / split / name)
        ]
        return _Files(folder, split, keys, classes)
    return _Files(folder, split, listed.keys, listed.classes)


def list_class_names(folder: Path) -> List[str]:
    """Return the sorted names of the class folders in `folder`. Raises Damaged if it has none.

    Hidden folders and those that other tools leave behind are not classes.
    """
    if not folder.is_dir():
        raise Damaged(f"{folder} is not a folder")
    names = sorted(
        path.name for path in folder.iterdir() if path.is_dir() and not is_left_behind(path.name)
    )
    if not names:
        raise Damaged(f"{folder} contains no folders: each class needs one")
    return names


def list_image_names(folder: Path) -> List[str]:
    """Return the sorted names of the images in a class's folder. Raises Damaged if it has none."""
    names, _ = list_images_and_other_files(folder, SUFFIXES)
    if not names:
        raise Damaged(f"{folder} contains no images: each class needs some ({', '.join(SUFFIXES)})")
    return names


def is_left_behind(name: str) -> bool:
    """Return whether a file or folder is hidden, or was left behind by another tool."""
    return name.startswith(".") or name in _LEFT_BEHIND


def list_images_and_other_files(
    folder: Path, suffixes: Tuple[str, ...]
) -> Tuple[List[str], List[str]]:
    """Return the sorted paths of a folder's images and of its other files.

    The paths are relative to `folder`, and include files in nested folders. Images have one of
    `suffixes`, in lower or upper case. Hidden files and folders are skipped. Each folder is listed
    once, even if symbolic links lead to it again.
    """
    images: List[str] = []
    others: List[str] = []
    visited: Set[Tuple[int, int]] = set()
    if not folder.is_dir():
        return images, others
    for parent, folder_names, file_names in os.walk(
        folder, onerror=_raise_damaged, followlinks=True
    ):
        status = Path(parent).stat()
        if (status.st_dev, status.st_ino) in visited:
            folder_names.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        if len(Path(parent).relative_to(folder).parts) > _MAX_DEPTH:
            raise Damaged(f"{folder} has more than {_MAX_DEPTH} folders inside each other")
        folder_names[:] = sorted(name for name in folder_names if not is_left_behind(name))
        for name in file_names:
            if not is_left_behind(name):
                kind = images if name.lower().endswith(suffixes) else others
                kind.append(Path(parent, name).relative_to(folder).as_posix())
    return sorted(images), sorted(others)


def _raise_damaged(error: OSError) -> None:
    raise Damaged(f"{error.filename} cannot be listed: {error.strerror}") from error


class _Files(Sequence[Sample]):
    def __init__(self, folder: Path, split: str, keys: List[str], classes: List[str]) -> None:
        self.folder, self.split, self.keys = folder, split, keys
        self.label_of = {name: label for label, name in enumerate(classes)}

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        key = self.keys[index]
        name = key.split("/")[0]
        if name not in self.label_of:
            raise Damaged(f"{self.folder / self.split / key}: {name} is not one of the classes")
        content = read_image_file(self.folder, f"{self.split}/{key}")
        return Sample(key, self.label_of[name], content)
