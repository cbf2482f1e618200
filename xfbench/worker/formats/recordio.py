"""RecordIO: MXNet's records (`SPLIT.rec`) and the index of their offsets (`SPLIT.idx`).

A record consists of one or more parts. Each part has these fields:

- a magic number
- the part's kind and length, together one uint32
- the data, and zeros up to a multiple of 4 bytes

The data of a record are an IRHeader (flag, label as float32, two numbers) and an image file. If the
data contain the magic number at a multiple of 4 bytes, the writer splits them there into two parts.
It leaves out the magic number at the split, and the reader adds it again.

A line of the index has a record's number, a tab and the record's offset in bytes. The index defines
the order of the samples.
"""

from __future__ import annotations

import bisect
import itertools
import struct
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Tuple

from xfbench.worker.formats import Damaged, SampleList, read_limited, resolve_file
from xfbench.worker.samples import Sample
from xfbench.worker.stored import DataFile, check_count, check_image_signature, check_label

MAGIC = struct.pack("<I", 0xCED7230A)
MAX_PART_BYTES = 2**29 - 1
COMPLETE, FIRST, MIDDLE, LAST = range(4)
_MAX_INDEX_LINE_BYTES = 64
_IR_HEADER = struct.Struct("<IfQQ")


def samples(folder: Path, split: str, listed: SampleList | None = None) -> Sequence[Sample]:
    """Return the samples of a split in the order of its index.

    The samples have the keys in `listed`. If `listed` is None, a key is the record's number in the
    index with eight digits. Raises Damaged if the files and `listed` do not match.
    """
    file = DataFile(resolve_file(folder, f"{split}.rec"))
    samples_found = _Records(file, resolve_file(folder, f"{split}.idx"), listed)
    check_count(file.path, len(samples_found), listed)
    return samples_found


def read_files(paths: Sequence[Path]) -> Sequence[Sample]:
    """Return the samples in the files of another tool, one file after the other.

    Without an index next to a file, its records are in the order of the file. If there are several
    files, a sample's key is its position.
    """
    files = []
    for path in paths:
        index = path.with_suffix(".idx")
        is_indexed = path.suffix == ".rec" and index.is_file()
        files.append(_Records(DataFile(path), index if is_indexed else None, None))
    return files[0] if len(files) == 1 else _Joined(files)


def record_spans(file: DataFile) -> Iterator[Tuple[int, int]]:
    """Yield (start, end) in bytes of each record.

    If a record is stored in several parts, its span covers all of them. Raises Damaged at the
    first incomplete record.
    """
    place, number = 0, 0
    while place < file.size:
        start, part, record_name = place, FIRST, f"record {number}"
        while part in (FIRST, MIDDLE):
            inner = place > start
            part, length = _parse_part_kind_and_length(
                file.read(place, 8, record_name), file, record_name
            )
            if inner != (part in (MIDDLE, LAST)):
                raise file.damaged(record_name, "its parts are not in order")
            place += 8 + (length + 3) // 4 * 4
            if place > file.size:
                raise file.damaged(
                    record_name,
                    f"it is truncated: {place} bytes needed, the file has {file.size}",
                )
        yield start, place
        number += 1


def _parse_part_kind_and_length(head: bytes, file: DataFile, record_name: str) -> Tuple[int, int]:
    """Return (kind, length of the data in bytes) of a part that begins with the bytes `head`."""
    if head[:4] != MAGIC:
        raise file.damaged(record_name, f"it begins with {head[:4].hex(' ')}, not the magic number")
    word = int.from_bytes(head[4:8], "little")
    if word >> 29 > LAST:
        raise file.damaged(record_name, f"it has the unknown kind {word >> 29}")
    return word >> 29, word & MAX_PART_BYTES


class _Records(Sequence[Sample]):
    def __init__(self, file: DataFile, index: Path | None, listed: SampleList | None) -> None:
        self.file, self.listed = file, listed
        self.numbers, self.starts, self.ends = array("Q"), array("Q"), array("Q")
        end_by_start = dict(record_spans(file))
        if index is None:
            self.numbers.extend(range(len(end_by_start)))
            self.starts.extend(end_by_start.keys())
            self.ends.extend(end_by_start.values())
            return
        for number, start in _read_offsets_by_number(index, len(end_by_start)).items():
            end = end_by_start.pop(start, None)
            if end is None:
                raise Damaged(f"{index}: record {number} does not begin at byte {start}")
            self.numbers.append(number)
            self.starts.append(start)
            self.ends.append(end)
        if end_by_start:
            raise Damaged(f"{index} lacks {len(end_by_start)} records of {file.path}")

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        index = range(len(self))[index]
        number, record_name = self.numbers[index], f"record {self.numbers[index]}"
        data = self._read_and_join_parts(self.starts[index], self.ends[index], record_name)
        if len(data) < _IR_HEADER.size:
            raise self.file.damaged(record_name, "it is shorter than its header")
        flag, label, _, _ = _IR_HEADER.unpack_from(data)
        first = _IR_HEADER.size
        if flag == 1 and len(data) >= first + 4:
            [label] = struct.unpack_from("<f", data, first)
            first += 4
        elif flag:
            raise self.file.damaged(
                record_name, f"it has a vector of {flag} labels, not the label of one class"
            )
        if not label.is_integer():
            raise self.file.damaged(record_name, f"label {label} is not an integer")
        image = data[first:]
        defect = check_label(int(label)) or check_image_signature(image)
        if defect:
            raise self.file.damaged(record_name, defect)
        key = self.listed.keys[index] if self.listed else f"{number:08d}"
        return Sample(key, int(label), image)

    def _read_and_join_parts(self, start: int, end: int, record_name: str) -> bytes:
        content, place, parts = self.file.read(start, end - start, record_name), 0, []
        while place < len(content):
            _, length = _parse_part_kind_and_length(
                content[place : place + 8], self.file, record_name
            )
            parts.append(content[place + 8 : place + 8 + length])
            place += 8 + (length + 3) // 4 * 4
        return MAGIC.join(parts)


class _Joined(Sequence[Sample]):
    """The samples of several files."""

    def __init__(self, files: List[_Records]) -> None:
        self.files = files
        self.ends = list(itertools.accumulate(map(len, files)))

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        index = range(len(self))[index]
        number = bisect.bisect_right(self.ends, index)
        file = self.files[number]
        sample = file[index - self.ends[number] + len(file)]
        return replace(sample, key=f"{index:08d}")


def _read_offsets_by_number(index_path: Path, record_count: int) -> Dict[int, int]:
    """Return the offset of each record in bytes, by record number, in the order of the index.

    Raises Damaged if there are more than `record_count`.
    """
    starts: Dict[int, int] = {}
    try:
        content = read_limited(index_path, 2**20 + record_count * _MAX_INDEX_LINE_BYTES)
    except ValueError as error:
        raise Damaged(f"{index_path}: {error}, for {record_count} records") from error
    lines = content.split(b"\n")
    for line, text in enumerate(lines, 1):
        if not text and line == len(lines):
            continue
        number, tab, start = text.partition(b"\t")
        right = tab and number.isdigit() and start.strip().isdigit() and len(number) < 19
        if not right:
            raise Damaged(
                f"{index_path}, line {line}: {text[:40]!r} is not of the form "
                "'record number, tab, offset in bytes'"
            )
        if int(number) in starts:
            raise Damaged(f"{index_path}, line {line}: record {int(number)} occurs twice")
        starts[int(number)] = int(start)
    return starts
