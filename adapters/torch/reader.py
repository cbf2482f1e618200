"""The data loader of PyTorch: a `Dataset`, read by the processes of `DataLoader`.

Like torchvision's ImageFolder, it decodes images with Pillow. PyTorch's random numbers define the
order, the crops and the mirroring of images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import torch
from torch.utils import data

from xfbench.adapters.torch.device import BatchCopier
from xfbench.worker import pictures, prepared
from xfbench.worker.formats.lmdb import parse_datum
from xfbench.worker.protocol import Options, TrainingFiles
from xfbench.worker.samples import Sample

_CHECKED_TOGETHER = 16


def open_reader(files: TrainingFiles, options: Options) -> TorchReader:
    """Return a reader of class folders or of Caffe's LMDB databases."""
    return TorchReader(files, options)


class TorchReader:
    """See `xfbench.worker.protocol.Reader`."""

    def __init__(self, files: TrainingFiles, options: Options) -> None:
        self.files, self.on_gpu = files, options.device == "cuda"
        dtype = torch.float64 if options.precision == "float64" else torch.float32
        self.copier = BatchCopier(torch.device(options.device), dtype, torch.preserve_format)

    def epoch(self, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        loader = data.DataLoader(
            _Images(self.files, training=True),
            self.files.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=self.files.threads,
            generator=torch.Generator().manual_seed(seed),
            pin_memory=self.on_gpu,
        )
        for images, labels in loader:
            yield self.copier.copy(images, labels)

    def center_crops(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield from self.center_crops_at(range(self.files.image_count))

    def center_crops_at(self, indices: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the center crops of the images with these positions."""
        images_of_set = data.Subset(_Images(self.files, training=False), indices)
        for images, labels in data.DataLoader(images_of_set, _CHECKED_TOGETHER):
            yield images.numpy(), labels.numpy()


class _Images(data.Dataset):  # type: ignore[misc]
    """A PyTorch data set of (image, label).

    If `training` is true, an image is network input, cropped at a random position. If false, an
    image is a center crop of the stored pixels: uint8, gray or RGB.
    """

    def __init__(self, files: TrainingFiles, training: bool) -> None:
        self.files, self.training = files, training
        self.shape = files.workload.network.input_shape

    def __len__(self) -> int:
        return self.files.image_count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        sample = self.samples[index]
        image = torch.from_numpy(np.array(pictures.decode_pixels(sample, self.shape[0])))
        spare = [there - read for there, read in zip(image.shape[1:], self.shape[1:])]
        places = [self._choose_crop_offset(most) for most in spare]
        for axis, (place, length) in enumerate(zip(places, self.shape[1:]), 1):
            image = image.narrow(axis, place, length)
        if not self.training:
            return image.contiguous(), sample.label
        pixels = self.files.workload.pixels
        if pixels.mirror and torch.rand(()) < 0.5:
            image = image.flip(2)
        if pixels.order == "BGR":
            image = image.flip(0)
        mean = torch.tensor(pixels.mean).reshape(-1, 1, 1)
        return (image - mean) * pixels.scale, sample.label

    @cached_property
    def samples(self) -> Any:
        """The training images and labels as stored.

        Each process opens the samples itself, because a forked process must not use its parent's
        LMDB.
        """
        if self.files.format == "lmdb":
            return _Datums(self.files.folder / "train.lmdb")
        return prepared.open_prepared(self.files.folder).splits["train"]

    def _choose_crop_offset(self, max_offset: int) -> int:
        return int(torch.randint(max_offset + 1, ())) if self.training else max_offset // 2


class _Datums:
    """Caffe's Datums in the order of their keys, read with the `lmdb` package."""

    def __init__(self, folder: Path) -> None:
        self.environment = lmdb.open(str(folder), readonly=True, lock=False, readahead=False)
        with self.environment.begin() as transaction:
            self.keys = list(transaction.cursor().iternext(values=False))

    def __getitem__(self, index: int) -> Sample:
        key = self.keys[index]
        with self.environment.begin() as transaction:
            return parse_datum(transaction.get(key, b""), key.decode())
