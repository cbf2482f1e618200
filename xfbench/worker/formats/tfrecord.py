"""TFRecord: TensorFlow's records of `tf.train.Example`, in `SPLIT.tfrecord` or numbered shards.

A record has the length of its data (uint64), the masked CRC-32C of this length, the data, and the
masked CRC-32C of the data. These features of an Example are read:

- `image/encoded`: the image file. Other tools call it `image`, `image_raw` or `encoded`.
- `image/class/label`: the label. Other tools call it `label`, `class` or `image/label`.
- `image/key`, or else `image/filename`: the key. Without both, the key is the sample's position.

Records are located when the split is opened. A record's data are read when its sample is accessed.
The first access verifies their checksum.
"""

from __future__ import annotations

import bisect
import re
import struct
from array import array
from itertools import islice
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np

from xfbench.worker.crc32c import masked_crc32c
from xfbench.worker.formats import Damaged, SampleList, resolve_file
from xfbench.worker.protobuf import (
    BYTES,
    VARINT,
    Malformed,
    Span,
    iterate_fields,
    iterate_packed_varints,
    to_signed,
)
from xfbench.worker.samples import Sample
from xfbench.worker.stored import (
    DataFile,
    KeyChecker,
    check_count,
    check_image_signature,
    check_label,
)

HEADER, FOOTER = 12, 4
_SHARD = r"-(\d{5})-of-(\d{5})(?:\.tfrecords?)?"
_BYTES_LIST, _INT64_LIST = 1, 3
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda")  # gzip and zlib
_MAX_FEATURES = 10_000  # of an Example; those of other tools have some dozens
_IMAGE_NAMES = ("image/encoded", "image", "image_raw", "encoded")
_LABEL_NAMES = ("image/class/label", "label", "class", "image/label")


def samples(folder: Path, split: str, listed: SampleList | None = None) -> Sequence[Sample]:
    """Return the samples of a split, shard by shard.

    Raises Damaged if a file is damaged or the number of samples differs from `listed`.
    """
    files = [DataFile(resolve_file(folder, name)) for name in _file_names_of_split(folder, split)]
    records_found = _Records(files, KeyChecker(listed), {})
    check_count(folder, len(records_found), listed)
    return records_found


def read_files(paths: Sequence[Path], names: Mapping[str, str] | None = None) -> Sequence[Sample]:
    """Return the samples in the files of another tool, in order. Keys may occur twice.

    `names` may have the names of the features "image" and "label". Raises Damaged if the first
    Example has no such features.
    """
    keys = KeyChecker(None, unique=False)
    files = [DataFile(path, follow_link=True) for path in paths]
    records_found = _Records(files, keys, names or {})
    records_found.check_features_of_first_example()
    return records_found


def record_data_spans(file: DataFile) -> Iterator[Tuple[int, int]]:
    """Yield (start, end) in bytes of the data of each record.

    Raises Damaged at the first record that is incomplete or whose length has a wrong checksum.
    """
    place, number = 0, 0
    while place < file.size:
        record_name = f"record {number}"
        header = file.read(place, HEADER, record_name)
        length, crc = struct.unpack("<QI", header)
        if masked_crc32c(header[:8]) != crc:
            if not place and header[:2] in _COMPRESSED:
                raise Damaged(
                    f"{file.path} is compressed with gzip or zlib: decompress it first, "
                    "such as with `gunzip < OLD > NEW`"
                )
            raise file.damaged(record_name, f"the checksum of its length, {length}, is wrong")
        if length + HEADER + FOOTER > file.size - place:
            raise file.damaged(record_name, f"it is truncated: {length} bytes of data are missing")
        start, end = place + HEADER, place + HEADER + length
        yield start, end
        place, number = end + FOOTER, number + 1


def _file_names_of_split(folder: Path, split: str) -> List[str]:
    """Return the names of a split's files, in order. Raises Damaged if a shard is missing."""
    single_name = f"{split}.tfrecord"
    matches = [(re.fullmatch(re.escape(split) + _SHARD, path.name)) for path in folder.glob("*")]
    shards = sorted((int(m[1]), int(m[2]), m[0]) for m in matches if m)
    if not shards:
        return [single_name]
    count = shards[0][1]
    if [(number, of) for number, of, _ in shards] != [(n, count) for n in range(count)]:
        raise Damaged(
            f"{folder}: shards are missing from the sequence that begins with "
            f"{split}-00000-of-{count:05d}"
        )
    if (folder / single_name).exists():
        raise Damaged(f"{folder} has both {single_name} and shards of {split}: remove one of them")
    return [name for _, _, name in shards]


