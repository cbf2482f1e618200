"""Writer of TFRecord files: one file of `tf.train.Example`s per split.

The features have the usual names, such as `image/encoded`.
"""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c

from xfbench.base.shared_files import open_file
from xfbench.datasets.encoding import (
    EncodedImage,
    encode_bytes_field,
    encode_image,
    encode_sample_key,
    encode_varint,
    validate_label,
)
from xfbench.datasets.resumed import AppendedFile, first_record_bounds, truncate_or_create_file
from xfbench.worker.formats.tfrecord import FOOTER, record_data_spans
from xfbench.worker.samples import Sample


class Writer(AppendedFile):
    """A writer that appends to `SPLIT.tfrecord`."""

    def __init__(self, folder: Path, split: str, count: int) -> None:
        """Open or create the file, and remove all records after the first `count`.

        Raises Damaged if fewer than `count` records are complete.
        """
        path = folder / f"{split}.tfrecord"
        bounds = first_record_bounds(path, count, record_data_spans)
        truncate_or_create_file(path, bounds[-1][1] + FOOTER if bounds else 0)
        super().__init__(open_file(path, "ab"))

    def add(self, sample: Sample) -> None:
        """Add a sample. Raises UsageError if TFRecord cannot store the sample."""
        label = validate_label(sample.label, sample.key)
        data = encode_example(encode_image(sample.image, sample.key), label, sample.key)
        length = struct.pack("<Q", len(data))
        self.file.write(length + _masked_crc(length) + data + _masked_crc(data))


def encode_example(image_file: EncodedImage, label: int, key: str) -> bytes:
    """Encode an image file as a `tf.train.Example`, with features sorted by name."""
    features = (
        _encode_number_feature("image/class/label", label),
        _encode_bytes_feature("image/encoded", image_file.content),
        _encode_bytes_feature("image/filename", encode_sample_key(key)),
        _encode_bytes_feature("image/format", image_file.kind.encode()),
        _encode_number_feature("image/height", image_file.height),
        _encode_bytes_feature("image/key", encode_sample_key(key)),
        _encode_number_feature("image/width", image_file.width),
    )
    return encode_bytes_field(1, b"".join(features))


def _encode_number_feature(name: str, value: int) -> bytes:
    return _encode_feature(name, encode_bytes_field(3, encode_bytes_field(1, encode_varint(value))))


def _encode_bytes_feature(name: str, value: bytes) -> bytes:
    return _encode_feature(name, encode_bytes_field(1, encode_bytes_field(1, value)))


def _encode_feature(name: str, value: bytes) -> bytes:
    return encode_bytes_field(
        1, encode_bytes_field(1, name.encode()) + encode_bytes_field(2, value)
    )


def _masked_crc(content: bytes) -> bytes:
    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
