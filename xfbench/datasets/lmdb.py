"""Writer of LMDB databases: Caffe's `Datum`s with keys `%08d_<name>` in `SPLIT.lmdb/data.mdb`."""

from __future__ import annotations

import collections
import hashlib
import mmap
import shutil
from pathlib import Path

import lmdb
import numpy as np

from xfbench.base.errors import UsageError
from xfbench.base.shared_files import open_file
from xfbench.datasets.encoding import (
    encode_bytes_field,
    encode_image,
    encode_sample_key,
    encode_varint_field,
    validate_chw_pixels,
    validate_label,
)
from xfbench.datasets.resumed import sync_folder
from xfbench.worker.formats import Damaged
from xfbench.worker.formats import lmdb as reading
from xfbench.worker.samples import Sample
from xfbench.worker.stored import DataFile

_MAX_NAME_BYTES = 511 - len("00000000_")
_MAX_SAMPLES = 10**8
_TRANSACTION_BYTES = 32 << 20
_MIN_MAP_BYTES = 64 << 20
_DISK_HINT = "free space there, or choose a folder on another disk; written samples are kept"


class Writer:
    """A writer that appends to `SPLIT.lmdb` and commits a transaction every 32 MiB."""

    def __init__(self, folder: Path, split: str, count: int) -> None:
        """Open or create the database, and remove all records after the first `count`.

        Raises Damaged if fewer than `count` records are complete.
        """
        self._folder = folder / f"{split}.lmdb"
        self._folder.mkdir(exist_ok=True)
        if self._folder.is_symlink():
            raise UsageError(f"{self._folder} is a symbolic link: remove it")
        if count:
            open_file(self._folder / "data.mdb", "r+b").close()  # refuses a link
            # LMDB maps the file: a truncated file would end this process with SIGBUS.
            collections.deque(
                reading.locate_record_nodes_and_values(DataFile(self._folder / "data.mdb")),
                maxlen=0,
            )
        else:
            (self._folder / "data.mdb").unlink(missing_ok=True)
        (self._folder / "lock.mdb").unlink(missing_ok=True)
        self._map_size = max(_MIN_MAP_BYTES, 2 * self._file_bytes())
        self._database = lmdb.open(str(self._folder), map_size=self._map_size, mode=0o644)
        try:
            self._keep_first(count)
        except Damaged:
            self._database.close()
            raise
        self._count, self._bytes = count, 0
        self._pending: list[tuple[bytes, bytes]] = []
        sync_folder(self._folder)

    def add(self, sample: Sample) -> None:
        """Add a sample. Raises UsageError if LMDB cannot store the sample or the disk is full."""
        if self._count == _MAX_SAMPLES:
            raise UsageError(f"{self._folder}: lmdb stores at most {_MAX_SAMPLES} samples")
        content = encode_datum(sample)
        self._pending.append((b"%08d_" % self._count + encode_shortened_key(sample.key), content))
        self._count += 1
        self._bytes += len(content)
        if self._bytes >= _TRANSACTION_BYTES:
            self.sync()

    def sync(self) -> None:
        """Commit all pending samples. Raises UsageError if the disk is full."""
        while not self._commit_if_it_fits():
            self._grow_map()
        self._pending, self._bytes = [], 0

    def close(self) -> None:
        """Commit all pending samples and close the database."""
        try:
            self.sync()
        finally:
            self._database.close()
        (self._folder / "lock.mdb").unlink(missing_ok=True)

    def _keep_first(self, count: int) -> None:
        with self._database.begin(write=True) as transaction, transaction.cursor() as cursor:
            for number in range(count):
                if not (cursor.next() and cursor.key().startswith(b"%08d_" % number)):
                    raise Damaged(f"{self._folder} has {number} records from xfbench, not {count}")
            if cursor.next():
                while cursor.delete():
                    pass

    def _commit_if_it_fits(self) -> bool:
        """Write all pending samples in one transaction.

        Return False and write nothing if the database would exceed its current size limit, which
        `_grow_map` raises. Raises UsageError if the disk is full or LMDB fails.
        """
        try:
            with self._database.begin(write=True) as transaction:
                for key, content in self._pending:
                    transaction.put(key, content, append=True)
        except lmdb.MapFullError:
            return False
        except lmdb.Error as error:
            # LMDB reports a write that a full disk cut short as an input/output error.
            free = shutil.disk_usage(self._folder).free
            problem = f"only {free} bytes are free" if free < self._bytes else str(error)
            raise UsageError(f"{self._folder}: {problem}; {_DISK_HINT}") from error
        return True

    def _grow_map(self) -> None:
        free = shutil.disk_usage(self._folder).free
        max_bytes = (self._file_bytes() + free) // mmap.PAGESIZE * mmap.PAGESIZE
        if max_bytes <= self._map_size:
            raise UsageError(f"{self._folder}: only {free} bytes are free; {_DISK_HINT}")
        self._map_size = min(2 * self._map_size, max_bytes)
        self._database.set_mapsize(self._map_size)

    def _file_bytes(self) -> int:
        file = self._folder / "data.mdb"
        return file.stat().st_size if file.exists() else 0


def encode_shortened_key(key: str) -> bytes:
    """Encode a sample's key as a part of an LMDB key.

    If the sample's key is too long, its end is replaced by the digest of the whole key.
    """
    content = encode_sample_key(key)
    if len(content) <= _MAX_NAME_BYTES:
        return content
    tail = "~" + hashlib.sha256(content).hexdigest()
    return content[: _MAX_NAME_BYTES - len(tail)].decode(errors="ignore").encode() + tail.encode()


def encode_datum(sample: Sample) -> bytes:
    """Encode a sample as Caffe's Datum: BGR pixels, or an unchanged image file.

    If the sample's key is too long for LMDB, the Datum also contains the key (`KEY_FIELD`).
    """
    label = encode_varint_field(5, validate_label(sample.label, sample.key))
    if isinstance(sample.image, bytes):
        image_file = encode_image(sample.image, sample.key)
        content = encode_bytes_field(4, image_file.content) + label + encode_varint_field(7, 1)
    else:
        pixels = validate_chw_pixels(sample.image)
        shape = b"".join(
            encode_varint_field(field, length) for field, length in enumerate(pixels.shape, 1)
        )
        content = (
            shape + encode_bytes_field(4, np.ascontiguousarray(pixels[::-1]).tobytes()) + label
        )
    key = encode_sample_key(sample.key)
    full_key = encode_bytes_field(reading.KEY_FIELD, key) if len(key) > _MAX_NAME_BYTES else b""
    return content + full_key
