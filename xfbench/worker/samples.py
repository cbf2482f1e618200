"""A labelled image from any format, and the digest that identifies it.

The pixels of a sample are the same bytes in every format: uint8, (channels, height, width), with
red first. `input.py` converts the pixels to network input.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Iterable

import numpy as np


@dataclass(frozen=True)
class Sample:
    """One image of a data set.

    - `key`: the name within the split, without line ends or tabs.
    - `label`: the number of the class, from 0.
    - `image`: the content of a JPEG or PNG file, or pixels, uint8 (C, H, W). C is 1 (gray) or
      3 (RGB).
    """

    key: str
    label: int
    image: np.ndarray | bytes


def sample_digest(pixels: np.ndarray, label: int) -> str:
    """Return the SHA-256 (hexadecimal) of a sample: its label, shape and pixels (C, H, W)."""
    head = f"{label}:{'x'.join(map(str, pixels.shape))}:"
    return hashlib.sha256(head.encode() + np.ascontiguousarray(pixels).tobytes()).hexdigest()


def stream_digest(digests: Iterable[str]) -> str:
    """Return "sha256:" and the SHA-256 of a sequence of sample digests."""
    return (
        "sha256:"
        + hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()
    )
