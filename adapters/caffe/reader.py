"""The data loader of Caffe: a Data layer on LMDB, which prepares batches in its own thread.

It always reads images in the order of the database. Caffe draws the positions of crops and
the mirroring.
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
    """Return the reader for LMDB databases of Datums."""
    return CaffeReader(files)


class CaffeReader:
    """See `xfbench.worker.protocol.Reader`."""

    def __init__(self, files: TrainingFiles) -> None:
        self.files = files
        first = prepared.open_split(files.folder, files.format, "train", None)[0]
        self.encoded = isinstance(first.image, bytes)

    def epoch(self, seed: int) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        # A separate net, because a layer of the solver's net cannot be waited for separately.
        # Its thread reads past the end of the database, from the start, until the net is freed.
        net = self._build_data_net(self.files.batch_size, training=True)
        for _ in range(self.files.image_count // self.files.batch_size):
            net.forward()
            # Copies, because the net's memory is reused by the thread and later freed.
            yield np.array(net.blobs["data"].data), np.array(net.blobs["label"].data)

    def center_crops(self) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        net = self._build_data_net(1, training=False)  # images may have different sizes
        for _ in range(self.files.image_count):
            net.forward()
            images, labels = net.blobs["data"].data, net.blobs["label"].data
            # The channels of a Data layer are blue first.
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
