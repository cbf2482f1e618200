"""Two thousand photographs are the same samples from every format, whoever reads them.

Small ones in the default run; `long` has them as large as ImageNet's. The frameworks' readers
run in their own interpreters and compare there with ours, so that digests come back, not pixels.
"""

import functools
import io
from collections import namedtuple

import numpy as np
import PIL.ExifTags
import PIL.ImageOps
import pytest
from typer.testing import CliRunner

from tests import photographs
from xfbench.cli import data as cli
from xfbench.data import checking
from xfbench.data.manifest import Manifest
from xfbench.running import worker_archive
from xfbench.worker import pictures, prepared
from xfbench.worker.samples import sample_digest, stream_digest

Made = namedtuple("Made", "size folders")
KEPT = ("folder", "tfrecord", "lmdb", "recordio")
GROUPS = {
    "kept": (KEPT, []),  # the files' own bytes
    "scaled": (("raw", *KEPT), []),
    "jpeg": (("tfrecord", "lmdb", "recordio"), ["--encode", "jpeg:90"]),
    "asking": (KEPT, []),
}
WAYS = range(1, 9)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(((64, 125), 56), id="small"),
        pytest.param(((256, 500), 256), id="large", marks=pytest.mark.long),
    ],
)
def made(request, tmp_path_factory):
    """The set in every format: files as they are, as pixels of one size, and as new JPEG files.

    And one photograph with each of EXIF's eight orientations, as a class of its own.
    """
    sides, size = request.param
    source = photographs.made(request.config.cache.mkdir("photographs"), sides)
    root = tmp_path_factory.mktemp("photographs")
    _ask(root / "from")
    for group, (forms, options) in GROUPS.items():
        kind, here = ("folder", root / "from") if group == "asking" else ("imagenet", source)
        scaled = ["--size", str(size)] if group in ("scaled", "jpeg") else []
        for form in forms:
            _prepare(kind, here, root / f"{group}-{form}", "--format", form, *scaled, *options)
    return Made(size, root)


def _ask(folder):
    crop = photographs.opened("coffee.png").crop((100, 50, 164, 114))
    for way in WAYS:
        exif = PIL.Image.Exif()
        exif[PIL.ExifTags.Base.Orientation] = way
        (folder / str(way)).mkdir(parents=True)
        crop.save(folder / str(way) / "coffee.jpg", quality=95, exif=exif)


