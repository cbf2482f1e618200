"""The formats of prepared data sets. Each format has a module with this function:

    samples(folder: Path, split: str, listed: SampleList | None) -> Sequence[Sample]

- `folder`: the data set's folder.
- `split`: "train" or "test".
- `listed`: the content of `SPLIT.samples`. Formats that store keys and labels do not need it, so
  that they can read the files of other tools.

The function returns the samples of the split in order. A sample is read when it is accessed. If a
file is damaged, the function or the access raises Damaged.

The modules need only the standard library and NumPy, so that they work in every framework's
interpreter. `xfbench.datasets` writes the files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import List, Tuple

MAX_IMAGE_BYTES = 2**29  # no image that `pictures.py` decodes needs more


class Damaged(Exception):
    """A file of a data set is damaged. The message names the file, the place and the defect."""


@dataclass(frozen=True)
class SampleList:
    """The list of a split's samples, in order.

    - `keys`, `labels`, `digests`: one value for each sample.
    - `shape`: (C, H, W) if all images have the same shape, otherwise None.
    - `classes`: the names of the classes. The label of a class is its position.
    """

    keys: List[str]
    labels: List[int]
    digests: List[str]
    shape: Tuple[int, int, int] | None
    classes: List[str]


def check_file(path: Path) -> Path:
    """Return `path`. Raises Damaged unless it is a file or a symbolic link to one."""
    if not path.is_file():
        raise Damaged(f"{path} is {'not a file' if path.exists() else 'missing'}")
    return path


def resolve_file(folder: Path, name: str) -> Path:
    """Return the path of the file `name` in a data set's folder.

    Raises Damaged if the file does not exist, or if its path leads out of the folder.
    """
    path = check_file(folder / name)
    if folder.resolve() not in path.resolve().parents:
        raise Damaged(f"{path} points outside of its data set, to {path.resolve()}")
    return path


def read_image_file(folder: Path, name: str) -> bytes:
    """Return the content of the image file `name` in a data set's folder.

    Raises Damaged if the file is larger than MAX_IMAGE_BYTES, does not exist, or is outside of the
    folder.
    """
    return read_image_path(resolve_file(folder, name))


def read_image_path(path: Path) -> bytes:
    """Return the content of the image file `path`.

    Raises Damaged if it is not a file, or if it is larger than MAX_IMAGE_BYTES.
    """
    try:
        return read_limited(check_file(path), MAX_IMAGE_BYTES)
    except ValueError as error:
        raise Damaged(f"{path} is larger than {MAX_IMAGE_BYTES >> 20} MiB: not an image") from error


def read_limited(path: Path, max_bytes: int) -> bytes:
    """Return the bytes that a file has when it is opened, even if it grows meanwhile.

    Raises ValueError if it is longer than `max_bytes`, and OSError if it cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise ValueError(f"the file is longer than {max_bytes / 2**20:g} MiB")
        return file.read(size)
