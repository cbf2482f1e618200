"""A labelled image in any format, and the digest that identifies it.

The pixels of a sample are the same bytes in every format: uint8, (channels, height, width),
red before blue. `input.py` converts them to network input.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Iterable

import numpy as np


@dataclass(frozen=True)
class Sample:
    """One image of a data set.

    `key` is its name within the split, without line ends or tabs. `label` counts from 0. `image` is
    either pixels, uint8 (C, H, W) with C 1 (gray) or 3 (RGB), or a JPEG or PNG file as bytes.
    """

    key: str
    label: int
    image: np.ndarray | bytes


def sample_digest(pixels: np.ndarray, label: int) -> str:
    """Return the sha256 (hexadecimal) of an image's decoded pixels (C, H, W), shape and label."""
    head = f"{label}:{'x'.join(map(str, pixels.shape))}:"
    return hashlib.sha256(head.encode() + np.ascontiguousarray(pixels).tobytes()).hexdigest()


def stream_digest(digests: Iterable[str]) -> str:
    """Return "sha256:" and the digest of samples in sequence; equal streams have equal digests."""
    return (
        "sha256:"
        + hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()
    )
