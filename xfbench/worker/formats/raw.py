"""Raw: the pixels of all images in sequence, `SPLIT.pixels`. All images have the same shape.

Nothing needs to be decoded, so this is the fastest format to read. It is also the largest.
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
    """Return the samples of a split. `listed` gives their number, shape, keys and labels.

    Raises Damaged if `listed` has no shape, or if the file's size does not match the images.
    """
    if listed is None or listed.shape is None:
        raise Damaged(f"{folder}: raw pixels need a manifest that gives their shape")
    file = DataFile(resolve_file(folder, f"{split}.pixels"))
    shape = (len(listed.keys), *listed.shape)
    if file.size != prod(shape):
        shape_text = " × ".join(map(str, shape))
        raise Damaged(f"{file.path} has {file.size} bytes, not {prod(shape)} for {shape_text}")
    return _Pixels(file, listed, listed.shape)


class _Pixels(Sequence[Sample]):
    # The file is not mapped: mapped pages cannot be evicted, and a truncated mapping is unsafe.
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
