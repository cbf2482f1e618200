"""Data sets of photographs in every format, each written once per session, when it is needed.

Names: "lmdb/pixels" is a set of five crops of photographs, "pictures/png" the same as files, and
"photographs/few/scaled-lmdb" one of the sets that `test_photographs.py` describes.
"""

import functools
import io

import numpy as np
import PIL.Image

from tests import photographs
from tests.datasets import photograph_sets
from xfbench.datasets.encoding import encode_png
from xfbench.datasets.lmdb import Writer as LmdbWriter
from xfbench.datasets.recordio import Writer as RecordIOWriter
from xfbench.datasets.tfrecord import Writer as TFRecordWriter
from xfbench.worker.samples import Sample

HEIGHT, WIDTH = 90, 120
LABELS = (3, 0, 7, 999, 1)
PHOTOGRAPHS = ("chelsea.png", "coffee.png", "astronaut.png", "rocket.jpg", "retina.jpg")
WRITERS = {"lmdb": LmdbWriter, "recordio": RecordIOWriter, "tfrecord": TFRecordWriter}
_MAGIC = bytes.fromhex("0a23d7ce")


@functools.cache
def load_crops():
    """Crops (3, 90, 120) of photographs."""
    box = (40, 20, 40 + WIDTH, 20 + HEIGHT)
    images = [photographs.open_photograph(name).crop(box) for name in PHOTOGRAPHS]
    return [np.asarray(image).transpose(2, 0, 1) for image in images]


@functools.cache
def make_samples(kind):
    """The samples of a set of this kind."""
    images = load_crops()
    if kind == "pixels":
        return [Sample(f"photo {n}", LABELS[n], image) for n, image in enumerate(images)]
    if kind == "png":
        return [
            Sample(f"photo {n}", LABELS[n], encode_png(image)) for n, image in enumerate(images)
        ]
    if kind == "jpeg":
        return [
            Sample(f"photo {n}.jpg", LABELS[n], encode_jpeg(image))
            for n, image in enumerate(images)
        ]
    if kind == "gray":  # with keys that are too long for LMDB
        return [Sample("a" * 600 + str(n), n, image[:1]) for n, image in enumerate(images)]
    # Bytes after the end of a PNG file, which may look like the beginning of a record.
    shift = int(kind.removeprefix("parts-"))
    plain = encode_png(images[0])
    padded = plain + bytes(-len(plain) % 4 + shift)
    return [Sample("0", 1, padded + _MAGIC + b"more" + _MAGIC), Sample("1", 2, plain)]


def encode_jpeg(image, quality=90):
    """An image (3, H, W) as a JPEG file."""
    file = io.BytesIO()
    picture = PIL.Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
    picture.save(file, "jpeg", quality=quality)
    return file.getvalue()


def make_picture_files(kind):
    """The crops as the contents of files, by name: all PNG, or the first one a JPEG ("mixed")."""
    contents = [encode_png(image) for image in load_crops()]
    if kind == "mixed":
        contents[0] = encode_jpeg(load_crops()[0])
    return {
        f"{n}.jpg" if content[:2] == b"\xff\xd8" else f"{n}.png": content
        for n, content in enumerate(contents)
    }


class SampleSets:
    """A function: the folder of a set by its name. `cache` keeps photographs between sessions."""

    def __init__(self, root, cache):
        self.root = root
        self.photograph_sets = photograph_sets.PhotographSets(root, cache)
        self.folders = {}

    def __call__(self, name):
        if name not in self.folders:
            self.folders[name] = self._make(name)
        return self.folders[name]

    def _make(self, name):
        form, _, kind = name.partition("/")
        if form == "photographs":
            return self.photograph_sets(*kind.split("/"))
        folder = self.root / form / kind
        folder.mkdir(parents=True)
        if form == "pictures":
            for file, content in make_picture_files(kind).items():
                (folder / file).write_bytes(content)
            return folder
        writer = WRITERS[form](folder, "train", 0)
        for sample in make_samples(kind):
            writer.add(sample)
        writer.close()
        return folder
