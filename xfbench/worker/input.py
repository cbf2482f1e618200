"""Input of a network: the same batches, in the same order, for every framework.

This module converts pixels to network input, so that no framework's reader or resizer changes them.
Synthetic input is seeded noise, one batch for all steps. A prepared data set (`xfbench data`) is
read on demand, and the seed defines how images are cropped and mirrored.
"""

from __future__ import annotations

import io
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, Protocol, Sequence, Tuple

import numpy as np

from xfbench.worker import pictures, prepared
from xfbench.worker.protocol import Unsupported
from xfbench.worker.samples import Sample
from xfbench.workloads import Workload

ImagesAndLabels = Tuple[np.ndarray, np.ndarray]

# Number of images in each split. No published split mixes the writers of the digits, so xfbench
# has its own split, which never changes.
DIGITS = {"train": 1437, "test": 360}


class Split(Protocol):
    """A split of a data set (its training or test images), as network input."""

    def __len__(self) -> int: ...

    def batch(
        self, chosen: np.ndarray, draws: np.ndarray | None = None, *, channels_last: bool = False
    ) -> ImagesAndLabels:
        """Return the images with indices `chosen`, and their labels.

        The images are float32 (N, C, H, W), and the labels are int64 (N,).

        - `draws`: random numbers in [0, 1), (N, 3). They define the crop position and the mirroring
          of each image, if the workload crops or mirrors. None: images are cropped at the center
          and not mirrored.
        - `channels_last`: if true, the images may lie in memory as (N, H, W, C). The result is then
          a transposed view of this memory.
        """


