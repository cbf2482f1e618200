"""Files to which records are appended. If a run is interrupted, a later run can continue."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from xfbench.base.shared_files import open_file
from xfbench.worker.formats import Damaged
from xfbench.worker.stored import DataFile

Records = Callable[[DataFile], Iterator[tuple[int, int]]]


def first_record_bounds(path: Path, count: int, record_bounds: Records) -> list[tuple[int, int]]:
    """Return (start, end) of each of the first `count` records in the file `path`, in bytes.

    `record_bounds` yields (start, end) of every record of a file. Raises Damaged if fewer than
    `count` records are complete.
    """
    if not count:
        return []
    file = DataFile(path, follow_link=True)  # `open_file` refuses a link before anything is written
    bounds = list(itertools.islice(record_bounds(file), count))
    if len(bounds) < count:
        raise Damaged(f"{path} has {len(bounds)} records, but its sample list has {count}")
    return bounds


def truncate_or_create_file(path: Path, size: int) -> None:
    """Truncate a file to `size` bytes and sync it. If `size` is 0, create or empty the file."""
    with open_file(path, "r+b" if size else "wb") as file:
        file.truncate(size)
        os.fsync(file.fileno())
    sync_folder(path.parent)


class AppendedFile:
    """A file to which the writer of a format appends."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def sync(self) -> None:
        """Sync the file to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Sync and close the file."""
        self.sync()
        self.file.close()


def sync_folder(folder: Path) -> None:
    """Sync a folder's list of files to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
