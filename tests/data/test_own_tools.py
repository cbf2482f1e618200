"""What we write is read by the frameworks' own tools, and what they write by us.

Pictures are photographs that come with the packages of Caffe's environment. PNG files, and raw
pixels, are the same everywhere to the last bit. Of a JPEG file decoders may differ: by how much
is bounded here.
"""

import io
import json

import numpy as np
import PIL.Image
import pytest

from xfbench import adapter, command
from xfbench.data.encoding import png
from xfbench.data.lmdb import Writer as LmdbWriter
from xfbench.data.recordio import Writer as RecordIOWriter
from xfbench.data.tfrecord import Writer as TFRecordWriter
from xfbench.running import worker_archive
from xfbench.worker.formats import lmdb, recordio, tfrecord
from xfbench.worker.samples import Sample

HEIGHT, WIDTH = 90, 120
PHOTOGRAPHS = (
    "usr/lib/python3/dist-packages/skimage/data/chelsea.png",
    "usr/lib/python3/dist-packages/skimage/data/coffee.png",
    "usr/lib/python3/dist-packages/skimage/data/astronaut.png",
    "usr/lib/python3/dist-packages/skimage/data/rocket.jpg",
    "usr/share/matplotlib/sample_data/grace_hopper.jpg",
)
LABELS = (3, 0, 7, 999, 1)


@pytest.fixture(scope="session")
def photographs(found):
    """Crops (3, 90, 120) of photographs."""
    prefix = found("caffe").prefix
    opened = [PIL.Image.open(prefix / name).convert("RGB") for name in PHOTOGRAPHS]
    crops = [one.crop((40, 20, 40 + WIDTH, 20 + HEIGHT)) for one in opened]
    return [np.asarray(crop).transpose(2, 0, 1) for crop in crops]


def jpeg(image, quality=90):
    file = io.BytesIO()
    PIL.Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(
        file, "jpeg", quality=quality
    )
    return file.getvalue()


def decoded(content):
    image = np.array(PIL.Image.open(io.BytesIO(content)))
    return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)


@pytest.fixture
def as_pixels(photographs):
    return [Sample(f"photo {n}", LABELS[n], image) for n, image in enumerate(photographs)]


@pytest.fixture
def as_jpeg(photographs):
    return [Sample(f"photo {n}.jpg", LABELS[n], jpeg(one)) for n, one in enumerate(photographs)]


def write(writer, folder, samples):
    made = writer(folder, "train", 0)
    for sample in samples:
        made.add(sample)
    made.close()


def difference(images, samples):
    """The largest one between what a tool decoded (N, C, H, W) and what Pillow does."""
    expected = [decoded(s.image) if isinstance(s.image, bytes) else s.image for s in samples]
    assert images.shape == np.shape(expected)
    return np.abs(images.astype(int) - np.array(expected, int)).max()


def folder_of(pictures, folder):
    """The same pictures as files, `0.png` and so on; their names."""
    folder.mkdir()
    names = [f"{n}.jpg" if one[:2] == b"\xff\xd8" else f"{n}.png" for n, one in enumerate(pictures)]
    for name, content in zip(names, pictures, strict=True):
        (folder / name).write_bytes(content)
    return names


# TensorFlow

PARSED = """
import sys
import numpy as np
import tensorflow as tf
kind = {"image/encoded": tf.string, "image/class/label": tf.int64, "image/height": tf.int64,
        "image/width": tf.int64, "image/key": tf.string, "image/filename": tf.string}
kind = {name: tf.io.FixedLenFeature([], one) for name, one in kind.items()}
found = [tf.io.parse_single_example(one, kind) for one in tf.data.TFRecordDataset(sys.argv[2])]
method = sys.argv[3]
def decode(one):
    if one[:2] == b"\\xff\\xd8":
        return tf.io.decode_jpeg(one, dct_method=method)
    return tf.io.decode_image(one)
images = [decode(one["image/encoded"].numpy()).numpy() for one in found]
np.savez(sys.argv[1], images=np.stack(images).transpose(0, 3, 1, 2),
         keys=[one["image/key"].numpy().decode() for one in found],
         **{name[6:].replace("class/", ""): [one[name].numpy() for one in found]
            for name in ("image/class/label", "image/height", "image/width")})
"""


