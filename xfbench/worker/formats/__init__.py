"""The formats of data sets: one module each, with a function `samples`.

    samples(folder: Path, split: str, listed: SampleList | None) -> Sequence[Sample]

It returns the samples of a split ("train" or "test") in order. Each is read when it is accessed.
It raises Damaged if a file is damaged. `listed` is the content of `SPLIT.samples`. Formats that
store keys and labels do not need it, so that they can read the files of other tools. Reading
needs only the standard library and NumPy, so that it works in every framework's interpreter.
`xfbench.datasets` writes the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import List, Tuple

MAX_IMAGE_BYTES = 2**29  # bytes of an image file: no image that may be decoded needs more


class Damaged(Exception):
    """A file of a data set is damaged. The message says which file, where and how."""


@dataclass(frozen=True)
class SampleList:
    """The samples of a split in order: keys, labels, digests.

    `shape` is (C, H, W) if all images share it, otherwise None. `classes` are names by label.
    """

    keys: List[str]
    labels: List[int]
    digests: List[str]
    shape: Tuple[int, int, int] | None
    classes: List[str]


def resolve_file(folder: Path, name: str) -> Path:
    """Return a file of a data set's folder. Raises Damaged if it is missing or outside of it."""
    path = folder / name
    if not path.is_file():
        raise Damaged(f"{path} is {'not a file' if path.exists() else 'missing'}")
    if folder.resolve() not in path.resolve().parents:
        raise Damaged(f"{path} points outside of its data set, to {path.resolve()}")
    return path


def read_image_file(folder: Path, name: str) -> bytes:
    """Return an image file's content. Raises Damaged as `resolve_file`, or if it is too large."""
    path = resolve_file(folder, name)
    if path.stat().st_size > MAX_IMAGE_BYTES:
        raise Damaged(f"{path} is larger than {MAX_IMAGE_BYTES >> 20} MiB: not an image")
    return path.read_bytes()
