"""Writer of RecordIO files: the records `SPLIT.rec` and their index `SPLIT.idx`.

The files have the format of MXNet's im2rec. The index is written when the writer is closed.
"""

from __future__ import annotations

import struct
from pathlib import Path

from xfbench.base import atomic_files
from xfbench.base.errors import UsageError
from xfbench.base.shared_files import open_file
from xfbench.datasets.encoding import encode_image, validate_label
from xfbench.datasets.resumed import (
    AppendedFile,
    first_record_bounds,
    sync_folder,
    truncate_or_create_file,
)
from xfbench.worker.formats.recordio import (
    COMPLETE,
    FIRST,
    LAST,
    MAGIC,
    MAX_PART_BYTES,
    MIDDLE,
    record_spans,
)
from xfbench.worker.samples import Sample

_LARGEST_LABEL = 2**24
"""The largest label. Labels are stored as float32, which is exact for integers up to this one."""


class Writer(AppendedFile):
    """A writer that appends to `SPLIT.rec`. Records have numbers from 0 instead of keys."""

    def __init__(self, folder: Path, split: str, count: int) -> None:
        """Open or create the file, and remove all records after the first `count`.

        Raises Damaged if fewer than `count` records are complete.
        """
        path, self._index = folder / f"{split}.rec", folder / f"{split}.idx"
        bounds = first_record_bounds(path, count, record_spans)
        self._index.unlink(missing_ok=True)
        truncate_or_create_file(path, bounds[-1][1] if bounds else 0)
        self._starts = [start for start, _ in bounds]
        super().__init__(open_file(path, "ab"))

    def add(self, sample: Sample) -> None:
        """Add a sample. Raises UsageError if RecordIO cannot store the sample."""
        label = validate_label(sample.label, sample.key, _LARGEST_LABEL)
        header = struct.pack("<IfQQ", 0, label, len(self._starts), 0)
        content = encode_record(header + encode_image(sample.image, sample.key).content)
        start = self.file.tell()
        self.file.write(content)
        self._starts.append(start)

    def close(self) -> None:
        """Sync and close the file, and write the index."""
        super().close()
        lines = "".join(f"{number}\t{start}\n" for number, start in enumerate(self._starts))
        atomic_files.write(self._index, lines.encode())
        sync_folder(self._index.parent)


def encode_record(data: bytes) -> bytes:
    """Encode `data` as a record.

    The record is split into parts wherever `data` has the magic number at a multiple of 4 bytes.
    Raises UsageError if `data` is too long.
    """
    if len(data) > MAX_PART_BYTES:
        raise UsageError(
            f"a record has {len(data)} bytes: RecordIO allows at most {MAX_PART_BYTES}"
        )
    parts, start, position = [], 0, data.find(MAGIC)
    while position >= 0:
        if position % 4 == 0:
            parts.append(data[start:position])
            start = position + 4
            position = data.find(MAGIC, start)
        else:
            position = data.find(MAGIC, position + 1)
    parts.append(data[start:])
    kinds = [FIRST, *[MIDDLE] * (len(parts) - 2), LAST] if len(parts) > 1 else [COMPLETE]
    return b"".join(
        MAGIC + struct.pack("<I", kind << 29 | len(part)) + part + bytes(-len(part) % 4)
        for kind, part in zip(kinds, parts, strict=True)
    )
