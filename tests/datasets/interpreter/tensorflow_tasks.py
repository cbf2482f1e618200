"""What the tests ask of TensorFlow's own readers and writer."""

from pathlib import Path

import numpy as np
import tensorflow as tf
from streams import compare_sets, read_with_our_readers

__all__ = ["compare_photographs", "read_tfrecord", "read_with_our_readers", "write_tfrecord"]

FEATURES = {
    "image/encoded": tf.string,
    "image/key": tf.string,
    "image/filename": tf.string,
    "image/class/label": tf.int64,
    "image/height": tf.int64,
    "image/width": tf.int64,
}
METHODS = {"accurate": "INTEGER_ACCURATE", "default": ""}


def parse(record, *names):
    kinds = {name: tf.io.FixedLenFeature([], FEATURES[name]) for name in names}
    return tf.io.parse_single_example(record, kinds)


def read_tfrecord(scratch, folder, method):
    examples = [
        parse(record, *FEATURES) for record in tf.data.TFRecordDataset(f"{folder}/train.tfrecord")
    ]

    def decode(content):
        if content[:2] == b"\xff\xd8":
            return tf.io.decode_jpeg(content, dct_method=method)
        return tf.io.decode_image(content)

    images = [decode(example["image/encoded"].numpy()).numpy() for example in examples]
    return {
        "images": np.stack(images).transpose(0, 3, 1, 2),
        "keys": [example["image/key"].numpy().decode() for example in examples],
        "labels": [example["image/class/label"].numpy() for example in examples],
        "heights": [example["image/height"].numpy() for example in examples],
        "widths": [example["image/width"].numpy() for example in examples],
    }


def write_tfrecord(scratch, pictures, names, labels):
    def strings(*values):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    def integers(*values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    with tf.io.TFRecordWriter(f"{scratch}/train.tfrecord") as writer:
        for name, label in zip(names, labels, strict=True):
            features = {
                "image/encoded": strings((Path(pictures) / name).read_bytes()),
                "image/class/label": integers(label),
                "image/filename": strings(name.encode()),
                "image/object/bbox/xmin": tf.train.Feature(
                    float_list=tf.train.FloatList(value=[0.5])
                ),
                "image/class/text": strings(b"a", b"b"),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def compare_photographs(scratch, *folders):
    return compare_sets(read_photographs, folders)


def read_photographs(folder, split, opened):
    for reader in ["png"] if "scaled" in folder.name else METHODS:

        def decode(record, reader=reader):
            example = parse(record, "image/encoded", "image/class/label")
            content = example["image/encoded"]
            if reader == "png":
                image = tf.io.decode_png(content, channels=3)
            else:
                image = tf.io.decode_jpeg(content, channels=3, dct_method=METHODS[reader])
            return image, example["image/class/label"]

        records = tf.data.TFRecordDataset(str(folder / f"{split}.tfrecord"))
        samples = records.map(decode, num_parallel_calls=2).as_numpy_iterator()
        yield reader, ((image.transpose(2, 0, 1), label) for image, label in samples)
