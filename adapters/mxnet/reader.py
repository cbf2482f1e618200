"""The data loader of MXNet: ImageRecordIter, whose threads read and decode RecordIO files.

MXNet's random numbers define the order, the crops and the mirroring of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mxnet as mx
import numpy as np

from xfbench.adapters.mxnet import device
from xfbench.worker import distributed
from xfbench.worker.protocol import Options, TrainingFiles

_CHECKED_TOGETHER = 16


def open_reader(files: TrainingFiles, options: Options) -> MXNetReader:
    """Return a reader of RecordIO files that have an index file."""
    return MXNetReader(files, options)


class MXNetReader:
    """See `xfbench.worker.protocol.Reader`."""

    def __init__(self, files: TrainingFiles, options: Options) -> None:
        self.files, self.precision = files, options.precision
        rank, _ = distributed.rank_and_size()
        self.place = device.context(options.device, rank)

    def epoch(self, seed: int) -> Iterator[tuple[Any, Any]]:
        pixels = self.files.workload.pixels
        # ImageRecordIter returns channels in RGB order. A gray image is in the red channel.
        mean = reversed(pixels.mean) if pixels.order == "BGR" else pixels.mean
        batches = self._open_record_iterator(
            self.files.batch_size,
            shuffle=True,
            seed=seed,
            seed_aug=seed,
            rand_crop=True,
            rand_mirror=pixels.mirror,
            scale=pixels.scale,
            **dict(zip(("mean_r", "mean_g", "mean_b"), mean)),
        )
        for _, batch in zip(range(self.files.image_count // self.files.batch_size), batches):
            # The arrays are in pinned memory, which MXNet treats as another device than the CPU.
            images, labels = (array.as_in_context(self.place) for array in batch.data + batch.label)
            if pixels.order == "BGR":
                images = mx.nd.reverse(images, axis=1)
            yield images.astype(self.precision, copy=False), labels.astype("int32")

    def center_crops(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        remaining = self.files.image_count
        for batch in self._open_record_iterator(_CHECKED_TOGETHER):
            images, labels = (
                batch.data[0].asnumpy()[:remaining],
                batch.label[0].asnumpy()[:remaining],
            )
            yield images.astype(np.uint8), labels.astype(np.int64)
            remaining -= len(labels)

    def _open_record_iterator(self, batch_size: int, **iterator_options: Any) -> Any:
        return mx.io.ImageRecordIter(
            path_imgrec=str(self.files.folder / "train.rec"),
            path_imgidx=str(self.files.folder / "train.idx"),
            data_shape=self.files.workload.network.input_shape,
            batch_size=batch_size,
            preprocess_threads=self.files.threads,
            round_batch=False,  # the last batch does not show how many images it lacks
            verbose=False,
            **iterator_options,
        )
