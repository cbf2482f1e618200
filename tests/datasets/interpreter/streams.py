"""What the tasks of all frameworks share: our readers, and streams to compare with them.

A stream is a pair of pixels, uint8 (C, H, W), and a label for each sample of a split.
"""

from pathlib import Path

import numpy as np

from xfbench.worker import pictures, prepared
from xfbench.worker.formats import lmdb, recordio, tfrecord
from xfbench.worker.samples import sample_digest


def read_with_our_readers(scratch, tfrecords, records, database):
    """Return each sample's pixels as our readers give them, by format, key and label."""
    folders = {tfrecord: tfrecords, recordio: records, lmdb: database}
    arrays = {}
    for module, folder in folders.items():
        form = module.__name__.rpartition(".")[2]
        for sample in module.samples(Path(folder), "train"):
            name = f"{form} {sample.key} {sample.label}"
            arrays[name] = pictures.decode_pixels(sample, 3)
    return arrays


def compare_sets(read, folders):
    """Compare with our reader what `read(folder, split, opened)` gives: (reader, stream) pairs."""
    arrays = {}
    for folder in map(Path, folders):
        opened = prepared.open_prepared(folder)
        for split in opened.splits:
            for reader, stream in read(folder, split, opened):
                for name, values in compare_stream(stream, split, opened).items():
                    arrays[f"{folder.name} {reader} {split} {name}"] = values
    return arrays


def compare_stream(stream, split, opened):
    samples, listed = opened.splits[split], opened.listed[split]
    digests, labels, largest = [], [], []
    for index, (tool_image, label) in enumerate(stream):
        image = np.ascontiguousarray(tool_image)
        assert image.dtype == np.uint8 and len(image) == 3
        digests.append(sample_digest(image, int(label)))
        labels.append(int(label))
        if digests[-1] == listed.digests[index]:
            largest.append(0)
            continue
        expected_pixels = pictures.decode_pixels(samples[index], 3)
        assert expected_pixels.shape == image.shape, (expected_pixels.shape, image.shape)
        largest.append(np.abs(expected_pixels.astype(int) - image.astype(int)).max())
    return {"digests": digests, "labels": labels, "largest": largest}


def to_bytes(values):
    """Pixels that a framework gives as float32, as uint8."""
    pixels = values.astype(np.uint8)
    assert (pixels == values).all()
    return pixels


def batch_size(split, opened):
    """The largest one up to 80 that divides the split; 1 for images of several sizes."""
    count = len(opened.splits[split])
    if not opened.manifest["shape"]:
        return 1
    return max(size for size in range(1, 81) if count % size == 0)
