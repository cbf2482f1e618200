"""Writes TFRecord: one file of `tf.train.Example`s for a split, features named as is usual."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c

from xfbench.data.encoding import (
    Picture,
    bytes_field,
    checked_label,
    picture,
    text,
    varint,
)
from xfbench.data.resumed import Appended, cut, first
from xfbench.worker.formats.tfrecord import FOOTER, records
from xfbench.worker.samples import Sample


class Writer(Appended):
    """Appends to `SPLIT.tfrecord`."""

    def __init__(self, folder: Path, split: str, count: int) -> None:
        """After the first `count`. Raises Damaged where fewer whole ones are there."""
        path = folder / f"{split}.tfrecord"
        kept = first(path, count, records)
        cut(path, kept[-1][1] + FOOTER if kept else 0)
        super().__init__(path.open("ab"))

    def add(self, sample: Sample) -> None:
        """Raises UsageError where the format cannot keep it."""
        label = checked_label(sample.label, sample.key)
        data = example(picture(sample.image, sample.key), label, sample.key)
        length = struct.pack("<Q", len(data))
        self.file.write(length + _masked(length) + data + _masked(data))


def example(kept: Picture, label: int, key: str) -> bytes:
    """A `tf.train.Example`: features in the order of their names."""
    features = (
        _number("image/class/label", label),
        _bytes("image/encoded", kept.content),
        _bytes("image/filename", text(key)),
        _bytes("image/format", kept.kind.encode()),
        _number("image/height", kept.height),
        _bytes("image/key", text(key)),
        _number("image/width", kept.width),
    )
    return bytes_field(1, b"".join(features))


def _number(name: str, value: int) -> bytes:
    return _feature(name, bytes_field(3, bytes_field(1, varint(value))))


def _bytes(name: str, value: bytes) -> bytes:
    return _feature(name, bytes_field(1, bytes_field(1, value)))


def _feature(name: str, value: bytes) -> bytes:
    return bytes_field(1, bytes_field(1, name.encode()) + bytes_field(2, value))


def _masked(content: bytes) -> bytes:
    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
