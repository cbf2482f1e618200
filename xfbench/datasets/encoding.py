"""Encoders for the data-set formats: image files and protocol-buffer fields."""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass

import numpy as np
import PIL.Image

from xfbench.base.errors import UsageError
from xfbench.worker import pictures
from xfbench.worker.stored import MAX_LABEL


@dataclass(frozen=True)
class EncodedImage:
    """An image file: its bytes, its kind ("JPEG" or "PNG") and its size in pixels."""

    content: bytes
    kind: str
    height: int
    width: int


def validate_chw_pixels(pixels: np.ndarray) -> np.ndarray:
    """Return `pixels` unchanged. Raises ValueError unless they are uint8 (1 or 3, H, W)."""
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or len(pixels) not in (1, 3):
        raise ValueError(f"{pixels.dtype} {pixels.shape} must be uint8 pixels (1 or 3, H, W)")
    return pixels


def encode_png(pixels: np.ndarray) -> bytes:
    """Encode uint8 pixels (C, H, W), gray or RGB, as a PNG file.

    Run-length compression takes a quarter of the time of zlib's default. It makes the file of a
    photograph 2 % larger.
    """
    return _encode(pixels, "png", compress_type=zlib.Z_RLE)


def encode_jpeg(pixels: np.ndarray, quality: int) -> bytes:
    """Encode uint8 pixels (C, H, W), gray or RGB, as a JPEG file.

    `quality` is the quality of libjpeg, 1 to 100.
    """
    return _encode(pixels, "jpeg", quality=quality)


def _encode(pixels: np.ndarray, kind: str, **options: int) -> bytes:
    file = io.BytesIO()
    pictures.image_from_pixels(validate_chw_pixels(pixels)).save(file, kind, **options)
    return file.getvalue()


def encode_image(image: np.ndarray | bytes, sample_key: str) -> EncodedImage:
    """Return the image file of a sample. Pixels are encoded as a PNG file.

    `image` is pixels or the bytes of an image file. `sample_key` names the sample in errors. Raises
    UsageError if the bytes are neither a JPEG nor a PNG file.
    """
    content = image if isinstance(image, bytes) else encode_png(image)
    try:
        with PIL.Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as image_file:
            return EncodedImage(
                content, str(image_file.format), image_file.height, image_file.width
            )
    except (OSError, PIL.Image.DecompressionBombError) as error:
        raise UsageError(f"{sample_key} is neither a JPEG nor a PNG file: {error}") from error


def validate_label(label: int, sample_key: str, max_label: int = MAX_LABEL) -> int:
    """Return `label` unchanged. Raises UsageError unless it is from 0 to `max_label`.

    `max_label` is the largest label that the format can store.
    """
    if not 0 <= label <= max_label:
        raise UsageError(
            f"{sample_key} has label {label}: this format stores labels from 0 to {max_label}"
        )
    return label


def encode_sample_key(key: str) -> bytes:
    """Encode a key as UTF-8.

    Raises UsageError if the key is empty, has line ends or tabs, or cannot be encoded.
    """
    if not key or any(mark in key for mark in "\n\r\t"):
        raise UsageError(f"{key!r} is not a valid key: it is empty or has line ends or tabs")
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{key!r} is not valid text: rename the file") from error


def encode_varint(value: int) -> bytes:
    """Encode an integer as a protocol-buffer varint. Negative integers are encoded as int64."""
    value &= 2**64 - 1
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*content, value])


def encode_varint_field(field_number: int, value: int) -> bytes:
    """Encode a protocol-buffer field that contains an integer."""
    return encode_varint(field_number << 3) + encode_varint(value)


def encode_bytes_field(field_number: int, content: bytes) -> bytes:
    """Encode a protocol-buffer field that contains bytes or a message."""
    return encode_varint(field_number << 3 | 2) + encode_varint(len(content)) + content
