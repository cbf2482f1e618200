"""Raw: the decoded pixels of all images one after another, `SPLIT.pixels`, all of one shape.

Nothing is decoded, so this is the fastest there is, and the largest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

import numpy as np

from xfbench.worker.formats import Damaged, Listed, file_of
from xfbench.worker.samples import Sample


def samples(folder: Path, split: str, listed: Listed | None) -> Sequence[Sample]:
    """The samples of a split; their pixels are views of a file that is mapped into memory."""
    if listed is None or listed.shape is None:
        raise Damaged(f"{folder}: raw pixels without a manifest that says their shape are nothing")
    path = file_of(folder, f"{split}.pixels")
    size, shape = path.stat().st_size, (len(listed.keys), *listed.shape)
    if size != np.prod(shape, dtype=np.int64):
        wanted = " × ".join(map(str, shape))
        raise Damaged(f"{path} has {size} bytes, not the {np.prod(shape)} of {wanted}")
    return _Mapped(np.memmap(path, np.uint8, "r", shape=shape), listed)


class _Mapped(Sequence[Sample]):
    def __init__(self, pixels: np.ndarray, listed: Listed) -> None:
        self.pixels, self.listed = pixels, listed

    def __len__(self) -> int:
        return len(self.listed.keys)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        return Sample(self.listed.keys[index], self.listed.labels[index], self.pixels[index])
