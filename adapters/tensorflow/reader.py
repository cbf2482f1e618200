"""The data loader of TensorFlow: tf.data, which reads TFRecord files of `tf.train.Example`s.

JPEG is decoded with the accurate method, because the pixels of TensorFlow's default method differ
from those of all other decoders (docs/data.md). TensorFlow's random numbers define the order, the
crops and the mirroring of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from xfbench.worker.protocol import Options, TrainingFiles

_SHUFFLED_TOGETHER = 10_000  # size of the shuffle buffer in records
_AHEAD = 2
_CHECKED_TOGETHER = 16
_FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


def open_reader(files: TrainingFiles, options: Options) -> TensorFlowReader:
    """Return a reader of TFRecord files."""
    return TensorFlowReader(files, options)


class TensorFlowReader:
    """See `xfbench.worker.protocol.Reader`."""

    def __init__(self, files: TrainingFiles, options: Options) -> None:
        self.files = files
        self.dtype = tf.float64 if options.precision == "float64" else tf.float32

    def epoch(self, seed: int) -> Iterator[tuple[Any, Any]]:
        tf.random.set_seed(seed)
        count, threads = self.files.image_count, self.files.threads
        records = self._records().shuffle(min(count, _SHUFFLED_TOGETHER), seed=seed)
        images = records.map(self._decode_for_training, num_parallel_calls=threads)
        yield from images.batch(self.files.batch_size, drop_remainder=True).prefetch(_AHEAD)

    def center_crops(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for images, labels in (
            self._records().map(self._decode_uint8_center_crop).batch(_CHECKED_TOGETHER)
        ):
            yield images.numpy().transpose(0, 3, 1, 2), labels.numpy()

    def _records(self) -> Any:
        options = tf.data.Options()
        options.threading.private_threadpool_size = self.files.threads
        file = str(self.files.folder / "train.tfrecord")
        return tf.data.TFRecordDataset(file).with_options(options)

    def _decode_image(self, record: Any) -> tuple[Any, Any]:
        example = tf.io.parse_single_example(record, _FEATURES)
        channels = self.files.workload.network.input_shape[0]
        image = tf.io.decode_jpeg(  # also decodes PNG
            example["image/encoded"], channels, dct_method="INTEGER_ACCURATE"
        )
        return image, example["image/class/label"]

    def _decode_for_training(self, record: Any) -> tuple[Any, Any]:
        image, label = self._decode_image(record)
        channels, height, width = self.files.workload.network.input_shape
        pixels = self.files.workload.pixels
        image = tf.image.random_crop(image, (height, width, channels))
        if pixels.mirror:
            image = tf.image.random_flip_left_right(image)
        if pixels.order == "BGR":
            image = image[..., ::-1]
        mean = tf.constant(pixels.mean, self.dtype)
        return (tf.cast(image, self.dtype) - mean) * tf.constant(pixels.scale, self.dtype), label

    def _decode_uint8_center_crop(self, record: Any) -> tuple[Any, Any]:
        image, label = self._decode_image(record)
        _, height, width = self.files.workload.network.input_shape
        spare = tf.shape(image)[:2] - (height, width)
        return tf.image.crop_to_bounding_box(image, *tf.unstack(spare // 2), height, width), label
