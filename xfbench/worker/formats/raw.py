"""Raw: the decoded pixels of all images one after another, `SPLIT.pixels`, all of one shape.

Nothing is decoded, so this is the fastest there is, and the largest.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Sequence, Tuple

import numpy as np

from xfbench.worker.formats import Damaged, SampleList, resolve_file
from xfbench.worker.samples import Sample
from xfbench.worker.stored import DataFile


def samples(folder: Path, split: str, listed: SampleList | None) -> Sequence[Sample]:
    """The samples of a split. Raises Damaged also where the file is not as long as it must be."""
    if listed is None or listed.shape is None:
        raise Damaged(f"{folder}: raw pixels without a manifest that says their shape are nothing")
    file = DataFile(resolve_file(folder, f"{split}.pixels"))
    shape = (len(listed.keys), *listed.shape)
    if file.size != prod(shape):
        shape_text = " × ".join(map(str, shape))
        raise Damaged(f"{file.path} has {file.size} bytes, not the {prod(shape)} of {shape_text}")
    return _Pixels(file, listed, listed.shape)


class _Pixels(Sequence[Sample]):
    # Read and not mapped: what is mapped cannot be taken out of memory, nor be cut off safely.
    def __init__(self, file: DataFile, listed: SampleList, shape: Tuple[int, int, int]) -> None:
        self.file, self.listed, self.shape = file, listed, shape

    def __len__(self) -> int:
        return len(self.listed.keys)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        index = range(len(self))[index]
        each = prod(self.shape)
        content = self.file.read(index * each, each, f"image {index}")
        pixels = np.frombuffer(content, np.uint8).reshape(self.shape)
        return Sample(self.listed.keys[index], self.listed.labels[index], pixels)
