"""LMDB: Caffe's database of `Datum` messages, `SPLIT.lmdb/data.mdb`, with keys `%08d_<name>`.

The file is a B+ tree of pages. LMDB's mdb.c defines it (MDB_page, MDB_node and MDB_meta, data
version 1). When the split is opened, the whole tree is traversed, and every position in the tree is
checked against the file's size. The pixels of a Datum have blue first, those of a Sample red first.
"""

from __future__ import annotations

import re
import struct
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Sequence, Tuple

import numpy as np

from xfbench.worker.formats import Damaged, SampleList, resolve_file
from xfbench.worker.protobuf import BYTES, VARINT, Malformed, iterate_fields, to_signed
from xfbench.worker.samples import Sample
from xfbench.worker.stored import (
    DataFile,
    KeyChecker,
    check_count,
    check_image_signature,
    check_label,
)

MAGIC, VERSION = 0xBEEFC0DE, 1
KEY_FIELD = 1001
"""The number of the Datum field for a key that is too long for LMDB. Caffe ignores this field."""
# Number, unused, flags, lower, upper. On overflow pages, the last two are the count of pages.
_PAGE = struct.Struct("<QHHHH")
_BRANCH, _LEAF, _OVERFLOW, _META = 1, 2, 4, 8
_META_HEAD = struct.Struct("<IIQQ")  # magic, version, address, size of the map
# Page size, flags, depth, numbers of branch, leaf and overflow pages, entries, root page.
_TREE = struct.Struct("<IHHQQQQQ")
# On leaf pages: value's size (low, high), flags, key's size. On branch pages: child's page number
# (low, middle, high), key's size.
_NODE = struct.Struct("<HHHH")
_META_LENGTH = _PAGE.size + _META_HEAD.size + 2 * _TREE.size + 16
_BIG, _SUB, _DUPLICATES = 1, 2, 4
_PAGE_SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
_NONE = 2**64 - 1
_MAX_DEPTH = 32  # LMDB's own cursors have no more (CURSOR_STACK)
_NUMBERED = re.compile(r"\d+_(.+)", re.DOTALL)
_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _FLOATS, _ENCODED = range(1, 8)


def samples(folder: Path, split: str, listed: SampleList | None = None) -> Sequence[Sample]:
    """Return the samples of a split in the order of the database's keys.

    Raises Damaged if the tree is damaged or its number of records differs from `listed`.
    """
    file = DataFile(resolve_file(folder, f"{split}.lmdb/data.mdb"))
    datums = _Datums(file, KeyChecker(listed))
    check_count(file.path, len(datums), listed)
    return datums


def read_file(path: Path) -> Sequence[Sample]:
    """Return the samples in a database of another tool. Keys may differ only in their number."""
    return _Datums(DataFile(path, follow_link=True), KeyChecker(None, unique=False))


def locate_record_nodes_and_values(file: DataFile) -> Iterator[Tuple[int, bytes, int, int]]:
    """Yield every record as (offset of its node, key, offset of its value, length of its value).

    Offsets and lengths are in bytes of the file. Raises Damaged if the tree is damaged.
    """
    meta = _read_newest_meta(file)
    if meta.flags & _DUPLICATES:
        raise Damaged(f"{file.path} has several values per key, unlike Caffe's databases")
    if meta.depth > _MAX_DEPTH:
        raise Damaged(
            f"{file.path} has a tree of depth {meta.depth}, but LMDB ends at {_MAX_DEPTH}"
        )
    record_count, pages_left = 0, meta.last
    waiting = [] if meta.root == _NONE else [(meta.root, meta.depth)]
    while waiting:
        number, depth = waiting.pop()
        page_name, pages_left = f"page {number}", pages_left - 1
        if pages_left < 0 or depth < 1:
            raise file.damaged(page_name, "the tree does not end")
        page = _read_page(file, meta, number, _LEAF if depth == 1 else _BRANCH)
        nodes = list(_node_places_and_headers(page, file, page_name))
        if depth > 1:
            children = [low | high << 16 | flags << 32 for _, low, high, flags, _ in nodes]
            waiting += [(child, depth - 1) for child in reversed(children)]
            continue
        for place, low, high, flags, key_size in nodes:
            key_end = place + _NODE.size + key_size
            key, size = page[place + _NODE.size : key_end], low | high << 16
            start = number * meta.page_size + key_end
            if flags & _SUB or flags & _DUPLICATES:
                raise file.damaged(page_name, "a record has several values")
            if flags & _BIG:
                start = _overflow_value_offset(
                    file, meta, page[key_end : key_end + 8], size, page_name
                )
            elif key_end + size > len(page):
                raise file.damaged(page_name, "a record extends beyond its page")
            yield number * meta.page_size + place, key, start, size
            record_count += 1
    if record_count != meta.entries:
        raise Damaged(
            f"{file.path} has {record_count} records in its tree, "
            f"but its meta page says {meta.entries}"
        )