def _prepare(kind, source, target, *options):
    """As the command line does, whose start would take longer than small photographs."""
    line = ["prepare", kind, "--from", str(source), "--to", str(target), *options]
    done = CliRunner().invoke(cli.app, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stderr


@pytest.mark.parametrize("group", ["kept", "scaled", "jpeg"])
def test_all_formats_give_our_reader_the_same_stream(made, group):
    found = checking.check([made.folders / f"{group}-{form}" for form in GROUPS[group][0]])
    assert checking.document(found)["equal"], found
    assert {(one.samples, one.largest_pixel_difference) for one in found} == {(2000, 0)}
    manifest = Manifest.read(made.folders / f"{group}-lmdb")
    assert len(manifest.classes) == len(photographs.CLASSES) == 21
    assert manifest.splits["train"].samples == photographs.TRAIN
    assert manifest.shape == (None if group == "kept" else (3, made.size, made.size))


# In a framework's interpreter each script has a function `read`, which gives `compared` a stream:
# pixels, uint8 (C, H, W), and a label for each sample of a split, in order.
COMPARED = """
import sys
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[2])
from xfbench.worker import pictures, prepared
from xfbench.worker.samples import sample_digest
answer = {}

def compared(reader, folder, split, stream):
    samples, listed = there.splits[split], there.listed[split]
    digests, labels, largest, pixels = [], [], [], [0, 0]
    for index, (image, label) in enumerate(stream):
        image = np.ascontiguousarray(image)
        assert image.dtype == np.uint8 and len(image) == 3
        digests.append(sample_digest(image, int(label)))
        labels.append(int(label))
        pixels[1] += image[0].size
        if digests[-1] == listed.digests[index]:
            largest.append(0)
            continue
        ours = pictures.pixels(samples[index], 3)
        assert ours.shape == image.shape, (ours.shape, image.shape)
        apart = np.abs(ours.astype(int) - image.astype(int)).max(axis=0)
        largest.append(apart.max())
        pixels[0] += np.count_nonzero(apart)
    found = {"digests": digests, "labels": labels, "largest": largest, "pixels": pixels}
    for name, values in found.items():
        answer[f"{folder.name} {reader} {split} {name}"] = values

def whole(values):
    # Pixels that a framework feeds as float32.
    found = values.astype(np.uint8)
    assert (found == values).all()
    return found

def batch_size(split):
    # Files of many sizes are a batch each.
    return 80 if there.manifest["shape"] and len(there.splits[split]) % 80 == 0 else 1
"""
ALL = """
for name in sys.argv[3:]:
    folder = Path(name)
    there = prepared.open_(folder)
    for split in there.splits:
        read(folder, split)
np.savez(sys.argv[1], **answer)
"""

TENSORFLOW = """
import tensorflow as tf
kinds = {"image/encoded": tf.io.FixedLenFeature([], tf.string),
         "image/class/label": tf.io.FixedLenFeature([], tf.int64)}
METHODS = {"accurate": "INTEGER_ACCURATE", "default": ""}

def read(folder, split):
    for reader in ["png"] if "scaled" in folder.name else METHODS:
        def decoded(record):
            found = tf.io.parse_single_example(record, kinds)
            content = found["image/encoded"]
            if reader == "png":
                image = tf.io.decode_png(content, channels=3)
            else:
                image = tf.io.decode_jpeg(content, channels=3, dct_method=METHODS[reader])
            return image, found["image/class/label"]
        records = tf.data.TFRecordDataset(str(folder / f"{split}.tfrecord"))
        fed = records.map(decoded, num_parallel_calls=2).as_numpy_iterator()
        stream = ((image.transpose(2, 0, 1), label) for image, label in fed)
        compared(reader, folder, split, stream)
"""

MXNET = """
import mxnet as mx

def read(folder, split):
    index, file = str(folder / f"{split}.idx"), str(folder / f"{split}.rec")
    records = mx.recordio.MXIndexedRecordIO(index, file, "r")
    def unpacked():
        for key in records.keys:
            header, content = mx.recordio.unpack(records.read_idx(key))
            yield mx.image.imdecode(content).asnumpy().transpose(2, 0, 1), header.label
    compared("imdecode", folder, split, unpacked())
    if there.manifest["shape"]:
        fed = mx.io.ImageRecordIter(path_imgrec=file, path_imgidx=index, round_batch=False,
            data_shape=there.manifest["shape"], batch_size=batch_size(split), preprocess_threads=2)
        compared("ImageRecordIter", folder, split, (pair for one in fed
            for pair in zip(whole(one.data[0].asnumpy()), one.label[0].asnumpy())))
"""

# Gray JPEG files have one channel unless colour is asked for.
CAFFE = """
import caffe
COLOURS = {"plain": "false", "force_color": "true"}

def read(folder, split):
    group = folder.name.split("-")[0]
    for reader in {"kept": ["force_color"], "scaled": ["plain"]}.get(group, COLOURS):
        net, batch = Path(sys.argv[1] + ".prototxt"), batch_size(split)
        net.write_text('''layer { name: "data" type: "Data" top: "data" top: "label"
          transform_param { force_color: %s }
          data_param { source: "%s" backend: LMDB batch_size: %d } }''' %
          (COLOURS[reader], folder / f"{split}.lmdb", batch))
        loaded = caffe.Net(str(net), caffe.TRAIN)
        def fed():
            for _ in range(len(there.splits[split]) // batch):
                loaded.forward()
                images, labels = loaded.blobs["data"].data, loaded.blobs["label"].data
                for image, label in zip(whole(images), labels):
                    yield image[::-1], label
        compared(reader, folder, split, fed())
"""

# PyTorch has a DataLoader and no reader of files: Pillow is what folders are read with, and
# LMDB is read by our reader (by the lmdb package: tests/adapters/test_readers.py).
TORCH = """
import torch
from PIL import Image

class Files(torch.utils.data.Dataset):
    # As torchvision's ImageFolder finds them, class by class.
    def __init__(self, root):
        self.root = root
        names = sorted(one.name for one in root.iterdir())
        self.found = [(path, label) for label, name in enumerate(names)
                      for path in sorted((root / name).iterdir())]
    def __len__(self):
        return len(self.found)
    def __getitem__(self, index):
        path, label = self.found[index]
        image = np.array(Image.open(path).convert("RGB")).transpose(2, 0, 1)
        return path.relative_to(self.root).as_posix(), torch.from_numpy(image), label

class Records(torch.utils.data.Dataset):
    def __init__(self, samples):
        self.samples = samples
    def __len__(self):
        return len(self.samples)
    def __getitem__(self, index):
        sample = self.samples[index]
        return sample.key, torch.from_numpy(pictures.pixels(sample, 3)), sample.label

def read(folder, split):
    form = there.manifest["format"]
    chosen = Files(folder / split) if form == "folder" else Records(there.splits[split])
    fed, batch = {}, batch_size(split)
    for found in torch.utils.data.DataLoader(chosen, batch_size=batch, num_workers=2):
        for key, image, label in zip(*found):
            fed[key] = image.numpy().copy(), label
    compared("DataLoader", folder, split, (fed[key] for key in there.listed[split].keys))
"""
SCRIPTS = {"tensorflow": TENSORFLOW, "mxnet": MXNET, "caffe": CAFFE, "torch": TORCH}
frameworks = pytest.mark.parametrize("framework", SCRIPTS)

# The largest difference from ours, of 255, for each set and reader.
BOUNDS = {
    "tensorflow": {
        ("kept-tfrecord", "accurate"): 0,
        ("kept-tfrecord", "default"): 32,
        ("scaled-tfrecord", "png"): 0,
        ("jpeg-tfrecord", "accurate"): 0,
        ("jpeg-tfrecord", "default"): 32,
    },
    "mxnet": {
        ("kept-recordio", "imdecode"): 0,
        ("scaled-recordio", "imdecode"): 0,
        ("scaled-recordio", "ImageRecordIter"): 0,
        ("jpeg-recordio", "imdecode"): 0,
        ("jpeg-recordio", "ImageRecordIter"): 0,
    },
    "caffe": {
        ("kept-lmdb", "force_color"): 0,
        ("scaled-lmdb", "plain"): 0,
        ("jpeg-lmdb", "plain"): 0,
        ("jpeg-lmdb", "force_color"): 0,
    },
    "torch": {("kept-folder", "DataLoader"): 0, ("scaled-lmdb", "DataLoader"): 0},
}
# Who shows an image as EXIF asks for it.
TURNED = {
    "tensorflow": {("asking-tfrecord", "accurate"): False},
    "mxnet": {("asking-recordio", "imdecode"): False, ("asking-recordio", "ImageRecordIter"): True},
    "caffe": {("asking-lmdb", "plain"): False, ("asking-lmdb", "force_color"): True},
    "torch": {("asking-folder", "DataLoader"): False},
}


@pytest.fixture(scope="module")
def read(made, run_in, tmp_path_factory):
    """A function: what a framework's own readers make of the sets that it can read."""

    @functools.cache
    def do(framework):
        names = {name for name, _ in (*BOUNDS[framework], *TURNED[framework])}
        return run_in(
            tmp_path_factory.mktemp(framework),
            framework,
            COMPARED + SCRIPTS[framework] + ALL,
            worker_archive.worker_archive(framework),
            *(made.folders / name for name in sorted(names)),
        )

    return do


@frameworks
def test_a_frameworks_own_readers_give_the_same_photographs(made, read, framework):
    answer = read(framework)
    for (name, reader), bound in BOUNDS[framework].items():
        largest, pixels = [], np.zeros(2, int)
        manifest = Manifest.read(made.folders / name)
        for split, listed in prepared.open_(made.folders / name).listed.items():
            found = f"{name} {reader} {split}"
            assert answer[f"{found} labels"].tolist() == listed.labels
            digest = stream_digest(answer[f"{found} digests"].tolist())
            same = digest == manifest.splits[split].stream_digest
            assert same == (max(answer[f"{found} largest"]) == 0)
            largest += answer[f"{found} largest"].tolist()
            pixels += answer[f"{found} pixels"]
        images, share = np.count_nonzero(largest) / len(largest), pixels[0] / pixels[1]
        print(
            f"{framework}, {name}, {reader}: largest difference {max(largest)} of 255, "
            f"{images:.1%} of images, {share:.2%} of pixels"
        )
        assert max(largest) <= bound


def digests(folder, show):
    """Of the samples as our reader has them, each picture made into another by `show`."""
    found = []
    for sample in prepared.open_(folder).splits["train"]:
        with PIL.Image.open(io.BytesIO(sample.image)) as picture:
            found.append(sample_digest(pictures.planes(show(picture)), sample.label))
    return found


def test_how_many_ask_to_be_shown_turned_is_counted_and_told(made, tmp_path):
    for form in KEPT:
        folder = made.folders / f"asking-{form}"
        assert Manifest.read(folder).splits["train"].turned == 7
        listed = (folder / "train.samples").read_text().splitlines()
        asked = {int(line.split("\t")[1]) + 1: line.split("\t")[4:] for line in listed}
        assert asked == {way: [str(way)] if way > 1 else [] for way in WAYS}
        there = prepared.open_(folder).listed["train"]
        assert there.digests == digests(folder, lambda picture: picture)
    for number, (options, count) in enumerate((([], 7), (["--encode", "jpeg"], 0))):
        target = tmp_path / str(number)
        told = _prepare("folder", made.folders / "from", target, "--format", "folder", *options)
        assert ("7 JPEG files ask to be shown turned" in told) is bool(count)
        assert Manifest.read(target).splits["train"].turned == count


@frameworks
def test_who_turns_what_asks_for_it(made, read, framework):
    for (name, reader), turns in TURNED[framework].items():
        show = PIL.ImageOps.exif_transpose if turns else lambda picture: picture
        found = read(framework)[f"{name} {reader} train digests"].tolist()
        assert found == digests(made.folders / name, show), (name, reader)