def test_tensorflow_reads_our_tfrecords(run, as_pixels, tmp_path):
    write(TFRecordWriter, tmp_path, as_pixels)
    answer = run("tensorflow", PARSED, tmp_path / "train.tfrecord", "")
    assert difference(answer["images"], as_pixels) == 0
    assert tuple(answer["label"]) == LABELS
    assert set(answer["height"]) == {HEIGHT} and set(answer["width"]) == {WIDTH}
    assert [str(key) for key in answer["keys"]] == [sample.key for sample in as_pixels]


@pytest.mark.parametrize(("method", "bound"), [("INTEGER_ACCURATE", 0), ("", 16)])
def test_tensorflow_decodes_our_jpegs_nearly_as_pillow(method, bound, run, as_jpeg, tmp_path):
    write(TFRecordWriter, tmp_path, as_jpeg)
    answer = run("tensorflow", PARSED, tmp_path / "train.tfrecord", method)
    largest = difference(answer["images"], as_jpeg)
    print(f"largest difference with {method or 'the default'}: {largest}")
    assert largest <= bound


WRITTEN = """
import json, sys
from pathlib import Path
import tensorflow as tf
folder, target, names, labels = sys.argv[2], sys.argv[3], *map(json.loads, sys.argv[4:])
def strings(*values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
def numbers(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
with tf.io.TFRecordWriter(target) as writer:
    for name, label in zip(names, labels):
        features = {
            "image/encoded": strings((Path(folder) / name).read_bytes()),
            "image/class/label": numbers(label),
            "image/filename": strings(name.encode()),
            "image/object/bbox/xmin": tf.train.Feature(float_list=tf.train.FloatList(value=[.5])),
            "image/class/text": strings(b"a", b"b"),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writer.write(example.SerializeToString())
"""


def test_we_read_what_tensorflow_writes(run, photographs, tmp_path):
    pictures = [jpeg(photographs[0]), *map(png, photographs[1:])]
    names = folder_of(pictures, tmp_path / "from")
    target = tmp_path / "train.tfrecord"
    arguments = (tmp_path / "from", target, json.dumps(names), json.dumps(LABELS))
    run("tensorflow", WRITTEN, *arguments)
    found = list(tfrecord.samples(tmp_path, "train"))
    assert [sample.image for sample in found] == pictures
    assert [sample.key for sample in found] == names
    assert tuple(sample.label for sample in found) == LABELS


# MXNet

UNPACKED = """
import sys
import mxnet as mx
import numpy as np
index, file, shape = sys.argv[2], sys.argv[3], (3, int(sys.argv[4]), int(sys.argv[5]))
records = mx.recordio.MXIndexedRecordIO(index, file, "r")
images, labels, numbers = [], [], []
for key in records.keys:
    header, content = mx.recordio.unpack(records.read_idx(key))
    images.append(mx.image.imdecode(content).asnumpy().transpose(2, 0, 1))
    labels.append(header.label)
    numbers.append(header.id)
batches = mx.io.ImageRecordIter(path_imgrec=file, path_imgidx=index, data_shape=shape,
                                batch_size=1, preprocess_threads=1, round_batch=False)
fed = [(one.data[0].asnumpy()[0], one.label[0].asscalar()) for one in batches]
np.savez(sys.argv[1], images=images, labels=labels, numbers=numbers,
         fed=np.stack([image for image, _ in fed]), fed_labels=[label for _, label in fed])
"""


