"""Sources of images: MNIST, CIFAR-10, ImageNet and folders, in their published form.

A source is on the user's disk: nothing is downloaded. Each `open_…` function opens one kind of data
set as a `Source`. MNIST and CIFAR-10 are read when they are opened. Image files are read when their
samples are accessed. The functions raise Damaged if a file is missing or invalid; the message names
the file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import IO, Literal

import numpy as np
from PIL import Image

from xfbench.base.errors import UsageError
from xfbench.base.paths import expand_user, iterate_below
from xfbench.base.shared_files import open_file
from xfbench.datasets import foreign
from xfbench.datasets.manifest import Manifest, Preprocessing
from xfbench.worker import input as network_input
from xfbench.worker import pictures, prepared
from xfbench.worker.formats import (
    MAX_LINE_BYTES,
    Damaged,
    check_file,
    folder,
    read_image_path,
)
from xfbench.worker.samples import Sample

Split = Literal["train", "test"]
_IDX_IMAGES, _IDX_LABELS = 2051, 2049
_MAX_BYTES = 2**31  # of an IDX file; longer ones are refused (the largest published one has 376 MB)
_MAX_LIST_BYTES = 2**30  # of a list of images; that of all of ImageNet has 0.5 GB
_MAX_CIFAR_BYTES = 2**28  # the published files have 31 MB
_CHUNK_BYTES = 2**22
_CIFAR_SHAPE = (3, 32, 32)
_CIFAR = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
_OTHER_FORMATS = {
    b"RIFF": "WEBP",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"GIF8": "GIF",
    b"P5": "PPM",
    b"P6": "PPM",
}
"""Formats that are decoded when a data set is made, by the first bytes of a file."""
_OTHER_SUFFIXES = (".jpe", ".jfif", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
_SUFFIXES = (*folder.SUFFIXES, *_OTHER_SUFFIXES)
_IMAGENET_TEST = ("val", "validation", "valid", "eval", "test")
"""Names of the folder with the images to test with. The published `test` has no labels."""


@dataclass(frozen=True)
class Source:
    """A data set in its published form.

    - `classes`: names of the classes in the order of their labels, or None if classes only have
      numbers.
    - `channels`: number of channels of the images: 1 (gray) or 3 (RGB).
    - `note`: origin of the data set, such as its authors.
    - `by_class`: whether the images are grouped by class instead of mixed.
    - `before`: preprocessing of a data set that is already prepared, or None for other sources.
    - `remarks`: what the user should know, such as files that are left out.
    - `origin`: the folder of the source. It is compared before an interrupted run continues.
    - `selection`: what is read from files of another tool. It is compared, too.
    """

    name: str
    classes: tuple[str, ...] | None
    splits: dict[Split, Sequence[Sample]]
    channels: Literal[1, 3]
    note: str
    by_class: bool = False
    before: Preprocessing | None = None
    remarks: tuple[str, ...] = ()
    origin: str = ""
    selection: foreign.Selection = field(default_factory=foreign.Selection)


class _ArraySamples(Sequence[Sample]):
    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        return Sample(f"{index:08d}", int(self.labels[index]), self.images[index])


class _FileSamples(Sequence[Sample]):
    """Samples whose images are files below `root`.

    `listed` has the path below `root` and the label of each sample.
    """

    def __init__(self, root: Path, listed: Sequence[tuple[str, int]]) -> None:
        self.root, self.listed = root, listed

    def __len__(self) -> int:
        return len(self.listed)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        key, label = self.listed[index]
        return _read_image_sample(self.root / key, key, label)


def listing_digest(samples: Sequence[Sample]) -> str | None:
    """Return the digest of the names and labels of image files, or None for other samples."""
    if not isinstance(samples, _FileSamples):
        return None
    lines = hashlib.sha256()
    for key, label in samples.listed:
        lines.update(f"{key}\t{label}\n".encode("utf-8", "surrogateescape"))
    return lines.hexdigest()


def sample_name(samples: Sequence[Sample], index: int) -> str:
    """Return the name of an image file, or "sample N" for other samples.

    Bytes of a name that are not UTF-8 are escaped.
    """
    if not isinstance(samples, _FileSamples):
        return f"sample {index}"
    return os.fsencode(samples.listed[index][0]).decode(errors="backslashreplace")


def _read_image_sample(path: Path, key: str, label: int) -> Sample:
    """Return the sample in an image file. If it is neither JPEG nor PNG, it is decoded to pixels.

    No reader of a framework reads the other formats, so a data set does not store them.
    """
    if not _is_unicode(key):
        raise Damaged(f"the name of {path} is not UTF-8: rename the file")
    content = read_image_path(path)
    image_format = next(
        (name for start, name in _OTHER_FORMATS.items() if content.startswith(start)), None
    )
    if image_format is None:
        return Sample(key, label, content)
    try:
        picture = Image.open(io.BytesIO(content), formats=(image_format,))
        if (count := getattr(picture, "n_frames", 1)) > 1:
            raise Damaged(f"{path} has {count} pictures, not one")
        if picture.width * picture.height > pictures.MAX_PIXELS:
            raise Damaged(f"{path} has more than {pictures.MAX_PIXELS:,} pixels")
        picture.load()
    except (*pictures.DECODER_ERRORS, Image.DecompressionBombError) as error:
        cause = f"it begins with {content[:8].hex(' ')}" if "BytesIO" in str(error) else error
        raise Damaged(f"{path}: not a complete {image_format} file: {cause}") from error
    if picture.mode[:1] in "IF":
        raise Damaged(f"{path} has pixels of more than 8 bits: convert it to PNG first")
    return Sample(key, label, pictures.pixels_from_image(picture.convert("RGB")))


def open_bundled_digits() -> Source:
    """Open the 1,797 hand-written digits that come with xfbench.

    Their images have 28×28 pixels, the input size of LeNet.
    """
    train, test = (
        _ArraySamples(np.rint(images).astype(np.uint8), labels)
        for images, labels in network_input.load_digits((28, 28)).values()
    )
    classes = tuple(map(str, range(10)))
    note = "UCI hand-written digits (E. Alpaydin, C. Kaynak)"
    return Source("digits", classes, {"train": train, "test": test}, 1, note)


def open_mnist(root: Path) -> Source:
    """Open the four IDX files of MNIST in the folder `root`, with or without gzip compression."""
    splits: dict[Split, Sequence[Sample]] = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images = _read_idx(root, f"{prefix}-images", 3, _IDX_IMAGES)
        labels = _read_idx(root, f"{prefix}-labels", 1, _IDX_LABELS)
        if len(images) != len(labels):
            raise Damaged(f"{root}: {len(images)} {prefix} images, {len(labels)} labels")
        _check_labels(root / f"{prefix}-labels", labels, 10)
        splits[split] = _ArraySamples(images[:, np.newaxis], labels)  # type: ignore[index]
    classes = tuple(map(str, range(10)))
    return Source(
        "mnist",
        classes,
        splits,
        1,
        "MNIST (Y. LeCun, C. Cortes, C. Burges)",
        origin=str(root.resolve()),
    )


def _read_idx(root: Path, name: str, dimensions: int, magic: int) -> np.ndarray:
    names = [f"{name}{dot}idx{dimensions}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    # Some archives unpack each file into a folder of the same name.
    paths = [
        root / place for file_name in names for place in (file_name, f"{file_name}/{file_name}")
    ]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise Damaged(f"{root} has no file {names[0]} (or .gz): MNIST has four IDX files")
    count = 1 + dimensions
    try:
        with (
            open_file(path, "rb", follow_link=True) as stored,
            gzip.GzipFile(fileobj=stored) if _is_compressed(path, magic) else stored as file,
        ):
            start = file.read(4 * count)
            if not start:
                raise Damaged(f"{path} is empty: unpack or download it again")
            header = np.frombuffer(start[: len(start) // 4 * 4], ">u4").astype(np.int64)
            if not len(header) or header[0] != magic:
                first_word = header[0] if len(header) else start.hex(" ")
                raise Damaged(f"{path} starts with {first_word}, not {magic}: is it another file?")
            value_count = prod(header[1:].tolist())
            values = np.frombuffer(_read_at_most(file, min(value_count, _MAX_BYTES) + 1), np.uint8)
    except (OSError, EOFError, zlib.error) as error:
        raise Damaged(f"{path} is not a complete gzip file: {error}") from error
    if len(header) != count:
        raise Damaged(f"{path} is incomplete: it ends within its header")
    if values.size != value_count:
        shape = " × ".join(map(str, header[1:]))
        more = "more than " if values.size > min(value_count, _MAX_BYTES) else ""
        held_count = min(values.size, value_count)
        raise Damaged(f"{path} has {more}{held_count} values, not {shape}: it is damaged")
    if not value_count:
        raise Damaged(f"{path} is empty: {' × '.join(map(str, header[1:]))} values")
    return values.reshape(header[1:])


def _is_compressed(path: Path, magic: int) -> bool:
    """Return whether a file is compressed. Browsers decompress some files and keep their names."""
    with open_file(path, "rb", follow_link=True) as file:
        start = file.read(4)
    return start[:2] == b"\x1f\x8b" or (path.suffix == ".gz" and start != magic.to_bytes(4, "big"))


def _read_at_most(file: IO[bytes] | gzip.GzipFile, count: int) -> bytes:
    """Read at most `count` bytes. Memory is allocated only for bytes that the file has."""
    parts, remaining = [], count
    while remaining and (part := file.read(min(remaining, _CHUNK_BYTES))):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)


def open_cifar10(root: Path) -> Source:
    """Open the binary version of CIFAR-10 in the folder `root`.

    The folder has the files of five training batches and one test batch.
    """
    splits: dict[Split, Sequence[Sample]] = {
        "train": _read_cifar(root, [f"data_batch_{number}.bin" for number in range(1, 6)]),
        "test": _read_cifar(root, ["test_batch.bin"]),
    }
    return Source(
        "cifar10", tuple(_CIFAR), splits, 3, "CIFAR-10 (A. Krizhevsky)", origin=str(root.resolve())
    )


def _read_cifar(root: Path, names: Sequence[str]) -> Sequence[Sample]:
    record_bytes = 1 + int(np.prod(_CIFAR_SHAPE))
    parts = []
    for name in names:
        path = check_file(root / name)
        with open_file(path, "rb", follow_link=True) as file:
            values = np.frombuffer(_read_at_most(file, _MAX_CIFAR_BYTES + 1), np.uint8)
        if values.size > _MAX_CIFAR_BYTES:
            raise Damaged(
                f"{path} is longer than {_MAX_CIFAR_BYTES >> 20} MiB: is it another file?"
            )
        if not values.size or values.size % record_bytes:
            raise Damaged(
                f"{path} has {values.size} bytes, which is not a multiple of {record_bytes}: "
                "it is incomplete"
            )
        parts.append(values.reshape(-1, record_bytes))
        _check_labels(path, parts[-1][:, 0], 10)
    rows = np.concatenate(parts)
    return _ArraySamples(rows[:, 1:].reshape(-1, *_CIFAR_SHAPE), rows[:, 0])


def _check_labels(path: Path, labels: np.ndarray, classes: int) -> None:
    if wrong_indices := np.flatnonzero(labels >= classes).tolist():
        raise Damaged(
            f"{path}: label {labels[wrong_indices[0]]} of image {wrong_indices[0]} is invalid: "
            f"there are {classes} classes"
        )


def open_image_folder(root: Path) -> Source:
    """Open a folder of images.

    `root` contains class folders, or a folder `train` that contains class folders. If `train`
    exists, test images may be in class folders of `test`, `val` or another name in `foreign.TEST`.
    """
    trains, tests, other_folders = _find_split_folders(root)
    train, *unused = trains or [root]
    if train == root:
        if tests and any(path.is_dir() for path in tests[0].iterdir()):
            raise Damaged(f"{root} has the folder {tests[0].name}, but no folder train")
        tests = []
    classes = _list_classes(train)
    remarks = [_describe_class_folders(root, train, classes, tests[0] if tests else None)]
    if all(name.isdecimal() for name in classes) and classes != sorted(classes, key=int):
        number, name = next((n, each) for n, each in enumerate(classes) if n != int(each))
        remarks.append(f"{train}: classes are sorted by name: {name} has the label {number}")
    remarks += [f"{path} is left out: {train.name} has the training images" for path in unused]
    remarks += [f"{path} is left out: {tests[0].name} has the test images" for path in tests[1:]]
    if train != root:
        remarks += [f"{path} is left out: its name is of no split" for path in other_folders]
    splits: dict[Split, Sequence[Sample]] = {
        "train": _samples_of_class_folders(train, classes, classes, remarks)
    }
    if tests:
        splits["test"] = _samples_of_class_folders(
            tests[0], classes, classes, remarks, may_lack_classes=True
        )
    name = root.resolve().name
    return Source(
        name,
        tuple(classes),
        splits,
        3,
        "a folder of images",
        True,
        remarks=tuple(remarks),
        origin=str(root.resolve()),
    )


def _find_split_folders(root: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Return the folders in `root` with training images, those with test images, and all others.

    If no folder has the name of a split, such as train, the words in the names count, as in
    seg_train. A class may have such a word in its name, but it has images besides folders.
    """
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    folders = sorted(path for path in folders if not folder.is_left_behind(path.name))
    trains, tests = (_find_folders(root, names) for names in (foreign.TRAIN, foreign.TEST))
    if not trains and not tests:
        words = {path: foreign.find_words(path.name) for path in folders if not _has_images(path)}
        trains = [path for path, (train, test) in words.items() if train and not test]
        tests = [path for path, (train, test) in words.items() if test and not train]
        if not trains or not tests:
            trains, tests = [], []
    return trains, tests, [path for path in folders if path not in (*trains, *tests)]


