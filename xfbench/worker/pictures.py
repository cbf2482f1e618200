"""The decoder of JPEG and PNG files (Pillow). All of xfbench's own readers use it."""

from __future__ import annotations

import functools
import io
import struct
import warnings
import zlib

import numpy as np

from xfbench.worker.formats import Damaged
from xfbench.worker.protocol import Unsupported
from xfbench.worker.samples import Sample

MAX_PIXELS = 64_000_000  # per image; a larger one is treated as a decompression bomb
MODES = {1: "L", 3: "RGB"}
_FORMATS = ("JPEG", "PNG")
DECODER_ERRORS = (
    *(OSError, ValueError, SyntaxError, LookupError, TypeError, ArithmeticError, AttributeError),
    *(EOFError, RuntimeError, struct.error, zlib.error),
)
"""Pillow's decoders raise these for damaged files."""


def decode_pixels(sample: Sample, channels: int | None = None) -> np.ndarray:
    """Return the sample's pixels, uint8 (C, H, W). An image file is decoded.

    - `channels` 1: the image is converted to gray.
    - `channels` 3: the image is converted to RGB.
    - `channels` None: a gray image stays gray, and any other image is converted to RGB.

    Raises Damaged if an image file is incomplete, is neither JPEG nor PNG, or has more than
    MAX_PIXELS pixels. Raises Unsupported without Pillow.
    """
    if isinstance(sample.image, np.ndarray) and channels in (None, len(sample.image)):
        return sample.image
    picture = open_image(sample)
    mode = MODES[channels] if channels else ("L" if picture.mode in ("1", "L") else "RGB")
    return pixels_from_image(picture.convert(mode))


def open_image(sample: Sample):  # type: ignore[no-untyped-def]
    """Return the sample as a fully decoded Pillow image.

    Raises the same errors as `decode_pixels`.
    """
    Image = _import_pillow()
    if isinstance(sample.image, np.ndarray):
        return image_from_pixels(sample.image)
    try:
        picture = Image.open(io.BytesIO(sample.image), formats=_FORMATS)
        if picture.width * picture.height > MAX_PIXELS:
            size = f"{picture.width}×{picture.height}"
            raise Damaged(f"{sample.key} has more than {MAX_PIXELS:,} pixels: {size}")
        picture.load()
    except Image.DecompressionBombError as error:
        raise Damaged(f"{sample.key} has more than {MAX_PIXELS:,} pixels: {error}") from error
    except DECODER_ERRORS as error:
        start = f"begins with {sample.image[:8].hex(' ')}" if sample.image else "is empty"
        cause = f"it {start}" if "BytesIO" in str(error) else error
        raise Damaged(f"{sample.key}: not a complete JPEG or PNG file: {cause}") from error
    if picture.mode.startswith("I"):  # 16 bits: Pillow's conversions would drop the upper bits
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    return picture


@functools.lru_cache(maxsize=None)
def _import_pillow():  # type: ignore[no-untyped-def]
    """Return Pillow's Image module, with its warning about large images disabled.

    The warning is not needed, because MAX_PIXELS is below the warning's limit. It is disabled only
    once, because warning filters belong to the whole process and are not thread-safe.

    Raises Unsupported without Pillow.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise Unsupported(f"JPEG and PNG files need Pillow in this interpreter: {error}") from error
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    return Image


def image_from_pixels(pixels: np.ndarray):  # type: ignore[no-untyped-def]
    """Return a Pillow image of `pixels`, uint8 (C, H, W): gray if C is 1, RGB if C is 3."""
    from PIL import Image

    plain = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    return Image.fromarray(np.ascontiguousarray(plain))


def pixels_from_image(picture) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Return the pixels of a gray or RGB Pillow image, uint8 (C, H, W)."""
    array = np.asarray(picture, np.uint8)
    return array[np.newaxis] if array.ndim == 2 else np.ascontiguousarray(np.moveaxis(array, -1, 0))
