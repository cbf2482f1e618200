"""What the tests ask of MXNet's own readers and of im2rec."""

import runpy
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import mxnet as mx
import numpy as np
from streams import batch_size, compare_sets, read_with_our_readers, to_bytes

__all__ = [
    "compare_photographs",
    "copy_recordio",
    "read_recordio",
    "read_with_our_readers",
    "run_im2rec",
]


def open_records(folder, mode, split="train"):
    return mx.recordio.MXIndexedRecordIO(f"{folder}/{split}.idx", f"{folder}/{split}.rec", mode)


def image_iterator(folder, split="train", **settings):
    return mx.io.ImageRecordIter(
        path_imgrec=f"{folder}/{split}.rec",
        path_imgidx=f"{folder}/{split}.idx",
        round_batch=False,
        **settings,
    )


def read_recordio(scratch, folder, height, width):
    records = open_records(folder, "r")
    images, labels, numbers = [], [], []
    for key in records.keys:
        header, content = mx.recordio.unpack(records.read_idx(key))
        images.append(mx.image.imdecode(content).asnumpy().transpose(2, 0, 1))
        labels.append(header.label)
        numbers.append(header.id)
    batches = image_iterator(
        folder, data_shape=(3, height, width), batch_size=1, preprocess_threads=1
    )
    pairs = [(record.data[0].asnumpy()[0], record.label[0].asscalar()) for record in batches]
    return {
        "images": images,
        "labels": labels,
        "numbers": numbers,
        "iterator_images": np.stack([image for image, _ in pairs]),
        "iterator_labels": [label for _, label in pairs],
    }


def copy_recordio(scratch, folder):
    source, target = open_records(folder, "r"), open_records(scratch, "w")
    for key in source.keys:
        header, content = mx.recordio.unpack(source.read_idx(key))
        target.write_idx(key, mx.recordio.pack(header, content))
    target.close()


def run_im2rec(scratch, pictures, names, labels):
    lines = [
        f"{10 + n}\t{label}\t{name}\n"
        for n, (name, label) in enumerate(zip(names, labels, strict=True))
    ]
    Path(scratch, "train.lst").write_text("".join(lines))
    # im2rec imports OpenCV, which is not installed, and does not use it with --pass-through.
    sys.modules["cv2"] = types.ModuleType("cv2")
    arguments = sys.argv
    sys.argv = ["im2rec.py", "--pass-through", f"{scratch}/train.lst", pictures]
    try:
        tools = find_spec("mxnet").submodule_search_locations[0] + "/tools"
        runpy.run_path(f"{tools}/im2rec.py", run_name="__main__")
    finally:
        sys.argv = arguments
        del sys.modules["cv2"]


def compare_photographs(scratch, *folders):
    return compare_sets(read_photographs, folders)


def read_photographs(folder, split, opened):
    def decode():
        records = open_records(folder, "r", split)
        for key in records.keys:
            header, content = mx.recordio.unpack(records.read_idx(key))
            yield mx.image.imdecode(content).asnumpy().transpose(2, 0, 1), header.label

    yield "imdecode", decode()
    if not opened.manifest["shape"]:
        return
    batches = image_iterator(
        folder,
        split,
        data_shape=opened.manifest["shape"],
        batch_size=batch_size(split, opened),
        preprocess_threads=2,
    )
    yield (
        "ImageRecordIter",
        (
            pair
            for batch in batches
            for pair in zip(
                to_bytes(batch.data[0].asnumpy()), batch.label[0].asnumpy(), strict=True
            )
        ),
    )