class _Records(Sequence[Sample]):
    def __init__(self, files: List[DataFile], keys: KeyChecker, names: Mapping[str, str]) -> None:
        self.files, self.keys = files, keys
        self.image_names = (names["image"],) if "image" in names else _IMAGE_NAMES
        self.label_names = (names["label"],) if "label" in names else _LABEL_NAMES
        self.places, self.lengths = array("Q"), array("Q")
        self.firsts: List[int] = []
        for file in files:
            self.firsts.append(len(self.places))
            for start, end in record_data_spans(file):
                self.places.append(start)
                self.lengths.append(end - start)
        self.right = bytearray(len(self.places))  # records whose data checksum was verified

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        index = range(len(self))[index]
        file, record_name = self._place(index)
        data = self._read_data(index)
        try:
            sample = self._parse_example(data, index)
        except Malformed as error:
            raise file.damaged(record_name, str(error)) from error
        defect = check_label(sample.label) or self.keys.check(sample.key, index)
        if defect:
            raise file.damaged(record_name, defect)
        return sample

    def check_features_of_first_example(self) -> None:
        """Raise Damaged if the first record that is an Example lacks the image or the label.

        Otherwise, a wrong name would be noticed only after each record was read.
        """
        for index in range(len(self)):
            try:
                features = _feature_spans(self._read_data(index))
            except (Damaged, Malformed):
                continue
            file, record_name = self._place(index)
            try:
                _choose_feature(features, self.image_names, "image")
                _choose_feature(features, self.label_names, "label")
            except Malformed as error:
                raise file.damaged(record_name, str(error)) from error
            return

    def _place(self, index: int) -> Tuple[DataFile, str]:
        """Return the file of a record, and the name of the record in this file."""
        shard = bisect.bisect_right(self.firsts, index) - 1
        return self.files[shard], f"record {index - self.firsts[shard]}"

    def _read_data(self, index: int) -> bytes:
        file, record_name = self._place(index)
        length = self.lengths[index]
        content = file.read(self.places[index], length + FOOTER, record_name)
        data = content[:length]
        if not self.right[index] and masked_crc32c(data) != int.from_bytes(
            content[length:], "little"
        ):
            raise file.damaged(record_name, "the checksum of its data is wrong")
        self.right[index] = True
        return data

    def _parse_example(self, data: bytes, index: int) -> Sample:
        features = _feature_spans(data)
        image_name = _choose_feature(features, self.image_names, "image")
        start, end = _single_span_or_number(data, features, image_name, _BYTES_LIST)
        label_name = _choose_feature(features, self.label_names, "label")
        label, _ = _single_span_or_number(data, features, label_name, _INT64_LIST)
        content, key = data[start:end], f"{index:08d}"
        pixels = _parse_pixels(data, features, content)
        defect = check_image_signature(content) if pixels is None else None
        if defect:
            raise Malformed(defect)
        image = content if pixels is None else pixels
        for name in ("image/filename", "image/key"):
            if name in features:
                first, last = _single_span_or_number(data, features, name, _BYTES_LIST)
                key = _decode_text(data[first:last]) or key
        return Sample(key, to_signed(label), image)


def _choose_feature(features: Dict[str, Span], names: Tuple[str, ...], kind: str) -> str:
    """Return the feature to read: the first of `names`, or else the only other one of them.

    `kind` is "image" or "label".

    Raises Malformed if there is none, or if there are several others.
    """
    present = [name for name in names if name in features]
    if names[0] in features:
        return names[0]
    if len(present) == 1:
        return present[0]
    if not present:
        held = ", ".join(sorted(features)) or "none"
        raise Malformed(
            f"it has no feature {', '.join(names)}, only {held}: choose one with "
            f"--features {kind}=NAME"
        )
    raise Malformed(f"it has {' and '.join(present)}: choose one with --features {kind}=NAME")


def _parse_pixels(data: bytes, features: Dict[str, Span], content: bytes) -> np.ndarray | None:
    """Return pixels (C, H, W) that are stored without an encoding, or None.

    Such an Example has the features height, width and depth, and its image has exactly as many
    bytes, with the channels last.
    """
    if not {"height", "width"} <= set(features):
        return None
    depth_name = next((name for name in ("depth", "channels") if name in features), None)
    sides = [
        to_signed(_single_span_or_number(data, features, name, _INT64_LIST)[0])
        for name in ("height", "width", depth_name)
        if name
    ]
    height, width, depth = (*sides, 1)[:3]
    if min(sides) < 1 or depth not in (1, 3) or height * width * depth != len(content):
        return None
    pixels = np.frombuffer(content, np.uint8).reshape(height, width, depth)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _feature_spans(data: bytes) -> Dict[str, Span]:
    """Return (start, end) in bytes of each feature's value in an Example, by feature name."""
    spans = {}
    for features in _nested_messages(data, (0, len(data)), 1):
        for entry in _nested_messages(data, features, 1):
            name, value = b"", (0, 0)
            for number, wire, start, end in iterate_fields(data, entry):
                if (number, wire) == (1, BYTES):
                    name = data[start:end]
                elif (number, wire) == (2, BYTES):
                    value = start, end
            spans[_decode_text(name)] = value
            if len(spans) > _MAX_FEATURES:
                raise Malformed(f"it has more than {_MAX_FEATURES:,} features")
    return spans


def _nested_messages(data: bytes, span: Span, field_number: int) -> Iterator[Span]:
    for number, wire, start, end in iterate_fields(data, span):
        if (number, wire) == (field_number, BYTES):
            yield start, end


def _single_span_or_number(
    data: bytes, spans: Dict[str, Span], name: str, kind: int
) -> Tuple[int, int]:
    """Return the value of the feature `name`. Raises Malformed unless it has exactly one value.

    - `spans`: the result of `_feature_spans`.
    - `kind`: `_BYTES_LIST` or `_INT64_LIST`.

    For bytes, the result is (start, end) of the value in `data`. For a number, it is (number, 0).
    """
    values = list(islice(_iterate_values(data, spans.get(name, (0, 0)), kind), 2))
    if len(values) != 1:
        count = "several" if values else "no"
        meant = "number" if kind == _INT64_LIST else "string of bytes"
        raise Malformed(f"feature {name} has {count} values, but needs exactly one {meant}")
    return values[0]


def _iterate_values(data: bytes, span: Span, kind: int) -> Iterator[Tuple[int, int]]:
    for items in _nested_messages(data, span, kind):
        for number, wire, start, end in iterate_fields(data, items):
            if number == 1 and kind == _INT64_LIST and wire == BYTES:
                yield from ((value, 0) for value in iterate_packed_varints(data, (start, end)))
            elif number == 1 and wire == (VARINT if kind == _INT64_LIST else BYTES):
                yield start, end


def _decode_text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"{content[:40]!r} is not text") from error
