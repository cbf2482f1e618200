"""Folder: one JPEG or PNG file per image, `SPLIT/CLASS/NAME`, as `ImageFolder` readers expect.

A sample's key is the path `CLASS/NAME`. Its label is the position of the class in the manifest's
list. Without a manifest, the classes are sorted by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence

from xfbench.worker.formats import Damaged, SampleList, read_image_file
from xfbench.worker.samples import Sample

SUFFIXES = (".jpeg", ".jpg", ".png")


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
    """Return the sorted names of the class folders in `folder`. Raises Damaged if it has none."""
    if not folder.is_dir():
        raise Damaged(f"{folder} is not a folder")
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not names:
        raise Damaged(f"{folder} contains no folders: each class needs one")
    return names


def list_image_names(folder: Path) -> List[str]:
    """Return the sorted names of the images in a class's folder. Raises Damaged if it has none."""
    there = folder.iterdir() if folder.is_dir() else []
    names = sorted(path.name for path in there if path.suffix.lower() in SUFFIXES)
    if not names:
        raise Damaged(f"{folder} contains no images: each class needs some ({', '.join(SUFFIXES)})")
    return names


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