@pytest.mark.parametrize(("kind", "bound"), [("as_pixels", 0), ("as_jpeg", 0)])
def test_mxnet_reads_our_recordio(kind, bound, run, request, tmp_path):
    samples = request.getfixturevalue(kind)
    write(RecordIOWriter, tmp_path, samples)
    files = tmp_path / "train.idx", tmp_path / "train.rec"
    answer = run("mxnet", UNPACKED, *files, HEIGHT, WIDTH)
    for images, labels in (("images", "labels"), ("fed", "fed_labels")):
        largest = difference(answer[images], samples)
        print(f"largest difference of {images}, {kind}: {largest}")
        assert largest <= bound
        assert tuple(answer[labels]) == LABELS
    assert list(answer["numbers"]) == list(range(len(samples)))


@pytest.mark.parametrize("shift", range(4))
def test_mxnet_joins_our_records_in_parts_and_we_its(shift, run, as_pixels, tmp_path):
    magic = bytes.fromhex("0a23d7ce")
    # What follows the end of a PNG file is nobody's, and may look like a record's beginning.
    plain = png(as_pixels[0].image)
    padded = plain + bytes(-len(plain) % 4 + shift)
    samples = [Sample("0", 1, padded + magic + b"more" + magic), Sample("1", 2, plain)]
    write(RecordIOWriter, tmp_path, samples)
    script = """
import sys
import mxnet as mx
here, there = sys.argv[2:]
read = mx.recordio.MXIndexedRecordIO(here + "/train.idx", here + "/train.rec", "r")
written = mx.recordio.MXIndexedRecordIO(there + "/train.idx", there + "/train.rec", "w")
for key in read.keys:
    header, content = mx.recordio.unpack(read.read_idx(key))
    written.write_idx(key, mx.recordio.pack(header, content))
written.close()
"""
    (tmp_path / "there").mkdir()
    run("mxnet", script, tmp_path, tmp_path / "there")
    for name in ("train.rec", "train.idx"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / name).read_bytes()
    found = recordio.samples(tmp_path / "there", "train")
    assert [sample.image for sample in found] == [sample.image for sample in samples]


def test_we_read_what_im2rec_writes(run, found, photographs, tmp_path):
    pictures = [jpeg(photographs[0]), *map(png, photographs[1:])]
    names = folder_of(pictures, tmp_path / "from")
    lines = [f"{10 + n}\t{LABELS[n]}\t{name}\n" for n, name in enumerate(names)]
    (tmp_path / "train.lst").write_text("".join(lines))
    # im2rec loads OpenCV, which nothing here installs, and does not use it with --pass-through.
    (tmp_path / "cv2.py").write_text("")
    script = """
import runpy, sys
from importlib.util import find_spec
tool = find_spec("mxnet").submodule_search_locations[0] + "/tools/im2rec.py"
sys.argv[1:2] = ["--pass-through"]
runpy.run_path(tool, run_name="__main__")
"""
    run(
        "mxnet",
        script,
        tmp_path / "train.lst",
        tmp_path / "from",
        variables={"PYTHONPATH": str(tmp_path)},
    )
    read = list(recordio.samples(tmp_path, "train"))
    assert [sample.image for sample in read] == pictures
    assert [sample.key for sample in read] == [f"{10 + n:08d}" for n in range(len(names))]
    assert tuple(sample.label for sample in read) == LABELS


# Caffe

NET = """
import sys
import caffe
import numpy as np
database, count, folder = sys.argv[2], sys.argv[3], sys.argv[4]
with open(folder + "/net.prototxt", "w") as file:
    file.write('''layer { name: "data" type: "Data" top: "data" top: "label"
      data_param { source: "%s" backend: LMDB batch_size: %s } }''' % (database, count))
net = caffe.Net(folder + "/net.prototxt", caffe.TRAIN)
net.forward()
images, labels = net.blobs["data"].data, net.blobs["label"].data
np.savez(sys.argv[1], images=images[:, ::-1], labels=labels)
"""


