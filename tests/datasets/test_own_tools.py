"""The frameworks' own tools read what we write, and we read what they write.

PNG files and raw pixels are the same everywhere to the last bit. Decoders may differ on a JPEG
file: the tests bound by how much.
"""

import io

import numpy as np
import PIL.Image
import pytest

from tests.datasets import sample_sets
from tests.datasets.sample_sets import HEIGHT, LABELS, WIDTH
from tests.datasets.tasks import Task
from xfbench.base import processes
from xfbench.environments import environment
from xfbench.model import adapter
from xfbench.worker import pictures
from xfbench.worker.formats import lmdb, recordio, tfrecord

PICTURES = sample_sets.make_picture_files("mixed")


def each_answer(*tasks, ids):
    return pytest.mark.parametrize("answer", tasks, ids=ids, indirect=True)


def decode(content):
    pixels = np.array(PIL.Image.open(io.BytesIO(content)))
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def max_difference(images, kind):
    """Between what a tool decoded (N, C, H, W) and what Pillow decodes, of 255."""
    contents = [sample.image for sample in sample_sets.make_samples(kind)]
    expected = [decode(content) if isinstance(content, bytes) else content for content in contents]
    assert images.shape == np.shape(expected)
    return np.abs(images.astype(int) - np.array(expected, int)).max()


# TensorFlow


@each_answer(Task("tensorflow", "read_tfrecord", ("tfrecord/pixels",), ("",)), ids=["pixels"])
def test_tensorflow_reads_our_tfrecords(answer):
    assert max_difference(answer["images"], "pixels") == 0
    assert tuple(answer["labels"]) == LABELS
    assert set(answer["heights"]) == {HEIGHT} and set(answer["widths"]) == {WIDTH}
    samples = sample_sets.make_samples("pixels")
    assert answer["keys"].tolist() == [sample.key for sample in samples]


ACCURATE, DEFAULT = (
    Task("tensorflow", "read_tfrecord", ("tfrecord/jpeg",), (method,))
    for method in ("INTEGER_ACCURATE", "")
)


@pytest.mark.parametrize(
    ("answer", "bound"),
    [(ACCURATE, 0), (DEFAULT, 16)],
    ids=["accurate", "default"],
    indirect=["answer"],
)
def test_tensorflow_jpeg_pixels_are_close_to_those_of_pillow(answer, bound):
    assert max_difference(answer["images"], "jpeg") <= bound


@each_answer(
    Task("tensorflow", "write_tfrecord", ("pictures/mixed",), (tuple(PICTURES), LABELS)),
    ids=["mixed"],
)
def test_our_reader_reads_tensorflows_tfrecords(answer):
    samples = list(tfrecord.samples(answer.folder, "train"))
    assert [sample.key for sample in samples] == list(PICTURES)
    assert [sample.image for sample in samples] == list(PICTURES.values())
    assert tuple(sample.label for sample in samples) == LABELS


# MXNet


def make_recordio_task(kind):
    return Task("mxnet", "read_recordio", (f"recordio/{kind}",), (HEIGHT, WIDTH))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(make_recordio_task(kind), kind) for kind in ("pixels", "jpeg")],
    ids=["pixels", "jpeg"],
    indirect=["answer"],
)
def test_mxnet_reads_our_recordio(answer, kind):
    assert max_difference(answer["images"], kind) == 0
    assert max_difference(answer["iterator_images"], kind) == 0
    assert tuple(answer["labels"]) == tuple(answer["iterator_labels"]) == LABELS
    assert answer["numbers"].tolist() == list(range(len(LABELS)))


@pytest.mark.parametrize(
    ("answer", "shift"),
    [(Task("mxnet", "copy_recordio", (f"recordio/parts-{n}",)), n) for n in range(4)],
    ids=[f"shift {n}" for n in range(4)],
    indirect=["answer"],
)
def test_mxnet_and_our_reader_join_records_in_parts(answer, shift, find_set):
    for name in ("train.rec", "train.idx"):
        expected_file = find_set(f"recordio/parts-{shift}") / name
        assert (answer.folder / name).read_bytes() == expected_file.read_bytes()
    images = [sample.image for sample in recordio.samples(answer.folder, "train")]
    assert images == [sample.image for sample in sample_sets.make_samples(f"parts-{shift}")]


