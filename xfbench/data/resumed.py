"""Files of records that are appended to: what an interrupted run left is kept or cut off."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from xfbench.worker.formats import Damaged
from xfbench.worker.stored import Stored

Records = Callable[[Stored], Iterator[tuple[int, int]]]


def first_bounds(path: Path, count: int, records: Records) -> list[tuple[int, int]]:
    """Where the first `count` records begin and end. Raises Damaged where fewer are whole."""
    if not count:
        return []
    bounds = list(itertools.islice(records(Stored(path)), count))
    if len(bounds) < count:
        raise Damaged(f"{path} has {len(bounds)} records, not the {count} that were written")
    return bounds


def truncate_file(path: Path, size: int) -> None:
    """Leave the first `size` bytes of a file; with none, there is an empty one afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if size else "wb") as file:
        file.truncate(size)
        os.fsync(file.fileno())
    sync_folder(path.parent)


class AppendedFile:
    """A file that a format's writer adds to, whether it is its only one or not."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def sync(self) -> None:
        """All that was written is on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.sync()
        self.file.close()


def sync_folder(folder: Path) -> None:
    """Bring a folder's list of files to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
