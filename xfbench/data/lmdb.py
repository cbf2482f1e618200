"""Writes LMDB: `SPLIT.lmdb/data.mdb`, Caffe's `Datum`s under the keys `%08d_<name>`."""

from __future__ import annotations

import collections
import hashlib
import mmap
import shutil
from pathlib import Path

import lmdb
import numpy as np

from xfbench.base.errors import UsageError
from xfbench.data.encoding import (
    bytes_field,
    checked_label,
    checked_pixels,
    number_field,
    picture,
    text,
)
from xfbench.data.resumed import settle
from xfbench.worker.formats import Damaged
from xfbench.worker.formats import lmdb as reading
from xfbench.worker.samples import Sample
from xfbench.worker.stored import DataFile

_LONGEST_NAME = 511 - len("00000000_")
_MOST = 10**8
_AT_ONCE = 32 << 20
_FIRST_MAP = 64 << 20
_WHAT_TO_DO = "make room there, or choose a folder on another disk; what is written is kept"


class Writer:
    """Appends to `SPLIT.lmdb`, a transaction every 32 MiB."""

    def __init__(self, folder: Path, split: str, count: int) -> None:
        """After the first `count`. Raises Damaged where fewer whole ones are there."""
        self._folder = folder / f"{split}.lmdb"
        self._folder.mkdir(parents=True, exist_ok=True)
        if count:
            # LMDB maps the file: one that is cut off would end this process with SIGBUS.
            collections.deque(reading.records(DataFile(self._folder / "data.mdb")), maxlen=0)
        else:
            (self._folder / "data.mdb").unlink(missing_ok=True)
        (self._folder / "lock.mdb").unlink(missing_ok=True)
        self._map_size = max(_FIRST_MAP, 2 * self._size())
        self._database = lmdb.open(str(self._folder), map_size=self._map_size, mode=0o644)
        try:
            self._cut(count)
        except Damaged:
            self._database.close()
            raise
        self._count, self._bytes = count, 0
        self._waiting: list[tuple[bytes, bytes]] = []
        settle(self._folder)

    def add(self, sample: Sample) -> None:
        """Raises UsageError where the format cannot keep it, or the disk is full."""
        if self._count == _MOST:
            raise UsageError(f"{self._folder}: keys of eight digits are for {_MOST} samples")
        content = datum(sample)
        self._waiting.append((b"%08d_" % self._count + name(sample.key), content))
        self._count += 1
        self._bytes += len(content)
        if self._bytes >= _AT_ONCE:
            self.sync()

    def sync(self) -> None:
        """Raises UsageError where the disk is full."""
        while not self._committed():
            self._grow()
        self._waiting, self._bytes = [], 0

    def close(self) -> None:
        try:
            self.sync()
        finally:
            self._database.close()
        (self._folder / "lock.mdb").unlink(missing_ok=True)

    def _cut(self, count: int) -> None:
        with self._database.begin(write=True) as transaction, transaction.cursor() as cursor:
            for number in range(count):
                if not (cursor.next() and cursor.key().startswith(b"%08d_" % number)):
                    raise Damaged(f"{self._folder} has {number} records of ours, not {count}")
            if cursor.next():
                while cursor.delete():
                    pass

    def _committed(self) -> bool:
        """Write all that waits, in one transaction; whether the map had room for it."""
        try:
            with self._database.begin(write=True) as transaction:
                for key, content in self._waiting:
                    transaction.put(key, content, append=True)
        except lmdb.MapFullError:
            return False
        except lmdb.Error as error:
            # LMDB calls a write that the disk cut short an input/output error.
            free = shutil.disk_usage(self._folder).free
            what = f"no space left, {free} bytes are free" if free < self._bytes else str(error)
            raise UsageError(f"{self._folder}: {what}; {_WHAT_TO_DO}") from error
        return True

    def _grow(self) -> None:
        free = shutil.disk_usage(self._folder).free
        most = (self._size() + free) // mmap.PAGESIZE * mmap.PAGESIZE
        if most <= self._map_size:
            raise UsageError(f"{self._folder}: {free} bytes are free; {_WHAT_TO_DO}")
        self._map_size = min(2 * self._map_size, most)
        self._database.set_mapsize(self._map_size)

    def _size(self) -> int:
        file = self._folder / "data.mdb"
        return file.stat().st_size if file.exists() else 0


def name(key: str) -> bytes:
    """A sample's key as the name within LMDB's; a long one is cut, and told apart by its digest."""
    content = text(key)
    if len(content) <= _LONGEST_NAME:
        return content
    tail = "~" + hashlib.sha256(content).hexdigest()
    return content[: _LONGEST_NAME - len(tail)].decode(errors="ignore").encode() + tail.encode()


def datum(sample: Sample) -> bytes:
    """Caffe's Datum: pixels with blue before red, or a picture file as it is."""
    label = number_field(5, checked_label(sample.label, sample.key))
    if isinstance(sample.image, bytes):
        kept = picture(sample.image, sample.key)
        content = bytes_field(4, kept.content) + label + number_field(7, 1)
    else:
        pixels = checked_pixels(sample.image)
        shape = b"".join(number_field(field, n) for field, n in enumerate(pixels.shape, 1))
        content = shape + bytes_field(4, np.ascontiguousarray(pixels[::-1]).tobytes()) + label
    key = text(sample.key)
    long = bytes_field(reading.KEY_FIELD, key) if len(key) > _LONGEST_NAME else b""
    return content + long