@each_answer(
    Task("mxnet", "run_im2rec", ("pictures/mixed",), (tuple(PICTURES), LABELS)), ids=["mixed"]
)
def test_our_reader_reads_what_im2rec_writes(answer):
    samples = list(recordio.samples(answer.folder, "train"))
    assert [sample.image for sample in samples] == list(PICTURES.values())
    assert [sample.key for sample in samples] == [f"{10 + n:08d}" for n in range(len(LABELS))]
    assert tuple(sample.label for sample in samples) == LABELS


# Caffe


def make_lmdb_task(kind):
    return Task("caffe", "read_lmdb", (f"lmdb/{kind}",), (len(LABELS),))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(make_lmdb_task(kind), kind) for kind in ("pixels", "png", "jpeg")],
    ids=["pixels", "png", "jpeg"],
    indirect=["answer"],
)
def test_caffe_reads_our_lmdb(answer, kind):
    assert max_difference(answer["images"], kind) == 0
    assert tuple(answer["labels"]) == LABELS


@each_answer(make_lmdb_task("gray"), ids=["gray"])
def test_caffe_reads_gray_pixels_and_long_keys_from_our_lmdb(answer):
    assert max_difference(answer["images"], "gray") == 0
    assert answer["labels"].tolist() == list(range(len(LABELS)))


@pytest.mark.parametrize("option", [None, "-encoded", "-gray"])
def test_our_reader_reads_what_convert_imageset_writes(option, find_set, tmp_path):
    contents = sample_sets.make_picture_files("png")
    lines = [f"{name} {label}\n" for name, label in zip(contents, LABELS, strict=True)]
    (tmp_path / "list").write_text("".join(lines))
    caffe_adapter = adapter.load("caffe")
    caffe = environment.ensure_environment(caffe_adapter)
    processes.output(
        [
            str(caffe.prefix / "usr/bin/convert_imageset"),
            *([option] if option else []),
            *(f"{find_set('pictures/png')}/", "list", "train.lmdb"),
        ],
        environment=caffe.variables(caffe_adapter, caffe_adapter.default_kernel, 1),
        cwd=tmp_path,
        timeout=300,
    )
    samples = list(lmdb.samples(tmp_path, "train"))
    assert [sample.key for sample in samples] == list(contents)
    assert tuple(sample.label for sample in samples) == LABELS
    images = [sample.image for sample in samples]
    if option == "-encoded":
        assert images == list(contents.values())
    elif option == "-gray":
        assert {image.shape for image in images} == {(1, HEIGHT, WIDTH)}
    else:
        assert np.array_equal(images, sample_sets.load_crops())


# Our readers

FRAMEWORKS = ("caffe", "mxnet", "tensorflow", "torch")
KINDS = ("pixels", "jpeg")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (
            Task(
                framework,
                "read_with_our_readers",
                tuple(f"{form}/{kind}" for form in ("tfrecord", "recordio", "lmdb")),
            ),
            kind,
        )
        for framework in FRAMEWORKS
        for kind in KINDS
    ],
    ids=[f"{framework}-{kind}" for framework in FRAMEWORKS for kind in KINDS],
    indirect=["answer"],
)
def test_our_readers_give_a_framework_the_same_pixels(answer, kind):
    samples = sample_sets.make_samples(kind)
    assert len(answer.arrays) == 3 * len(samples)
    for number, sample in enumerate(samples):
        expected = pictures.decode_pixels(sample, 3)
        for name in (f"lmdb {sample.key}", f"tfrecord {sample.key}", f"recordio {number:08d}"):
            assert np.array_equal(answer[f"{name} {sample.label}"], expected), name
