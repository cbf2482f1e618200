"""What people have on disk is read as it was published, and what is wrong with it is told."""

import gzip
import io
import os

import numpy as np
import pytest
from PIL import Image

from xfbench.datasets import sources, writing
from xfbench.datasets.manifest import Preprocessing
from xfbench.worker import pictures, prepared
from xfbench.worker.formats import Damaged
from xfbench.worker.samples import Sample


def test_mnist_is_read_plain_and_gzip_compressed(mnist):
    root = mnist()
    source = sources.open_mnist(root)
    assert {name: len(samples) for name, samples in source.splits.items()} == {
        "train": 50,
        "test": 20,
    }
    first = source.splits["train"][3]
    raw = (root / "train-images-idx3-ubyte").read_bytes()
    assert first.image.shape == (1, 28, 28)
    assert first.image.tobytes() == raw[16 + 3 * 784 : 16 + 4 * 784]
    assert first.label == (root / "train-labels-idx1-ubyte").read_bytes()[8 + 3]
    for path in list(root.iterdir()):
        (root / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert np.array_equal(sources.open_mnist(root).splits["train"][3].image, first.image)


@pytest.mark.parametrize(
    "name, spoil, message_pattern",
    [
        ("train-images-idx3-ubyte", lambda b: b[:-1], "it is damaged"),
        ("train-images-idx3-ubyte", lambda b: b"\0\0\x08\x01" + b[4:], "starts with 2049"),
        ("train-labels-idx1-ubyte", lambda b: b[:20] + b"\x0a" + b[21:], "label 10 of image 12"),
        ("t10k-labels-idx1-ubyte", lambda b: b[:5], "ends within its header"),
        ("t10k-images-idx3-ubyte", lambda b: b"", "is empty: unpack"),
    ],
)
def test_damaged_idx_file_is_refused_by_name(mnist, name, spoil, message_pattern):
    path = mnist() / name
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(Damaged, match=message_pattern) as error:
        sources.open_mnist(path.parent)
    assert path.name.split("-idx")[0] in str(error.value)


def test_labels_of_another_split_are_refused(mnist):
    root = mnist()
    (root / "t10k-labels-idx1-ubyte").rename(root / "kept")
    (root / "train-labels-idx1-ubyte").rename(root / "t10k-labels-idx1-ubyte")
    (root / "kept").rename(root / "train-labels-idx1-ubyte")
    with pytest.raises(Damaged, match="50 train images, 20 labels"):
        sources.open_mnist(root)


def test_a_truncated_gzip_file_is_refused(mnist):
    root = mnist()
    path = root / "train-images-idx3-ubyte"
    (root / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes())[:-20])
    path.unlink()
    with pytest.raises(Damaged, match="is not a complete gzip file"):
        sources.open_mnist(root)


def test_cifar10_is_read_from_5_batches_and_a_test_file(cifar):
    source = sources.open_cifar10(cifar)
    assert len(source.splits["train"]) == 50 and len(source.splits["test"]) == 10
    content = (cifar / "data_batch_2.bin").read_bytes()
    sample = source.splits["train"][13]
    assert sample.label == content[3 * 3073]
    assert sample.image.shape == (3, 32, 32)
    assert sample.image.tobytes() == content[3 * 3073 + 1 : 4 * 3073]


@pytest.mark.parametrize(
    "spoil, message_pattern",
    [
        (lambda b: b[:-7], "not a multiple of 3073"),
        (lambda b: b"\x0c" + b[1:], "label 12 of image 0"),
        (lambda b: b"", "incomplete"),
    ],
)
def test_a_damaged_cifar10_batch_is_refused(cifar, spoil, message_pattern):
    path = cifar / "data_batch_4.bin"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(Damaged, match=f"data_batch_4.*{message_pattern}"):
        sources.open_cifar10(cifar)


def test_imagenet_subset_takes_the_first_class_folders(folders):
    root = folders()
    source = sources.open_imagenet(root)
    assert source.classes == ("n01", "n02", "n03")
    assert len(source.splits["train"]) == 21 and len(source.splits["test"]) == 9
    fewer = sources.open_imagenet(root, 2)
    assert fewer.classes == ("n01", "n02") and len(fewer.splits["test"]) == 6