@dataclass(frozen=True)
class _Meta:
    """A meta page, the header of a database.

    - `page_size`: the size of a page in bytes.
    - `flags`, `depth`, `entries`, `root`: the tree's flags, depth, number of records and root page.
    - `last`: the number of the database's last page.
    - `transaction`: the number of the transaction that wrote this meta page.
    """

    page_size: int
    flags: int
    depth: int
    entries: int
    root: int
    last: int
    transaction: int


def _read_newest_meta(file: DataFile) -> _Meta:
    """Return the newest valid meta page. A database has two meta pages, which alternate."""
    if file.size < _META_LENGTH:
        raise Damaged(f"{file.path} has {file.size} bytes: too short for an LMDB database")
    first = _read_meta(file, 0)
    size = first.page_size if first else _second_meta_offset(file)
    second = _read_meta(file, size)
    valid = [meta for meta in (first, second) if meta and meta.page_size == size]
    if not valid:
        raise Damaged(f"{file.path} is not an LMDB database: it has no valid meta page")
    newest = max(valid, key=lambda meta: meta.transaction)
    needed = (newest.last + 1) * size
    if file.size < needed:
        raise Damaged(
            f"{file.path} is truncated: it has {file.size} bytes, but needs {needed} bytes for "
            f"pages 0 to {newest.last}"
        )
    return newest


def _second_meta_offset(file: DataFile) -> int:
    """Find the second meta page without the first, which is not valid. Return its offset in bytes.

    The offset is the page size. This function tries every page size that LMDB uses. Raises Damaged
    if there is no meta page.
    """
    for size in _PAGE_SIZES:
        meta = _read_meta(file, size)
        if meta and meta.page_size == size:
            return size
    raise Damaged(f"{file.path} is not an LMDB database: it has no valid meta page")


def _read_meta(file: DataFile, place: int) -> _Meta | None:
    if place + _META_LENGTH > file.size:
        return None
    content = file.read(place, _META_LENGTH, "meta page")
    _, _, flags, _, _ = _PAGE.unpack_from(content)
    magic, version, _, _ = _META_HEAD.unpack_from(content, _PAGE.size)
    if not flags & _META or magic != MAGIC:
        return None
    if version != VERSION:
        raise Damaged(f"{file.path} has version {version} of LMDB's format, not {VERSION}")
    trees = _PAGE.size + _META_HEAD.size
    size = _TREE.unpack_from(content, trees)[0]
    _, flags, depth, _, _, _, entries, root = _TREE.unpack_from(content, trees + _TREE.size)
    if size not in _PAGE_SIZES:
        raise Damaged(f"{file.path} has pages of {size} bytes, a size that LMDB does not use")
    last, transaction = struct.unpack_from("<QQ", content, trees + 2 * _TREE.size)
    return _Meta(size, flags, depth, entries, root, last, transaction)


class _Datums(Sequence[Sample]):
    def __init__(self, file: DataFile, names: KeyChecker) -> None:
        self.file = file
        self.nodes, self.keys = array("Q"), array("H")
        self.places, self.sizes = array("Q"), array("Q")
        last = b""
        for node, key, place, size in locate_record_nodes_and_values(file):
            record_name = f"record {len(self.nodes)}"
            if key <= last:
                raise file.damaged(record_name, f"its key {key!r} does not come after {last!r}")
            if defect := names.check(_decode_key_without_number(key), len(self.nodes)):
                raise file.damaged(record_name, defect)
            self.nodes.append(node)
            self.keys.append(len(key))
            self.places.append(place)
            self.sizes.append(size)
            last = key

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        index = range(len(self))[index]
        record_name = f"record {index}"
        key = self.file.read(self.nodes[index] + _NODE.size, self.keys[index], record_name)
        datum = self.file.read(self.places[index], self.sizes[index], record_name)
        try:
            sample = parse_datum(datum, _decode_key_without_number(key))
        except Malformed as error:
            raise self.file.damaged(record_name, str(error)) from error
        if defect := check_label(sample.label):
            raise self.file.damaged(record_name, defect)
        return sample


