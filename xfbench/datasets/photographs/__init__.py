"""A small data set of photographs: JPEG files that are different crops of five images.

The five images come with scikit-image 0.26, whose documentation names their licences. Astronaut and
rocket are in the public domain. Chelsea (a cat), coffee and retina are CC0. xfbench's copies are
400 or 450 pixels wide and were compressed again.

Each image gives two classes: crops around points in its left half, and in its right half. The
number of a crop determines its position, scale, mirroring and quality. So the same Pillow version
always writes the same bytes.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageOps

from xfbench.base import paths
from xfbench.datasets.sources import Source, Split
from xfbench.worker.samples import Sample

NAMES = ("astronaut", "chelsea", "coffee", "retina", "rocket")
CLASSES = tuple(f"{name}-{half}" for name in NAMES for half in ("left", "right"))
TRAIN, TEST, SIDE = 400, 100, 256


def open_photographs() -> Source:
    """Return the source of 400 training and 100 test photographs of 256×256 pixels."""
    note = "cut out of photographs that come with scikit-image (public domain, CC0)"
    splits: dict[Split, Sequence[Sample]]
    splits = {"train": _Cuts(0, TRAIN), "test": _Cuts(TRAIN, TEST)}
    return Source("photographs", CLASSES, splits, 3, note)


class _Cuts(Sequence[Sample]):
    def __init__(self, first: int, size: int) -> None:
        self.first, self.size = first, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        number = self.first + index
        return Sample(f"{number:04d}.jpg", number % len(CLASSES), _encode_crop(number))


@functools.cache
def _open_photograph(name: str) -> Image.Image:
    with Image.open(
        paths.package_folder("xfbench.datasets.photographs") / f"{name}.jpg"
    ) as picture:
        return picture.convert("RGB")


def _encode_crop(number: int) -> bytes:
    """Return the JPEG file of the square crop with this number.

    The number also selects the class, which names an image and one half of it. The center of the
    crop is a random point in that half. The crop is moved if it would extend beyond the image.
    """
    random, label = np.random.RandomState(number), number % len(CLASSES)
    photograph, half = _open_photograph(NAMES[label // 2]), label % 2
    side = min(photograph.size) * random.uniform(0.4, 1)
    middle = (half + random.uniform(0, 1)) / 2 * photograph.width
    left = min(max(middle - side / 2, 0), photograph.width - side)
    top = random.uniform(0, photograph.height - side)
    box = (left, top, left + side, top + side)
    cut = photograph.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box)
    if random.randint(2):
        cut = ImageOps.mirror(cut)
    jpeg_file = io.BytesIO()
    cut.save(jpeg_file, "jpeg", quality=int(random.randint(75, 96)))
    return jpeg_file.getvalue()