@dataclass(frozen=True)
class InMemory:
    """A split whose network input is in memory. `batch` ignores `draws` and `channels_last`."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def batch(
        self, chosen: np.ndarray, draws: np.ndarray | None = None, *, channels_last: bool = False
    ) -> ImagesAndLabels:
        return self.images[chosen], self.labels[chosen]


@dataclass(frozen=True)
class OnDisk:
    """A split of a prepared data set. Each batch is read and decoded when it is requested."""

    samples: Sequence[Sample]
    workload: Workload

    def __len__(self) -> int:
        return len(self.samples)

    def batch(
        self, chosen: np.ndarray, draws: np.ndarray | None = None, *, channels_last: bool = False
    ) -> ImagesAndLabels:
        channels, height, width = self.workload.network.input_shape
        if channels_last:
            stored = np.empty((len(chosen), height, width, channels), np.float32)
            images = stored.transpose(0, 3, 1, 2)
        else:
            images = np.empty((len(chosen), channels, height, width), np.float32)
        labels = np.empty(len(chosen), np.int64)
        for number, index in enumerate(chosen):
            draw = None if draws is None else draws[number]
            image, labels[number] = self.crop(int(index), draw)
            if self.workload.pixels.order == "BGR":
                image = image[::-1]
            _to_network_input(image, self.workload, images[number])
        return images, labels

    def crop(self, index: int, draw: np.ndarray | None = None) -> Tuple[np.ndarray, int]:
        """Return (image, label). The image is cropped to the network's size and may be mirrored.

        The image is uint8 (C, H, W) in RGB order. `draw` is a row of `draws` in `Split.batch`.
        Raises Unsupported if the image is too small.
        """
        channels, height, width = self.workload.network.input_shape
        sample = self.samples[index]
        image = pictures.decode_pixels(sample, channels)
        if image.shape[1] < height or image.shape[2] < width:
            raise Unsupported(
                f"{sample.key} has {image.shape[1]}×{image.shape[2]} pixels, but "
                f"{self.workload.name} reads {height}×{width}: prepare the set with --size"
            )
        spare_rows, spare_columns = image.shape[1] - height, image.shape[2] - width
        top, left_column, turn = spare_rows // 2, spare_columns // 2, 0.0
        if draw is not None:
            down, right, turn = draw
            top, left_column = int(down * (spare_rows + 1)), int(right * (spare_columns + 1))
        image = image[:, top : top + height, left_column : left_column + width]
        mirrored = turn >= 0.5 and self.workload.pixels.mirror
        return image[..., ::-1] if mirrored else image, sample.label


@dataclass(frozen=True)
class DataSet:
    """The training split and the test split of a data set.

    - `test`: the test split; None if there is none
    - `is_single_batch`: whether all steps use the same batch
    - `files`: the files that an epoch reads from disk
    """

    train: Split
    test: Split | None
    is_single_batch: bool = False
    files: Sequence[Path] = ()

    def first_batch(self, batch_size: int, seed: int) -> ImagesAndLabels:
        """Return the first training batch."""
        return next(self.epoch(batch_size, seed))

    def epoch(
        self, batch_size: int, seed: int, part: slice = slice(None)
    ) -> Iterator[ImagesAndLabels]:
        """Yield the training batches of one epoch, in the order that `seed` defines.

        - `batch_size`: the number of images in a whole batch. Images that do not fill a last batch
          are left out.
        - `part`: which images of each batch to yield, such as one rank's shard. Default: all.
        """
        for chosen, draws in self.order(batch_size, seed, part):
            yield self.train.batch(chosen, draws)

    def order(
        self, batch_size: int, seed: int, part: slice
    ) -> Iterator[Tuple[np.ndarray, np.ndarray | None]]:
        """Yield (image indices, draws) for each batch of `epoch`. `Split.batch` explains the draws.

        If all steps use the same batch, the draws are None.
        """
        count = len(self.train)
        if self.is_single_batch:
            order, draws = np.arange(count), None
        else:
            random = np.random.RandomState(seed)
            order, draws = random.permutation(count), random.random_sample((count, 3))
        for start in range(0, count - batch_size + 1, batch_size):
            chosen = slice(start, start + batch_size)
            yield order[chosen][part], None if draws is None else draws[chosen][part]


def mismatch_reason(
    data_set_name: str, workload: Workload, manifest: Dict[str, Any] | None = None
) -> str | None:
    """Return why the workload's network cannot read the named data set. None if it can.

    `manifest` describes a prepared data set (None: not prepared) with these fields:

    - `channels`: number of channels
    - `classes`: number of classes
    - `shape`: (channels, height, width) if all images have the same shape, else None
    """
    network = workload.network
    channels, height, width = network.input_shape
    if data_set_name == "digits" and not manifest and (channels != 1 or network.classes < 10):
        return (
            f"the digits are one-channel images of 10 classes, but {workload.name} reads "
            f"{channels} channels and has {network.classes} classes"
        )
    if not manifest:
        return None
    if manifest["classes"] > network.classes:
        return (
            f"{data_set_name} has {manifest['classes']} classes, "
            f"but {workload.name} has {network.classes}"
        )
    if manifest["channels"] != channels:
        return (
            f"{data_set_name} has {manifest['channels']} channels, "
            f"but {workload.name} reads {channels}"
        )
    if manifest["shape"] and (manifest["shape"][1] < height or manifest["shape"][2] < width):
        here = f"{manifest['shape'][1]}×{manifest['shape'][2]}"
        return (
            f"images of {here} are smaller than the {height}×{width} that {workload.name} reads: "
            f"prepare {data_set_name} with --size"
        )
    return None


def known_images_per_epoch(data_set_name: str, workload: Workload) -> int | None:
    """Return the number of images in an epoch of the named data set. None if unknown.

    An epoch of synthetic input has as many images as the data set that the network was published
    with.
    """
    return {"synthetic": workload.epoch_images, "digits": DIGITS["train"]}.get(data_set_name)


def open_data_set(
    name: str, workload: Workload, batch_size: int, seed: int, folder: str | None = None
) -> DataSet:
    """Open the named data set in the workload's input shape.

    `folder` is the folder of a prepared data set. If `folder` is None, `name` must be "synthetic"
    or "digits". Raises Unsupported if the name is unknown, the data do not fit the network, or a
    batch is larger than the data set. Raises Damaged if a file is damaged.
    """
    if folder:
        data = _open_prepared(Path(folder), workload)
    else:
        reason = mismatch_reason(name, workload)
        if reason:
            raise Unsupported(reason)
        if name == "synthetic":
            images, labels = synthetic_batch(workload, batch_size, seed)
            return DataSet(InMemory(images, labels), None, is_single_batch=True)
        if name != "digits":
            raise Unsupported(f"unknown data set {name!r}")
        data = _digits_data_set(workload)
    if len(data.train) < batch_size:
        raise Unsupported(
            f"a batch of {batch_size} is larger than the {len(data.train)} images of {name}"
        )
    return data


def _open_prepared(folder: Path, workload: Workload) -> DataSet:
    there = prepared.open_prepared(folder)
    test = there.splits.get("test")
    train = OnDisk(there.splits["train"], workload)
    files = prepared.split_files(folder, there.manifest, "train")
    return DataSet(train, OnDisk(test, workload) if test else None, files=files)


def synthetic_batch(workload: Workload, batch_size: int, seed: int) -> ImagesAndLabels:
    """Return a batch of noise: network input from uniformly random pixels, and random labels.

    The numbers come from NumPy's `RandomState`, whose stream never changes.
    """
    network = workload.network
    random = np.random.RandomState(seed)
    pixels = random.randint(0, 256, (batch_size, *network.input_shape))
    labels = random.randint(0, network.classes, batch_size)
    return _to_network_input(pixels.astype(np.float32), workload), labels.astype(np.int64)


def _digits_data_set(workload: Workload) -> DataSet:
    network = workload.network
    train, test = (
        InMemory(_to_network_input(images.astype(np.float32), workload), labels)
        for images, labels in load_digits(network.input_shape[1:]).values()
    )
    return DataSet(train, test)


def load_digits(size: Tuple[int, ...]) -> Dict[str, ImagesAndLabels]:
    """Return (images, labels) of the digits for each split, "train" and "test".

    The images are scaled to `size` (height, width). They are float64 (N, 1, H, W), with values from
    0 to 255.
    """
    stored = pkgutil.get_data("xfbench.workloads", "digits.npz")
    if stored is None:
        raise FileNotFoundError("digits.npz is not part of this worker")
    with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
        small = arrays["images"].astype(np.float32) * (255.0 / 16.0)
        labels = arrays["labels"].astype(np.int64)
    rows = _interpolation_matrix(small.shape[1], size[0])
    columns = _interpolation_matrix(small.shape[2], size[1])
    # einsum without BLAS gives the same bytes in every interpreter, with any build of NumPy.
    enlarged = np.einsum("ij,njk,lk->nil", rows, small, columns, optimize=False)[:, np.newaxis]
    order = np.random.RandomState(0).permutation(len(labels))
    train, test = order[: DIGITS["train"]], order[DIGITS["train"] :]
    return {
        name: (enlarged[part], labels[part]) for name, part in (("train", train), ("test", test))
    }


def _interpolation_matrix(source: int, target: int) -> np.ndarray:
    """Return the (target, source) matrix of linear interpolation between pixel centres.

    `source` and `target` are numbers of pixels. Edge pixels are repeated.
    """
    centre = np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)
    low = np.minimum(centre.astype(int), source - 2)
    weights = np.zeros((target, source), np.float64)
    weights[np.arange(target), low] = 1 - (centre - low)
    weights[np.arange(target), low + 1] = centre - low
    return weights


def _to_network_input(
    pixels: np.ndarray, workload: Workload, out: np.ndarray | None = None
) -> np.ndarray:
    """Return pixels (…, C, H, W) as float32 network input. If `out` is given, write it to `out`."""
    mean = np.asarray(workload.pixels.mean, np.float32).reshape(-1, 1, 1)
    centred: np.ndarray = np.subtract(pixels, mean, out=out, dtype=np.float32)
    centred *= np.float32(workload.pixels.scale)
    return centred
