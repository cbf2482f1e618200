"""Preprocessing of images: channels, size and encoding, in that order.

Pillow's bilinear filter scales the images; it takes all source pixels into account. An image file
that needs neither scaling nor encoding keeps its bytes.
"""

from __future__ import annotations

import io
import struct

import numpy as np
from PIL import ExifTags, Image, ImageOps

from xfbench.base.errors import UsageError
from xfbench.datasets.encoding import encode_jpeg, encode_png
from xfbench.datasets.manifest import Preprocessing
from xfbench.worker import pictures
from xfbench.worker.samples import Sample

_JPEG = b"\xff\xd8"
_ENCODINGS = "keep, pixels, png, jpeg or jpeg:QUALITY with a quality from 1 to 100"


def resize_and_encode_sample(sample: Sample, preprocessing: Preprocessing) -> Sample:
    """Return the preprocessed sample. Raises Damaged if its image cannot be decoded."""
    image = sample.image
    is_array = isinstance(image, np.ndarray)
    if (
        preprocessing.size
        or (preprocessing.encoding and not is_array)
        or (is_array and len(image) != preprocessing.channels)
    ):
        picture = pictures.open_image(sample).convert(pictures.MODES[preprocessing.channels])
        image = pictures.pixels_from_image(
            _resize(picture, preprocessing) if preprocessing.size else picture
        )
    if preprocessing.encoding and preprocessing.encoding != "pixels":
        assert isinstance(image, np.ndarray)
        kind, _, quality = preprocessing.encoding.partition(":")
        image = encode_png(image) if kind == "png" else encode_jpeg(image, int(quality))
    return Sample(sample.key, sample.label, image)


def read_orientation(sample: Sample) -> int:
    """Return the EXIF orientation of a sample: 1 if upright, 2 to 8 if mirrored or rotated.

    The result is 1 if the image is not a JPEG file, or if its orientation is missing or unreadable.
    xfbench does not apply the orientation, but other readers may.
    """
    if not isinstance(sample.image, bytes) or not sample.image.startswith(_JPEG):
        return 1
    try:
        with Image.open(io.BytesIO(sample.image), formats=("JPEG",)) as picture:
            orientation = picture.getexif().get(ExifTags.Base.Orientation)
    except (OSError, SyntaxError, ValueError, TypeError, KeyError, struct.error):
        return 1
    return orientation if isinstance(orientation, int) and 2 <= orientation <= 8 else 1


def _resize(picture: Image.Image, preprocessing: Preprocessing) -> Image.Image:
    assert preprocessing.size is not None
    height, width = preprocessing.size
    if preprocessing.fit == "squash":
        return picture.resize((width, height), Image.Resampling.BILINEAR)
    return ImageOps.fit(picture, (width, height), Image.Resampling.BILINEAR)


def parse_encoding(text: str | None) -> str | None:
    """Parse the text of `--encode` as `Preprocessing.encoding`.

    Return None if `text` is "keep" or None. "jpeg" means "jpeg:90". Raises UsageError if `text` is
    invalid.
    """
    if text in (None, "keep"):
        return None
    kind, _, quality = (text or "").partition(":")
    if text in ("pixels", "png"):
        return text
    quality = quality or "90"
    if kind != "jpeg" or not quality.isdecimal() or not 1 <= int(quality) <= 100:
        raise UsageError(f"--encode {text}: expected {_ENCODINGS}")
    return f"jpeg:{quality}"


def parse_height_and_width(text: str | None) -> tuple[int, int] | None:
    """Parse the text of `--size`, such as "256" or "240x320", as (height, width) in pixels.

    Return None if `text` is None. Raises UsageError if the text is invalid.
    """
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and 0 < int(part) <= 8192 for part in parts):
        raise UsageError(f"--size {text}: expected SIDE or HEIGHTxWIDTH, each 1 to 8192 pixels")
    return int(parts[0]), int(parts[-1])