@pytest.mark.parametrize(("kind", "bound"), [("as_pixels", 0), ("as_png", 0), ("as_jpeg", 0)])
def test_caffe_reads_our_lmdb(kind, bound, run, request, tmp_path):
    if kind == "as_png":
        given = request.getfixturevalue("as_pixels")
        samples = [Sample(one.key, one.label, png(one.image)) for one in given]
    else:
        samples = request.getfixturevalue(kind)
    write(LmdbWriter, tmp_path, samples)
    answer = run("caffe", NET, tmp_path / "train.lmdb", len(samples), tmp_path)
    largest = difference(answer["images"], samples)
    print(f"largest difference, {kind}: {largest}")
    assert largest <= bound
    assert tuple(answer["labels"]) == LABELS


def test_caffe_reads_gray_pixels_and_keys_too_long_for_lmdb(run, photographs, tmp_path):
    samples = [Sample("a" * 600 + str(n), n, image[:1]) for n, image in enumerate(photographs)]
    write(LmdbWriter, tmp_path, samples)
    answer = run("caffe", NET, tmp_path / "train.lmdb", len(samples), tmp_path)
    assert difference(answer["images"], samples) == 0
    assert list(answer["labels"]) == list(range(len(samples)))


@pytest.mark.parametrize("options", [[], ["-encoded"], ["-gray"]])
def test_we_read_what_convert_imageset_writes(options, found, photographs, tmp_path):
    pictures = list(map(png, photographs))
    names = folder_of(pictures, tmp_path / "from")
    lines = [f"{name} {label}\n" for name, label in zip(names, LABELS, strict=True)]
    (tmp_path / "list").write_text("".join(lines))
    caffe, described = found("caffe"), adapter.load("caffe")
    arguments = [f"{tmp_path}/from/", f"{tmp_path}/list", f"{tmp_path}/train.lmdb"]
    command.output(
        [str(caffe.prefix / "usr/bin/convert_imageset"), *options, *arguments],
        environment=caffe.variables(described, described.default_kernel, 1),
        cwd=tmp_path,
        timeout=300,
    )
    read = list(lmdb.samples(tmp_path, "train"))
    assert [sample.key for sample in read] == names
    assert tuple(sample.label for sample in read) == LABELS
    if options == ["-encoded"]:
        assert [sample.image for sample in read] == pictures
    elif options == ["-gray"]:
        assert {sample.image.shape for sample in read} == {(1, HEIGHT, WIDTH)}
    else:
        for sample, image in zip(read, photographs, strict=True):
            assert np.array_equal(sample.image, image)


# Ours in theirs

READ = """
import sys
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[2])
from xfbench.worker.formats import lmdb, recordio, tfrecord
found = {}
for module in (lmdb, recordio, tfrecord):
    for sample in module.samples(Path(sys.argv[3]), "train"):
        name = module.__name__.rpartition(".")[2]
        image = sample.image
        if isinstance(image, bytes):
            image = np.frombuffer(image, np.uint8)
        found[f"{name} {sample.key} {sample.label}"] = image
np.savez(sys.argv[1], **found)
"""


@pytest.mark.parametrize("framework", ["caffe", "mxnet", "tensorflow", "torch"])
def test_our_readers_work_in_the_frameworks_interpreters(framework, run, as_pixels, tmp_path):
    for writer in (LmdbWriter, RecordIOWriter, TFRecordWriter):
        write(writer, tmp_path, as_pixels)
    answer = run(framework, READ, worker_archive.worker_archive(framework), tmp_path)
    assert len(answer) == 3 * len(as_pixels)
    for n, sample in enumerate(as_pixels):
        assert np.array_equal(answer[f"lmdb {sample.key} {sample.label}"], sample.image)
        for name in (f"recordio {n:08d}", f"tfrecord {sample.key}"):
            content = answer[f"{name} {sample.label}"].tobytes()
            assert np.array_equal(decoded(content), sample.image)
