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

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Tuple

MAX_IMAGE_BYTES = 2**29  # no image that `pictures.py` decodes needs more
MAX_LINE_BYTES = 2**14  # of a list: a key and its label, digest and shape


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
    """Return the path of the file `name` in a data set's folder, without symbolic links.

    Raises Damaged if the file does not exist, or if its path leads out of the folder.
    """
    path = check_file(folder / name)
    resolved_path = path.resolve()
    if folder.resolve() not in resolved_path.parents:
        raise Damaged(f"{path} points outside of its data set, to {resolved_path}")
    return resolved_path


def open_plain(path: Path, *, follow_link: bool = False) -> int:
    """Return the descriptor of a plain file, opened for reading.

    - `follow_link`: whether `path` may be a symbolic link to a plain file.

    Raises Damaged if the file is not plain or cannot be opened. A pipe does not make this wait,
    even if somebody put it in the place of a file that was checked before.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags if follow_link else flags | os.O_NOFOLLOW)
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise Damaged(f"{path} cannot be read: {reason}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Damaged(f"{path} is not a file")
    return descriptor


def read_plain(path: Path, max_bytes: int, content: str, *, follow_link: bool = False) -> bytes:
    """Return the content of a plain file.

    - `content`: what the file should contain, for the message, such as "an image".
    - `follow_link`: whether `path` may be a symbolic link to a plain file.

    Raises Damaged if it is not a plain file, or if it is larger than `max_bytes`.
    """
    with os.fdopen(open_plain(path, follow_link=follow_link), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise Damaged(f"{path} is larger than {max_bytes >> 20} MiB: not {content}")
        return file.read(size)


def iterate_lines(path: Path, *, follow_link: bool = False) -> Iterator[bytes]:
    """Yield the lines of a plain file with their ends.

    Raises Damaged if a line is too long. A file that claims to be large needs no memory before: it
    may have a hole instead of lines.
    """
    with os.fdopen(open_plain(path, follow_link=follow_link), "rb") as file:
        for line in iter(lambda: file.readline(MAX_LINE_BYTES), b""):
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                raise Damaged(f"{path} has a line that is too long")
            yield line


def read_image_file(folder: Path, name: str) -> bytes:
    """Return the content of the image file `name` in a data set's folder.

    Raises Damaged if the file is larger than MAX_IMAGE_BYTES, does not exist, or is outside of the
    folder.
    """
    return read_plain(resolve_file(folder, name), MAX_IMAGE_BYTES, "an image")


def read_image_path(path: Path) -> bytes:
    """Return the content of the image file `path`, or of the file to which this link leads.

    Raises Damaged if it is not a file, or if it is larger than MAX_IMAGE_BYTES.
    """
    return read_plain(check_file(path), MAX_IMAGE_BYTES, "an image", follow_link=True)