def _read_page(file: DataFile, meta: _Meta, number: int, kind: int) -> bytes:
    """Return the page `number` of the tree, which must be of `kind` (`_LEAF` or `_BRANCH`).

    Raises Damaged if the page does not exist, or if its header has another number or kind.
    """
    if number > meta.last or number < 2:
        raise file.damaged(f"page {number}", f"there are only pages 2 to {meta.last}")
    page = file.read(number * meta.page_size, meta.page_size, f"page {number}")
    page_number, _, flags, _, _ = _PAGE.unpack_from(page)
    if page_number != number or flags & (_BRANCH | _LEAF | _OVERFLOW | _META) != kind:
        raise file.damaged(f"page {number}", f"its header says page {page_number} of kind {flags}")
    return page


def _node_places_and_headers(
    page: bytes, file: DataFile, place_name: str
) -> Iterator[Tuple[int, int, int, int, int]]:
    """Yield each node of a page: its offset in the page, and the four parts of its header."""
    _, _, _, lower, _ = _PAGE.unpack_from(page)
    if not _PAGE.size <= lower <= len(page):
        raise file.damaged(place_name, f"its list of nodes ends at byte {lower}, outside of it")
    for (place,) in struct.iter_unpack("<H", page[_PAGE.size : lower & ~1]):
        if place < lower or place + _NODE.size > len(page):
            raise file.damaged(place_name, f"a node is at byte {place}, where no node can be")
        head = _NODE.unpack_from(page, place)
        if place + _NODE.size + head[3] > len(page):
            raise file.damaged(place_name, "a key extends beyond its page")
        yield (place, *head)


def _overflow_value_offset(
    file: DataFile, meta: _Meta, page_number_bytes: bytes, value_bytes: int, place_name: str
) -> int:
    """Return the offset in bytes of a value that is stored on its own pages.

    Raises Damaged if these pages are not all in the file.
    """
    number = int.from_bytes(page_number_bytes, "little")
    pages = -(-(_PAGE.size + value_bytes) // meta.page_size)
    if len(page_number_bytes) < 8 or number < 2 or number + pages - 1 > meta.last:
        raise file.damaged(
            place_name, f"{value_bytes} bytes at page {number} extend beyond the file"
        )
    return number * meta.page_size + _PAGE.size


def _decode_key_without_number(key: bytes) -> str:
    text = key.decode(errors="backslashreplace")
    numbered = _NUMBERED.fullmatch(text)
    return numbered[1] if numbered else text


def parse_datum(datum: bytes, key: str) -> Sample:
    """Return the sample in a serialized Datum. It has the key `key` unless the Datum has its own.

    Raises Malformed if the Datum is not a valid message or has no 8-bit image.
    """
    numbers = dict.fromkeys((_CHANNELS, _HEIGHT, _WIDTH, _LABEL, _ENCODED), 0)
    start = end = 0
    for number, wire, value, stop in iterate_fields(datum, (0, len(datum))):
        if number in numbers and wire == VARINT:
            numbers[number] = to_signed(value)
        elif (number, wire) == (_DATA, BYTES):
            start, end = value, stop
        elif (number, wire) == (KEY_FIELD, BYTES):
            key = datum[value:stop].decode(errors="backslashreplace")
        elif number == _FLOATS:
            raise Malformed("the Datum has float_data: only 8-bit images can be read")
    if numbers[_ENCODED]:
        image = datum[start:end]
        if defect := check_image_signature(image):
            raise Malformed(defect)
        return Sample(key, numbers[_LABEL], image)
    shape = (numbers[_CHANNELS], numbers[_HEIGHT], numbers[_WIDTH])
    size = shape[0] * shape[1] * shape[2]
    if shape[0] not in (1, 3) or min(shape) < 1 or size != end - start:
        shape_text = " × ".join(map(str, shape))
        raise Malformed(
            f"the Datum's {end - start} bytes of data are not an image of shape {shape_text} "
            "(channels × height × width, 1 or 3 channels)"
        )
    pixels = np.frombuffer(datum, np.uint8, size, start).reshape(shape)
    return Sample(key, numbers[_LABEL], np.ascontiguousarray(pixels[::-1]))
