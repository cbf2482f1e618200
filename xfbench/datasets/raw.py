"""Writer of the raw format, which `xfbench.worker.formats.raw` describes and reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from xfbench.base.shared_files import open_file
from xfbench.datasets.resumed import AppendedFile
from xfbench.worker import pictures
from xfbench.worker.samples import Sample


class Writer(AppendedFile):
    """A writer that appends to `SPLIT.pixels`, after the first `count` samples of the file."""

    def __init__(self, folder: Path, split: str, count: int, channels: int) -> None:
        self.channels, self.count = channels, count
        super().__init__(open_file(folder / f"{split}.pixels", "r+b" if count else "wb"))
        self.is_positioned = False

    def add(self, sample: Sample) -> None:
        """Append the pixels of a sample.

        If writing is resumed, the first call cuts the file after the `count` samples that were
        finished earlier. The first sample tells how many bytes a sample has.
        """
        image = pictures.decode_pixels(sample, self.channels)
        if not self.is_positioned:
            self.file.seek(self.count * image.size)
            self.file.truncate()
            self.is_positioned = True
        self.file.write(np.ascontiguousarray(image).data)