def test_imagenet_labels_come_from_a_list_without_class_folders(folders):
    root = folders()
    lines = []
    for label, name in enumerate(("n01", "n02", "n03")):
        for path in sorted((root / "val" / name).iterdir()):
            path.rename(root / "val" / path.name)
            lines.append(f"{path.name} {label}")
        (root / "val" / name).rmdir()
    (root / "val.txt").write_text("\n".join(lines) + "\n")
    test_samples = sources.open_imagenet(root, 2).splits["test"]
    assert [sample.label for sample in test_samples] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "line, message_pattern",
    [
        ("n01/n01_0.JPEG 3", "line 1: label 3, but there are 3 classes"),
        ("n01/n01_0.JPEG", "NAME LABEL"),
        ("n01/n01_6.JPEG 0", "is it the list of another split"),
        ("", "is empty"),
    ],
)
def test_invalid_label_list_is_refused_with_the_reason(folders, line, message_pattern):
    root = folders()
    (root / "val.txt").write_text(line and f"{line}\n")
    with pytest.raises(Damaged, match=message_pattern):
        sources.open_imagenet(root)


def test_empty_or_unknown_class_folder_is_refused(folders):
    root = folders()
    (root / "val" / "n09").mkdir()
    with pytest.raises(Damaged, match="n09"):
        sources.open_image_folder(root)
    (root / "val" / "n09").rmdir()
    (root / "train" / "n00").mkdir()
    with pytest.raises(Damaged, match="n00 contains no images"):
        sources.open_image_folder(root)


def test_link_out_of_a_prepared_set_is_refused(folders, tmp_path):
    source, target = sources.open_image_folder(folders()), tmp_path / "set"
    writing.make_data_set(source, target, "folder", Preprocessing(channels=3))
    path, outside = target / "train" / "n01" / "n01_0.JPEG", tmp_path / "secret.JPEG"
    path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(Damaged, match="points outside of its data set"):
        list(prepared.open_prepared(target).splits["train"])


def test_named_pipe_is_refused_before_it_is_read(folders):
    root = folders()
    path = root / "train" / "n01" / "n01_0.JPEG"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Damaged, match=r"n01_0\.JPEG is not a file"):
        list(sources.open_image_folder(root).splits["train"])


def test_truncated_and_oversized_pictures_are_refused_by_name(folders):
    root = folders()
    path = root / "train" / "n01" / "n01_0.JPEG"
    complete_content = path.read_bytes()
    path.write_bytes(complete_content[:-200])
    with pytest.raises(Damaged, match=r"n01_0.*not a complete JPEG"):
        pictures.decode_pixels(sources.open_image_folder(root).splits["train"][0])
    size_offset = complete_content.index(b"\xff\xc0") + 5
    for size in (b"\xff\xff\xff\xff", b"\x2f\xff\x2f\xff"):
        path.write_bytes(
            complete_content[:size_offset] + size + complete_content[size_offset + 4 :]
        )
        with pytest.raises(Damaged, match=r"n01_0\.JPEG has more than 64,000,000 pixels"):
            pictures.decode_pixels(sources.open_image_folder(root).splits["train"][0])
    path.write_text("no picture")
    with pytest.raises(Damaged, match="not a complete JPEG or PNG"):
        pictures.decode_pixels(sources.open_image_folder(root).splits["train"][0])


def test_picture_over_512_mib_is_refused(folders):
    root = folders()
    with (root / "train" / "n01" / "n01_0.JPEG").open("r+b") as file:
        file.truncate(2**29 + 1)  # a hole, which takes no room
    with pytest.raises(Damaged, match=r"n01_0\.JPEG is larger than 512 MiB"):
        list(sources.open_image_folder(root).splits["train"])


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_sixteen_bit_pixels_keep_their_upper_eight_bits(channels):
    values = np.random.RandomState(0).randint(0, 2**16, (20, 30)).astype(np.uint16)
    file = io.BytesIO()
    Image.fromarray(values).save(file, "png")
    pixels = pictures.decode_pixels(Sample("deep", 0, file.getvalue()), channels)
    assert np.array_equal(pixels, np.repeat([values >> 8], channels or 1, axis=0))