def _has_images(root: Path) -> bool:
    """Return whether a folder has images, beside those in folders."""
    return any(path.name.lower().endswith(_SUFFIXES) and path.is_file() for path in root.iterdir())


def _find_folders(root: Path, names: Sequence[str]) -> list[Path]:
    """Return the folders in `root` with one of `names`, in any case, in the order of `names`."""
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    named = [path for path in folders if path.name.lower() in names]
    return sorted(named, key=lambda path: (names.index(path.name.lower()), path.name))


def _list_classes(root: Path) -> list[str]:
    """Return the names of the class folders. Raises Damaged if they are no classes."""
    classes = folder.list_class_names(root)
    for name in classes:
        if not _is_unicode(name):
            raise Damaged(f"the name of the folder {root / name} is not UTF-8: rename it")
    if len(classes) == 1:
        inner = [path for path in (root / classes[0]).iterdir() if path.is_dir()]
        images = (path for path in (root / classes[0]).iterdir() if path.is_file())
        if inner and not any(path.name.lower().endswith(_SUFFIXES) for path in images):
            raise Damaged(
                f"{root} has only one class, {classes[0]}, whose images are in folders: "
                f"is {root / classes[0]} the data set?"
            )
    return classes


def _is_unicode(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def _describe_class_folders(
    root: Path, train: Path, classes: Sequence[str], test: Path | None
) -> str:
    count = f"{len(classes)} class{'es' if len(classes) > 1 else ''}"
    place = "" if train == root else f" in {train.name}"
    return f"{root}: class folders: {count}{place}, " + (
        f"test images in {test.name}" if test else "no test images"
    )


def _samples_of_class_folders(
    root: Path,
    known_classes: Sequence[str],
    chosen_classes: Sequence[str],
    remarks: list[str],
    *,
    may_lack_classes: bool = False,
) -> _FileSamples:
    """Return the images in the class folders `chosen_classes` of `root`, in this order.

    Appends to `remarks` what is left out. Raises Damaged if a class has no images, unless
    `may_lack_classes` is true and another class has some. Raises Damaged if `root` has a class that
    is not in `known_classes`.
    """
    if foreign := sorted(set(folder.list_class_names(root)) - set(known_classes)):
        raise Damaged(f"{root} has the class {foreign[0]}, which has no training images")
    files = (path for path in root.iterdir() if path.name.lower().endswith(_SUFFIXES))
    stray = [path for path in files if not folder.is_left_behind(path.name) and path.is_file()]
    if stray:
        remarks.append(
            f"{root}: images beside the class folders are left out: {len(stray)}, such as "
            f"{min(stray).name}"
        )
    listed: list[tuple[str, int]] = []
    left_out: list[str] = []
    empty_classes = []
    for label, name in enumerate(chosen_classes):
        images, other_files = folder.list_images_and_other_files(root / name, _SUFFIXES)
        listed += [(f"{name}/{image}", label) for image in images]
        left_out += [f"{name}/{file}" for file in other_files]
        if not images:
            empty_classes.append(name)
    if empty_classes and not (may_lack_classes and listed):
        raise Damaged(
            f"{root / empty_classes[0]} contains no images: each class needs some "
            f"({', '.join(_SUFFIXES)})"
        )
    if empty_classes:
        remarks.append(
            f"{root} has no images of {len(empty_classes)} of {len(chosen_classes)} classes, "
            f"such as {empty_classes[0]}"
        )
    if nested := [pair for pair in listed if pair[0].count("/") > 1]:
        key, label = nested[0]
        remarks.append(
            f"{root}: {len(nested)} images are in nested folders, such as {key}: their class is "
            f"the outer folder, such as {chosen_classes[label]}"
        )
    if left_out:
        remarks.append(
            f"{root}: files without the name of an image are left out: {len(left_out)}, such as "
            f"{left_out[0]}"
        )
    return _FileSamples(root, listed)


def open_imagenet(root: Path, class_count: int | None = None) -> Source:
    """Open ImageNet in the folder `root`: class folders in `train`, and test images in `val`.

    - `val` may have another name in `_IMAGENET_TEST`, in upper or lower case.
    - The images in `val` are in class folders, or `root/val.txt` lists them. The list has a line
      "NAME LABEL" for each image.
    - `root/train.txt` may list the images in `train` in the same way. The classes then have the
      order of its labels. Otherwise, they are sorted by name.
    - `class_count` is the number of classes to open, counted from the first. None opens all.
    """
    train = [*_find_folders(root, foreign.TRAIN), root / "train"][0]
    test = _find_imagenet_test(root)
    folder_of: dict[Split, Path] = {"train": train, **({"test": test} if test else {})}
    lists: dict[Split, list[tuple[str, int]]] = {
        split: _read_label_list(path.with_suffix(".txt"), path)
        for split, path in folder_of.items()
        if path.with_suffix(".txt").is_file()
    }
    remarks: list[str] = []
    classes = _order_classes(train, lists.get("train"), remarks)
    remarks.insert(0, _describe_class_folders(root, train, classes, test))
    if class_count and class_count > len(classes):
        raise Damaged(f"{train} has {len(classes)} classes, not {class_count}")
    chosen_classes = classes[:class_count]
    splits: dict[Split, Sequence[Sample]] = {}
    for split, split_folder in folder_of.items():
        if split in lists:
            _check_listed_labels(split_folder.with_suffix(".txt"), lists[split], classes)
            listed = [pair for pair in lists[split] if pair[1] < len(chosen_classes)]
            splits[split] = _FileSamples(split_folder, listed)
        else:
            splits[split] = _samples_of_class_folders(
                split_folder, classes, chosen_classes, remarks, may_lack_classes=split == "test"
            )
    return Source(
        "imagenet",
        tuple(chosen_classes),
        splits,
        3,
        "ImageNet (ILSVRC 2012)",
        True,
        remarks=tuple(remarks),
        origin=str(root.resolve()),
    )


def _find_imagenet_test(root: Path) -> Path | None:
    """Return the folder with the test images, whose labels are known, or None."""
    for path in _find_folders(root, _IMAGENET_TEST):
        has_list = path.with_suffix(".txt").is_file()
        if path.name.lower() != "test" or has_list or any(p.is_dir() for p in path.iterdir()):
            return path
    return None


def _order_classes(
    train: Path, train_list: list[tuple[str, int]] | None, remarks: list[str]
) -> list[str]:
    """Return the names of the classes in the order of their labels.

    `train_list` is the content of `train.txt`, or None without it. If its images are not in class
    folders, the classes are numbers. Raises Damaged if labels and class folders do not match.
    """
    if train_list is None:
        return _list_classes(train)
    path, label_of, name_of = train.with_suffix(".txt"), dict[str, int](), dict[int, str]()
    for key, label in train_list:
        name = key.split("/")[0] if "/" in key else str(label)
        if label_of.setdefault(name, label) != label:
            raise Damaged(f"{path}: the folder {name} has the labels {label_of[name]} and {label}")
        if name_of.setdefault(label, name) != name:
            raise Damaged(f"{path}: label {label} has the folders {name_of[label]} and {name}")
    missing = next(label for label in range(len(name_of) + 1) if label not in name_of)
    if missing < len(name_of):
        raise Damaged(f"{path} has no image with label {missing}: labels must begin at 0")
    if all("/" in key for key, _ in train_list):
        folders = folder.list_class_names(train)
        if unlisted := [name for name in folders if name not in label_of]:
            remarks.append(f"{path}: folders without a line in it are left out: {len(unlisted)}")
    return [name_of[label] for label in range(len(name_of))]


def _check_listed_labels(path: Path, listed: list[tuple[str, int]], classes: list[str]) -> None:
    """Raise Damaged if the labels of a list are not those of the classes."""
    label_of = {name: label for label, name in enumerate(classes)}
    for number, (key, label) in enumerate(listed, 1):
        if label >= len(classes):
            raise Damaged(
                f"{path}, line {number}: label {label}, but there are {len(classes)} classes"
            )
        name = key.split("/")[0]
        if label_of.get(name, label) != label:
            raise Damaged(
                f"{path}, line {number}: label {label}, but the class {name} has the label "
                f"{label_of[name]}"
            )
    if all(label for _, label in listed):
        raise Damaged(f"{path} has no image with label 0: labels must begin at 0")


def _read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text in UTF-8. Raises Damaged if the file or a line is too long.

    A file that claims to be large needs no memory before: it may have a hole instead of lines.
    """
    read_bytes = 0
    with open_file(check_file(path), "rb", follow_link=True) as file:
        for line in iter(lambda: file.readline(MAX_LINE_BYTES), b""):
            read_bytes += len(line)
            is_cut = len(line) == MAX_LINE_BYTES and not line.endswith(b"\n")
            if is_cut or read_bytes > _MAX_LIST_BYTES:
                raise Damaged(f"{path} is too long, or has a line that is too long")
            try:
                yield line.decode("utf-8-sig" if read_bytes == len(line) else "utf-8").rstrip("\n")
            except UnicodeDecodeError as error:
                raise Damaged(f"{path} is not a text in UTF-8: {error}") from error


def _read_label_list(path: Path, root: Path) -> list[tuple[str, int]]:
    """Return the name and label of each image in the list `path`. Names are paths below `root`."""
    labelled_files = []
    for number, line in enumerate(_read_lines(path), 1):
        name, _, label = line.replace("\t", " ").rstrip(" \r").rpartition(" ")
        name, location = name.rstrip(" "), f"{path}, line {number}"
        if not name or not (label.isascii() and label.isdecimal()) or len(label) > 9:
            raise Damaged(f'{location}: {line[:80]!r} is not "NAME LABEL"')
        if name.startswith("/") or ".." in name.split("/"):
            raise Damaged(f"{location}: {name[:80]!r} is not a path in the folder {root.name}")
        if not (root / name).is_file():
            raise Damaged(
                f"{location}: {root / name} does not exist: is it the list of another split?"
            )
        labelled_files.append((name, int(label)))
    if not labelled_files:
        raise Damaged(f"{path} is empty")
    return labelled_files


class _ShiftedLabels(Sequence[Sample]):
    """Samples whose labels are smaller by `offset`."""

    def __init__(self, samples: Sequence[Sample], offset: int) -> None:
        self.samples, self.offset = samples, offset

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        sample = self.samples[index]
        if sample.label < self.offset:
            raise Damaged(
                f"label {sample.label} of {sample.key} is less than --label-offset {self.offset}"
            )
        return replace(sample, label=sample.label - self.offset)


def shift_labels(source: Source, offset: int) -> Source:
    """Return the source with labels that are smaller by `offset`.

    Raises UsageError if the source has names of classes, because their labels begin at 0.
    """
    if source.classes:
        raise UsageError("--label-offset works only with FORMAT:DIR, not with named classes")
    splits: dict[Split, Sequence[Sample]] = {
        split: _ShiftedLabels(samples, offset) for split, samples in source.splits.items()
    }
    return replace(source, splits=splits)


def name_classes(source: Source, path: Path) -> Source:
    """Return the source with the names of classes in `path`: one in a line, in label order.

    Raises UsageError if the source has names of classes already.
    """
    if source.classes:
        raise UsageError("--classes-file works only with FORMAT:DIR, not with named classes")
    names: dict[str, int] = {}
    for number, line in enumerate(_read_lines(path), 1):
        name = line.strip(" \t\r")
        if name in ("", ".", "..") or set(name) & set("/\0\t\r"):
            raise Damaged(f"{path}, line {number}: {name[:80]!r} is no name of a class")
        if names.setdefault(name, number) != number:
            raise Damaged(f"{path}, line {number}: the class {name[:80]} occurs twice")
    if not names:
        raise Damaged(f"{path} is empty")
    return replace(source, classes=tuple(names))


def open_data_set_as_source(
    optional_format_and_folder: str, selection: foreign.Selection | None = None
) -> Source:
    """Open an existing data set: a prepared folder, or FORMAT:FOLDER from another tool.

    `selection` is what to read from TFRecord or RecordIO files. Raises UsageError if it cannot be
    applied to this source.

    - A prepared folder keeps its number of channels.
    - `folder:FOLDER` always has 3 channels.
    - In any other FORMAT:FOLDER, the first training image determines the number of channels.
    """
    format_name, colon, rest = optional_format_and_folder.partition(":")
    selection = selection or foreign.Selection()
    if colon and format_name in prepared.FORMATS:
        root = expand_user(rest)
        selection.check(format_name)
        if format_name == "folder":
            return open_image_folder(root)
        if format_name == "raw":
            raise Damaged(f"{root}: raw pixels need a manifest: write the folder without raw:")
        train, test, remarks = foreign.open_splits(root, format_name, selection)
        splits: dict[Split, Sequence[Sample]] = {"train": train}
        if test is not None:
            splits["test"] = test
        if not len(splits["train"]):
            raise Damaged(f"{root} has no training images")
        channels = _count_channels(splits["train"])
        return Source(
            root.resolve().name,
            None,
            splits,
            channels,  # type: ignore[arg-type]
            f"{format_name} files",
            remarks=remarks,
            origin=str(root.resolve()),
            selection=selection,
        )
    root = expand_user(optional_format_and_folder)
    if not root.is_dir():
        formats = ", ".join(name for name in prepared.FORMATS if name != "raw")
        raise Damaged(f"{root} is not a folder, or FORMAT:FOLDER with one of {formats}")
    if not (root / "manifest.json").exists():
        return _open_folder_without_manifest(root, selection)
    selection.check(None)
    manifest = Manifest.read(root)
    prepared_set = prepared.open_prepared(root)
    preprocessing = manifest.preprocessing
    return Source(
        manifest.name,
        manifest.classes,
        prepared_set.splits,  # type: ignore[arg-type]
        preprocessing.channels,
        manifest.source,
        before=preprocessing,
        origin=str(root.resolve()),
        selection=foreign.Selection(manifest.patterns, manifest.features),
    )


def _has_folders_with_images(root: Path) -> bool:
    folders = [path for path in root.iterdir() if path.is_dir()]
    return any(
        path.name.lower().endswith(_SUFFIXES)
        and not folder.is_left_behind(path.name)
        and path.is_file()
        for place in folders
        if not folder.is_left_behind(place.name)
        for path in iterate_below(place)
    )


def _count_channels(samples: Sequence[Sample]) -> int:
    """Return the number of channels of the first sample that can be read.

    Raises Damaged if no sample can be read.
    """
    first_error = None
    for index in range(len(samples)):
        try:
            return len(pictures.decode_pixels(samples[index]))
        except Damaged as error:
            first_error = first_error or error
    assert first_error
    raise first_error


def _open_folder_without_manifest(root: Path, selection: foreign.Selection) -> Source:
    """Open a folder that is no prepared data set: files of another tool, or class folders."""
    if format_name := foreign.recognize_format(root):
        if _has_folders_with_images(root):
            raise Damaged(
                f"{root} has files of {format_name} and folders with images: write which ones to "
                f"read, {format_name}:{root} or folder:{root}"
            )
        return open_data_set_as_source(f"{format_name}:{root}", selection)
    selection.check(None)
    try:
        return open_image_folder(root)
    except Damaged as error:
        raise Damaged(
            f"{root} is neither a prepared data set (it has no manifest.json) nor class folders "
            f"({error}). For files of another tool, write FORMAT:{root}, such as tfrecord:{root}"
        ) from error


# The function that opens each named data set in a folder. The digits need no folder.
PUBLISHED: dict[str, Callable[[Path], Source]] = {
    "mnist": open_mnist,
    "cifar10": open_cifar10,
    "imagenet": open_imagenet,
    "folder": open_image_folder,
}


# Where archives and other tools put each data set below the folder that a user may name instead.
_NESTED = {
    "mnist": ("*/train-images*", "*/raw/train-images*"),
    "cifar10": ("*/data_batch_1.bin",),
    "imagenet": ("*/train", "Data/CLS-LOC/train", "ILSVRC/Data/CLS-LOC/train"),
}
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".7z", ".rar")


def _find_place(name: str, root: Path) -> str | None:
    """Return where the data set `name` is instead of the top of the folder `root`, as a question.

    Returns None if the folder has a file or folder of the data set at its top, or none at all.
    """
    patterns = _NESTED.get(name, ())
    if not root.is_dir() or any(any(root.glob(Path(each).name)) for each in patterns):
        return None
    places = sorted({path.parent for each in patterns for path in root.glob(each)})
    if places:
        return f"is {places[0]} the data set?"
    archives = sorted(path.name for path in root.iterdir() if path.name.endswith(_ARCHIVES))
    return f"unpack {archives[0]} first" if archives else None


def open_published(name: str, root: Path, class_count: int | None = None) -> Source:
    """Open the data set `name` of PUBLISHED in the folder `root`.

    `class_count` is the number of ImageNet classes to open; None opens all. Raises Damaged with the
    right command if `root` has files of another tool instead.
    """
    try:
        return open_imagenet(root, class_count) if class_count else PUBLISHED[name](root)
    except Damaged as error:
        if hint := _find_place(name, root):
            raise Damaged(f"{error}: {hint}") from error
        is_other = root.is_dir() and not _has_folders_with_images(root)
        if not is_other or not (format_name := foreign.recognize_format(root)):
            raise
        raise Damaged(
            f"{error}. {root} has files of {format_name}: "
            f"use `xfbench data convert {format_name}:{root} TO`"
        ) from error
