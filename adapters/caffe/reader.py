"""The data loader of Caffe: a Data layer, which reads LMDB databases in its own thread.

Caffe always reads images in the order of the database. Caffe's random numbers define the crops and
the mirroring of images.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Iterator, Tuple

import caffe
import numpy as np

from xfbench.adapters.caffe import prototxt
from xfbench.worker import prepared
from xfbench.worker.protocol import Options, TrainingFiles


def open_reader(files: TrainingFiles, _: Options) -> CaffeReader:
    """Return a reader of LMDB databases with Caffe's Datums."""
    return CaffeReader(files)


class CaffeReader:
    """See `xfbench.worker.protocol.Reader`."""

    def __init__(self, files: TrainingFiles) -> None:
        self.files = files
        first = prepared.open_split(files.folder, files.format, "train", None)[0]
        self.encoded = isinstance(first.image, bytes)

    def epoch(self, seed: int) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        # A separate net, because one cannot wait for a single layer of the solver's net. Until this
        # net is freed, its thread reads the database again and again.
        net = self._build_data_net(self.files.batch_size, training=True)
        for _ in range(self.files.image_count // self.files.batch_size):
            net.forward()
            # Copies, because the thread reuses the net's memory, which is later freed.
            yield np.array(net.blobs["data"].data), np.array(net.blobs["label"].data)

    def center_crops(self) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        net = self._build_data_net(1, training=False)  # images may have different sizes
        for _ in range(self.files.image_count):
            net.forward()
            images, labels = net.blobs["data"].data, net.blobs["label"].data
            # A Data layer returns channels in BGR order.
            yield images[:, ::-1].astype(np.uint8), labels.astype(np.int64)

    def _build_data_net(self, batch_size: int, *, training: bool) -> Any:
        text = prototxt.data_layer(
            self.files.workload,
            str(self.files.folder / "train.lmdb"),
            batch_size,
            training=training,
            encoded=self.encoded,
        )
        with TemporaryDirectory(prefix="xfbench-caffe-") as folder:
            path = Path(folder, "data.prototxt")
            path.write_text(text)
            return caffe.Net(str(path), caffe.TRAIN if training else caffe.TEST)
