"""Data sets as users have them on disk, given to `xfbench data` on the command line."""

import gzip
import importlib
import io
import json
import os
import pickle
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.datasets.idx_files import encode_idx
from xfbench.datasets import encoding, sources, tfrecord
from xfbench.datasets.encoding import encode_png
from xfbench.worker.pictures import decode_pixels
from xfbench.worker.prepared import open_prepared
from xfbench.worker.samples import Sample


@pytest.fixture
def prepare(run_inline, tmp_path):
    """A function: the manifest that `data prepare KIND --from FOLDER` prints, and its messages."""

    def run(kind, folder, *options, command=("prepare",)):
        source = [str(folder), tmp_path / "out"] if "convert" in command else None
        line = source or [kind, "--from", folder, "--to", tmp_path / "out"]
        outcome = run_inline("data", *command, *line, "--json", *options)
        assert outcome.returncode == 0, outcome.stderr
        return json.loads(outcome.stdout), outcome.stderr

    return run


@pytest.fixture
def refuse(run_inline, tmp_path):
    """A function: the only line that `data prepare KIND --from FOLDER` prints when it refuses."""

    def run(kind, folder, *options):
        line = ["data", "prepare", kind, "--from", folder, "--to", tmp_path / "out", *options]
        outcome = run_inline(*line)
        assert outcome.returncode == 2 and "Traceback" not in outcome.stderr, outcome.stderr
        return outcome.stderr

    return run


def count_samples(manifest):
    return {name: split["samples"] for name, split in manifest["splits"].items()}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def change_format(content, kind, mode="RGB"):
    file = io.BytesIO()
    Image.open(io.BytesIO(content)).convert(mode).save(file, kind)
    return file.getvalue()


@pytest.mark.case("MNIST with folders named like its files")
def test_mnist_files_may_lie_in_folders_of_their_names(prepare, tmp_path):
    for prefix, count in (("train", 5), ("t10k", 2)):
        for name, values in (
            (f"{prefix}-images-idx3-ubyte", np.full((count, 28, 28), 9)),
            (f"{prefix}-labels-idx1-ubyte", np.arange(count)),
        ):
            write(tmp_path / "in" / name / name, encode_idx(values))
    (tmp_path / "in" / "train-images.idx3-ubyte").mkdir()
    assert count_samples(prepare("mnist", tmp_path / "in")[0]) == {"train": 5, "test": 2}


@pytest.mark.case("Hidden folder that a notebook left behind")
@pytest.mark.parametrize("name", [".ipynb_checkpoints", "__MACOSX", ".git", "@eaDir"])
def test_folders_of_other_tools_are_no_classes(prepare, tmp_path, picture, name):
    for class_name in ("birds", "fish", name):
        write(tmp_path / "in" / class_name / "3.jpg", picture(1))
    write(tmp_path / "in" / "fish" / "._3.jpg", b"\0\5\x16\7")  # AppleDouble
    manifest, _ = prepare("folder", tmp_path / "in")
    assert manifest["classes"] == ["birds", "fish"] and count_samples(manifest) == {"train": 2}


@pytest.mark.case("HTML page instead of MNIST")
def test_a_page_in_place_of_a_file_is_refused_by_name(refuse, tmp_path):
    write(tmp_path / "in" / "train-images-idx3-ubyte.gz", b"<!doctype html><p>Forbidden")
    assert "train-images-idx3-ubyte.gz is not a complete gzip file" in refuse(
        "mnist", tmp_path / "in"
    )


@pytest.mark.case("Python version of CIFAR-10")
def test_pickled_batches_are_not_read(refuse, tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    for name in ("data_batch_1", "test_batch"):
        write(tmp_path / "in" / name, pickle.dumps(Bomb()))
    assert "data_batch_1.bin is missing" in refuse("cifar10", tmp_path / "in")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.case("Validation list with CRLF line ends")
def test_a_list_may_have_the_line_ends_of_windows(prepare, tmp_path, picture):
    for name in ("train/ant/1.JPEG", "train/bee/1.JPEG", "val/x.JPEG", "val/y.JPEG"):
        write(tmp_path / "in" / name, picture(4))
    write(tmp_path / "in" / "val.txt", b"x.JPEG 1\r\ny.JPEG 0\r\n")
    manifest, _ = prepare("imagenet", tmp_path / "in", "--size", "32")
    assert manifest["classes"] == ["ant", "bee"]
    assert count_samples(manifest) == {"train": 2, "test": 2}


@pytest.mark.case("CMYK images")
def test_images_for_print_are_converted(prepare, tmp_path, picture):
    for name in ("train/ant/1.JPEG", "train/bee/1.JPEG", "val/ant/1.JPEG", "val/bee/2.JPEG"):
        write(tmp_path / "in" / name, change_format(picture(4), "JPEG", "CMYK"))
    manifest, _ = prepare("imagenet", tmp_path / "in", "--size", "32")
    assert manifest["shape"] == [3, 32, 32] and count_samples(manifest)["train"] == 2


@pytest.mark.case("Which ResNet it is")
@pytest.mark.parametrize("name", ["resnet50", "resnet101"])
def test_workload_show_says_where_the_stride_is(run_inline, name):
    text = " ".join(run_inline("workload", "show", name).stdout.split())
    assert "v1 in its Caffe definition: the first 1×1 convolution of a stage has the stride" in text


@pytest.mark.case("Images in other formats and in nested folders")
def test_other_formats_and_nested_folders_are_read(prepare, tmp_path, picture):
    plain = picture(7, kind="PNG")
    for name, kind in (("1.webp", "WEBP"), ("deep/er/2.BMP", "BMP"), ("3.tif", "TIFF")):
        content = change_format(plain, kind)
        write(tmp_path / "in" / "ant" / name, content)
    write(tmp_path / "in" / "ant" / "named.jpg", change_format(plain, "GIF"))
    write(tmp_path / "in" / "bee" / "1.png", plain)
    write(tmp_path / "in" / "bee" / "notes.txt", b"two bees")
    manifest, messages = prepare("folder", tmp_path / "in", "--format", "folder")
    assert count_samples(manifest) == {"train": 5}
    assert "files without the name of an image are left out: 1, such as bee/notes.txt" in messages
    samples = open_prepared(tmp_path / "out").splits["train"]
    assert all(sample.image[:2] in (b"\xff\xd8", b"\x89P") for sample in samples)


@pytest.mark.parametrize("kind", ["WEBP", "TIFF", "GIF", "BMP"])
def test_damaged_images_of_other_formats_are_refused(refuse, tmp_path, picture, kind):
    write(tmp_path / "in" / "ant" / "1.png", picture(1, kind="PNG"))
    write(tmp_path / "in" / "bee" / "1.tif", change_format(picture(1), kind)[:60])
    assert "bee/1.tif" in refuse("folder", tmp_path / "in")


def test_images_with_several_pictures_or_deep_pixels_are_refused(refuse, tmp_path, picture):
    path = tmp_path / "in" / "ant" / "1.tiff"
    path.parent.mkdir(parents=True)
    Image.new("F", (8, 8)).save(path, "TIFF")
    assert "1.tiff has pixels of more than 8 bits" in refuse("folder", tmp_path / "in")
    pages = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    pages[0].save(path, "TIFF", save_all=True, append_images=pages[1:])
    assert "1.tiff has 2 pictures, not one" in refuse("folder", tmp_path / "in")


@pytest.mark.case("Symbolic links inside a source")
def test_links_inside_a_source_are_followed(prepare, tmp_path, picture):
    for class_name in ("ant", "bee"):
        write(tmp_path / "full" / class_name / "1.jpg", picture(1))
    (tmp_path / "in" / "train").mkdir(parents=True)
    (tmp_path / "in" / "train" / "ant").symlink_to(tmp_path / "full" / "ant")
    (tmp_path / "in" / "train" / "bee").mkdir()
    (tmp_path / "in" / "train" / "bee" / "2.jpg").symlink_to(tmp_path / "full" / "bee" / "1.jpg")
    (tmp_path / "in" / "train" / "bee" / "again").symlink_to(tmp_path / "in" / "train" / "bee")
    (tmp_path / "in" / "train" / "bee" / "more").symlink_to(tmp_path / "full" / "bee")
    assert count_samples(prepare("folder", tmp_path / "in")[0]) == {"train": 3}


@pytest.mark.case("Classes without test images")
def test_a_class_without_test_images_is_reported(prepare, tmp_path, picture):
    for name in ("train/ant/1.jpg", "train/bee/1.jpg", "val/ant/1.jpg"):
        write(tmp_path / "in" / name, picture(1))
    manifest, messages = prepare("folder", tmp_path / "in")
    assert count_samples(manifest) == {"train": 2, "test": 1}
    assert "val has no images of 1 of 2 classes, such as bee" in messages


@pytest.mark.case("Class folders given to `data convert`")
def test_class_folders_can_be_converted(prepare, run_inline, tmp_path, picture):
    for name in ("ant", "bee"):
        write(tmp_path / "in" / name / "1.jpg", picture(1))
    manifest, messages = prepare("", tmp_path / "in", command=("convert",))
    assert manifest["classes"] == ["ant", "bee"]
    assert "in: class folders: 2 classes, no test images\n" in messages
    (tmp_path / "in" / "ant").rename(tmp_path / "else")
    (tmp_path / "in" / "bee").rename(tmp_path / "other")
    outcome = run_inline("data", "convert", tmp_path / "in", tmp_path / "copy")
    assert outcome.returncode == 2 and "write FORMAT:" in outcome.stderr


def test_a_gzip_file_may_have_a_plain_folder_beside_it(prepare, mnist):
    root = mnist(3, 2)
    path = root / "train-images-idx3-ubyte"
    (root / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    path.mkdir()
    assert count_samples(prepare("mnist", root)[0]) == {"train": 3, "test": 2}


@pytest.mark.case("Resuming from another data set")
@pytest.mark.parametrize("change", ["folder", "content", "names"])
def test_an_interrupted_run_does_not_continue_with_another_source(
    prepare, refuse, tmp_path, picture, change
):
    root = tmp_path / "in"
    for number in range(40):
        write(root / "train" / "ant" / f"{number:02d}.jpg", picture(number))
    write(root / "val" / "ant" / "1.jpg", picture(100)[:300])
    assert "1.jpg" in refuse("folder", root, "--as", "ants", "--size", "8")  # train is finished
    write(root / "val" / "ant" / "1.jpg", picture(100))
    if change == "folder":
        root = root.rename(tmp_path / "other")
    for number in range(40):
        path = root / "train" / "ant" / f"{number:02d}.jpg"
        if change == "content":
            path.write_bytes(picture(200 + number))
        elif change == "names":
            path.rename(path.with_name(f"x{number}.jpg"))
    manifest, messages = prepare("folder", root, "--as", "ants", "--size", "8")
    assert "starting from the beginning" in messages
    (tmp_path / "out").rename(tmp_path / "first")
    assert prepare("folder", root, "--as", "ants", "--size", "8")[0]["splits"] == manifest["splits"]


@pytest.mark.case("Truncated images")
def test_damaged_images_can_be_skipped(prepare, refuse, tmp_path, picture, monkeypatch):
    monkeypatch.setattr("xfbench.datasets.writing._SYNC_INTERVAL", 4)
    root = tmp_path / "in"
    for number in range(20):
        content = picture(number)
        write(root / "ant" / f"{number:02d}.jpg", content[:-150] if number % 6 == 2 else content)
    assert "not a complete JPEG" in refuse("folder", root)
    manifest, messages = prepare("folder", root, "--skip-damaged", "--size", "16")
    names = [f"ant/{number:02d}.jpg" for number in (2, 8, 14)]
    assert sorted(manifest["splits"]["train"]["skipped"]) == names
    assert count_samples(manifest) == {"train": 17}
    assert all(f"left out: {name}" in messages for name in names)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "manifest.json",
        "train.pixels",
        "train.samples",
    }


def test_a_run_that_skipped_images_continues_in_the_right_place(
    prepare, run_inline, tmp_path, picture, monkeypatch
):
    monkeypatch.setattr("xfbench.datasets.writing._SYNC_INTERVAL", 4)
    root = tmp_path / "in"
    for number in range(20):
        content = picture(number)
        write(
            root / "train" / "ant" / f"{number:02d}.jpg",
            content[:-150] if number % 6 == 2 else content,
        )
    write(root / "val" / "ant" / "x\ty.jpg", picture(1))  # its name ends the run
    line = ["data", "prepare", "folder", "--from", root, "--to", tmp_path / "out", "--size", "16"]
    assert run_inline(*line, "--skip-damaged").returncode == 2
    (root / "val" / "ant" / "x\ty.jpg").rename(root / "val" / "ant" / "xy.jpg")
    listing = tmp_path / "out.partial" / "train.samples"
    listing.write_text("".join(listing.read_text().splitlines(True)[:9]))
    settings = tmp_path / "out.partial" / "making.json"

    stored = json.loads(settings.read_bytes())
    source = sources.open_image_folder(root)
    stored["files"] = {name: sources.listing_digest(s) for name, s in source.splits.items()}
    settings.write_text(json.dumps(stored))
    resumed, messages = prepare("folder", root, "--size", "16", "--skip-damaged")
    assert "beginning" not in messages
    (tmp_path / "out").rename(tmp_path / "first")
    assert prepare("folder", root, "--size", "16", "--skip-damaged")[0] == {
        **resumed,
        "folder": str(tmp_path / "out"),
    }


def test_a_run_without_skip_damaged_does_not_continue_one_with_it(refuse, tmp_path, picture):
    root = tmp_path / "in"
    write(root / "train" / "ant" / "1.jpg", picture(1))
    write(root / "train" / "ant" / "2.jpg", picture(2)[:-100])
    write(root / "val" / "ant" / "x\ty.jpg", picture(3))  # its name ends the run
    assert "has a tab or a line end" in refuse("folder", root, "--skip-damaged")
    message = refuse("folder", root)
    assert "starting from the beginning" in message and "2.jpg: not a complete" in message


def test_a_source_without_any_readable_image_is_refused(refuse, tmp_path, picture):
    write(tmp_path / "in" / "ant" / "1.jpg", picture(1)[:300])
    assert "no train image can be read" in refuse("folder", tmp_path / "in", "--skip-damaged")


def write_records(form, folder, count, first=0, labels=None):
    """A file of `count` samples in that format, with the name that our writer gives it."""
    folder.mkdir(parents=True, exist_ok=True)
    module = importlib.import_module(f"xfbench.datasets.{form}")
    writer = module.Writer(folder, "train", 0)
    for number in range(first, first + count):
        pixels = np.full((3, 8, 8), number, np.uint8)
        label = number % 3 if labels is None else labels[number - first]
        writer.add(Sample(f"image{number}", label, pixels))
    writer.close()
    names = {"tfrecord": "train.tfrecord", "recordio": "train.rec", "lmdb": "train.lmdb"}
    return folder / names[form]


def place_records(form, path, count, **settings):
    """The file (or database) of `write_records` at `path`, without an index."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = write_records(form, path.parents[0] / "new", count, **settings)
    written.rename(path)
    for left in (path.parents[0] / "new").iterdir():
        left.unlink()
    (path.parents[0] / "new").rmdir()


@pytest.mark.case("Validation sets by their usual names", "TFRecord shards of other tools")
@pytest.mark.parametrize(
    "train, test",
    [
        ("train-{:05d}-of-00002", "validation-{:05d}-of-00002"),
        ("cifar-train.tfrecord-{:05d}-of-00002", "cifar-test.tfrecord-{:05d}-of-00002"),
        ("birds_training_{:05d}-of-00002.tfrecord", "birds_val_{:05d}-of-00002.tfrecord"),
        ("train_{}.tfrecords", "valid_{}.tfrecords"),
        ("train/{:02d}-64x64-7.tfrec", "val/{:02d}-64x64-7.tfrec"),
    ],
)
def test_shards_of_any_prefix_are_read(prepare, tmp_path, train, test):
    root = tmp_path / "in"
    for shard in range(2):
        place_records("tfrecord", root / train.format(shard), 3, first=3 * shard)
        place_records("tfrecord", root / test.format(shard), 1, first=10 + shard)
        (root / f"{train.format(shard)}.idx").write_text("0 99\n")
        (root / f"{train.format(shard)}").with_name(f"._{shard}.tfrecord").write_bytes(b"\0\5")
    (root / "labels.txt").write_text("0:ant\n")
    manifest, _ = prepare("", f"tfrecord:{root}", command=("convert",))
    assert count_samples(manifest) == {"train": 6, "test": 2}
    samples = open_prepared(tmp_path / "out").splits["train"]
    assert [int(sample.image[0, 0, 0]) for sample in samples] == list(range(6))


@pytest.mark.case("LMDB as Caffe's tools leave it")
@pytest.mark.parametrize(
    "train, test", [("ilsvrc12_train_lmdb", "ilsvrc12_val_lmdb"), ("a_train.lmdb", "a_test.lmdb")]
)
def test_databases_are_found_by_the_words_in_their_names(prepare, tmp_path, train, test):
    place_records("lmdb", tmp_path / "in" / train, 4)
    place_records("lmdb", tmp_path / "in" / test, 2)
    (tmp_path / "in" / train / "lock.mdb").write_bytes(b"lock")
    source = f"lmdb:{tmp_path / 'in'}"
    manifest, _ = prepare("", source, command=("convert",))
    assert count_samples(manifest) == {"train": 4, "test": 2}
    (tmp_path / "out").rename(tmp_path / "first")
    manifest, messages = prepare("", tmp_path / "in", command=("convert",))
    assert count_samples(manifest) == {"train": 4, "test": 2}
    assert f"lmdb: training set {train}, test set {test}\n" in messages
    (tmp_path / "out").rename(tmp_path / "second")
    manifest, messages = prepare("", f"{source}/{train}", command=("convert",))
    assert count_samples(manifest) == {"train": 4}
    assert f"training set {train}, no test set" in messages


@pytest.mark.case("RecordIO without index, in parts, with label vectors")
@pytest.mark.parametrize(
    "names",
    [["train.rec"], ["train_1.rec", "train_2.rec"], ["train.rec.part000", "train.rec.part001"]],
)
def test_recordio_is_read_without_an_index_and_in_parts(prepare, tmp_path, names):
    for number, name in enumerate(names):
        place_records("recordio", tmp_path / "in" / name, 3, first=3 * number)
    place_records("recordio", tmp_path / "in" / "val.rec", 1)
    manifest, _ = prepare("", f"recordio:{tmp_path / 'in'}", command=("convert",))
    assert count_samples(manifest) == {"train": 3 * len(names), "test": 1}
    samples = open_prepared(tmp_path / "out").splits["train"]
    assert [int(sample.image[0, 0, 0]) for sample in samples] == list(range(3 * len(names)))


def convert(run_inline, tmp_path, source):
    outcome = run_inline("data", "convert", source, tmp_path / "out")
    assert outcome.returncode == 2 and "Traceback" not in outcome.stderr, outcome.stderr
    return outcome.stderr


def test_label_vectors_are_refused(run_inline, tmp_path):
    vector = struct.pack("<IfQQ", 5, 0.0, 0, 0) + struct.pack("<5f", 4, 5, 1, 2, 3)
    data = vector + encode_png(np.zeros((3, 4, 4), np.uint8))
    head = struct.pack("<II", 0xCED7230A, len(data))
    write(tmp_path / "in" / "train.rec", head + data + bytes(-len(data) % 4))
    message = convert(run_inline, tmp_path, f"recordio:{tmp_path / 'in'}")
    assert "a vector of 5 labels, not the label of one class" in message


@pytest.mark.parametrize(
    "names, words",
    [
        (["a-train.tfrecord", "b-train.tfrecord"], "two possible training sets, a-train.tfrecord"),
        (["train.tfrecord", "a-val.tfrecord", "b-val.tfrecord"], "two possible test sets"),
        (["train-00000-of-00002", "train-00002-of-00002"], "shards are missing"),
        (["train/a-00001-of-00002"], "shards are missing"),
        (["train-00000-of-00002", "train-00001-of-00003"], "shards are missing"),
        (["train_0.tfrecord", "train_2.tfrecord"], "shards are missing"),
        (["test.tfrecord"], "has no training set"),
        (["train-val.tfrecord"], "rename it"),
        (["train.tfrecord", "train-00000-of-00001.tfrecord"], "without a number"),
    ],
)
def test_doubtful_names_are_refused(run_inline, tmp_path, names, words):
    for name in names:
        place_records("tfrecord", tmp_path / "in" / name, 1)
    assert words in convert(run_inline, tmp_path, f"tfrecord:{tmp_path / 'in'}")


def test_the_only_file_is_the_training_set_and_other_sets_are_named(prepare, tmp_path):
    place_records("tfrecord", tmp_path / "in" / "birds.tfrecord", 2)
    source = f"tfrecord:{tmp_path / 'in'}"
    manifest, messages = prepare("", source, command=("convert",))
    assert count_samples(manifest) == {"train": 2} and "no name says train" in messages
    (tmp_path / "out").rename(tmp_path / "first")
    for name in ("train", "test", "val"):
        place_records("tfrecord", tmp_path / "in" / f"{name}.tfrecord", 1)
    manifest, messages = prepare("", source, command=("convert",))
    assert count_samples(manifest) == {"train": 1, "test": 1}
    assert "left out: val.tfrecord, birds.tfrecord" in messages


def test_compressed_records_are_named(run_inline, tmp_path):
    place_records("tfrecord", tmp_path / "in" / "train.tfrecord", 2)
    path = tmp_path / "in" / "train.tfrecord"
    for compress in (gzip.compress, zlib.compress):
        content = path.read_bytes()
        path.write_bytes(compress(content))
        message = convert(run_inline, tmp_path, f"tfrecord:{tmp_path / 'in'}")
        assert "train.tfrecord is compressed" in message
        path.write_bytes(content)


@pytest.mark.parametrize("name", ["train.tfrecord", "train-00000-of-00001"])
def test_entries_that_are_not_files_are_refused(run_inline, tmp_path, name):
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in" / name)
    message = convert(run_inline, tmp_path, f"tfrecord:{tmp_path / 'in'}")
    assert f"{name} is not a file" in message


def write_examples(path, *examples):
    """A TFRecord file of Examples, each a dictionary of numbers and bytes."""
    content = b""
    for features in examples:
        entries = b"".join(
            tfrecord._encode_number_feature(name, value)
            if isinstance(value, int)
            else tfrecord._encode_bytes_feature(name, value)
            for name, value in features.items()
        )
        data = encoding.encode_bytes_field(1, entries)
        length = struct.pack("<Q", len(data))
        content += length + tfrecord._masked_crc(length) + data + tfrecord._masked_crc(data)
    write(path, content)


def test_features_of_other_tools_are_read(prepare, run_inline, tmp_path):
    pixels = np.random.RandomState(0).randint(0, 256, (4, 6, 3)).astype(np.uint8)
    png = encode_png(pixels.transpose(2, 0, 1))
    shape = {"height": 4, "width": 6, "depth": 3}
    write_examples(
        tmp_path / "in" / "train.tfrecord",
        {"image": png, "label": 0, "image/filename": b"a.png"},
        {"image_raw": pixels.tobytes(), "label": 1, "image/filename": b"a.png", **shape},
        {"image/encoded": png, "image/class/label": 2, "label": 7, "image/filename": b"a.png"},
        {"image": png, "class": 1, "id": b"x"},
    )
    source = f"tfrecord:{tmp_path / 'in'}"
    prepare("", source, "--format", "tfrecord", command=("convert",))
    samples = list(open_prepared(tmp_path / "out").splits["train"])
    assert [sample.label for sample in samples] == [0, 1, 2, 1]
    assert [sample.key for sample in samples[:3]] == ["a.png", "a-2.png", "a-3.png"]
    assert all(
        np.array_equal(decode_pixels(sample), pixels.transpose(2, 0, 1)) for sample in samples
    )
    (tmp_path / "out" / "manifest.json").unlink()
    (tmp_path / "out").rename(tmp_path / "first")
    for features, words in (
        ({"image": png, "image_raw": png, "label": 0}, "it has image and image_raw"),
        ({"photo": png, "label": 0}, "it has no feature image/encoded, image, image_raw, encoded"),
        ({"image_raw": pixels.tobytes()[1:], "label": 0, **shape}, "neither JPEG nor PNG"),
        ({"image": bytes(24), "label": 0, "height": 4, "width": 3, "depth": 2}, "neither JPEG nor"),
    ):
        write_examples(tmp_path / "in" / "train.tfrecord", features)
        assert words in convert(run_inline, tmp_path, source)


def sample_values(folder, split="train"):
    """The first byte of each image, as `write_records` numbers them."""
    return [int(sample.image[0, 0, 0]) for sample in open_prepared(folder).splits[split]]


@pytest.mark.case("TFRecord shards of other tools")
@pytest.mark.parametrize(
    "names, patterns, counts",
    [  # each file has three samples, the first a multiple of 3
        (["part-r-0", "part-r-1", "part-r-1.idx", "_SUCCESS"], ["part-r-*"], [[0, 3], None]),
        (["train", "val", "train.idx"], ["train*"], [[0], None]),
        (["train.tfrecord", "train-0-of-1", "val-0-of-1"], ["*-0-of-1"], [[3], [6]]),
        (
            ["train-0-of-2", "train-1-of-2", "train-0-of-1", "validation-0-of-1"],
            ["train-*-of-2", "validation-*"],
            [[0, 3], [9]],
        ),
        (["a/x-1.bin", "a/x-0.bin", "b/test-0.bin"], ["*/*.bin"], [[3, 0], [6]]),
        (["a/x-1.bin", "a/x-0.bin", "a/y.bin"], ["a/x-*"], [[3, 0], None]),
        (["a/train/1.bin", "a/train/0.bin", "a/val/0.bin"], ["**/*.bin"], [[3, 0], [6]]),
        (["train-0-of-3", "train-1-of-3", "train-2-of-3"], ["train-[12]-of-*"], [[3, 6], None]),
    ],
)
def test_patterns_select_record_files(prepare, tmp_path, names, patterns, counts):
    for number, name in enumerate(names):
        place_records("tfrecord", tmp_path / "in" / name, 3, first=3 * number)
    options = [word for pattern in patterns for word in ("--pattern", pattern)]
    source = f"tfrecord:{tmp_path / 'in'}"
    manifest, _ = prepare("", source, *options, command=("convert",))
    assert manifest["patterns"] == patterns
    train, test = counts
    assert sample_values(tmp_path / "out")[::3] == train
    assert ("test" in manifest["splits"]) is (test is not None)
    assert test is None or sample_values(tmp_path / "out", "test")[::3] == test


@pytest.mark.parametrize(
    "names, options, words",
    [
        (
            ["train-0-of-3", "train-2-of-3", "train-1-of-2"],
            ["--pattern", "train-*-of-3"],
            "shards are missing from the sequence that begins with train-0-of-3",
        ),
        (
            ["a.bin", "b.bin"],
            ["--pattern", "train-*"],
            "--pattern train-* matches no tfrecord files in",
        ),
        (["a.bin", "b.bin"], ["--pattern", "c*", "--pattern", "a*"], "which has a.bin, b.bin"),
        (["xtrain-0"], ["--pattern", "train-*"], "matches no tfrecord files"),  # anchored
        (["a/train-0"], ["--pattern", "train-*"], "matches no tfrecord files"),
        (["a.bin"], ["--pattern", "../*"], "expected a pattern of paths below the source"),
        (["a.bin"], ["--pattern", "/tmp/*"], "expected a pattern of paths below the source"),
        (["a.bin"], ["--pattern", ""], "expected a pattern of paths below the source"),
        (["a.bin"], ["--features", "picture=x"], "expected image=NAME, label=NAME, or both"),
        (["a.bin"], ["--features", "image=x,image=y"], "expected image=NAME, label=NAME, or both"),
        (["a.bin"], ["--features", "image="], "expected image=NAME, label=NAME, or both"),
        (["a.bin"], ["--features", ""], "expected image=NAME, label=NAME, or both"),
    ],
)
def test_doubtful_selections_are_refused(run_inline, tmp_path, names, options, words):
    for name in names:
        place_records("tfrecord", tmp_path / "in" / name, 1)
    source = f"tfrecord:{tmp_path / 'in'}"
    outcome = run_inline("data", "convert", source, tmp_path / "out", *options)
    assert outcome.returncode == 2 and words in outcome.stderr, outcome.stderr


@pytest.mark.parametrize("form", ["folder", "lmdb", "recordio", "", "prepared"])
def test_selections_without_effect_are_refused(run_inline, tmp_path, picture, form):
    if form == "prepared":
        place_records("tfrecord", tmp_path / "a" / "train.tfrecord", 1)
        run_inline("data", "convert", f"tfrecord:{tmp_path / 'a'}", tmp_path / "in")
    else:
        write(tmp_path / "in" / "ant" / "1.jpg", picture(1))
    source = (
        f"{form}:{tmp_path / 'in'}" if form in ("folder", "lmdb", "recordio") else tmp_path / "in"
    )
    for option, value in (("--pattern", "a*"), ("--features", "label=x")):
        if (form, option) != ("recordio", "--pattern"):
            outcome = run_inline("data", "convert", source, tmp_path / "out", option, value)
            assert outcome.returncode == 2 and f"{option} works only with" in outcome.stderr


def test_patterns_select_recordio_files(prepare, tmp_path):
    for number, name in enumerate(("train_a.rec", "train_b.rec", "val.rec")):
        place_records("recordio", tmp_path / "in" / name, 3, first=3 * number)
    source = f"recordio:{tmp_path / 'in'}"
    options = ("--pattern", "train_b*", "--pattern", "val*")
    prepare("", source, *options, command=("convert",))
    assert sample_values(tmp_path / "out") == [3, 4, 5]
    assert sample_values(tmp_path / "out", "test") == [6, 7, 8]


@pytest.mark.case("TFRecord features with other names")
def test_features_may_have_any_name(prepare, run_inline, tmp_path, picture):
    features = {"image": picture(9), "jpg": picture(1), "label": 7, "cls, fine": 0}
    write_examples(tmp_path / "in" / "train.tfrecord", features, {**features, "label": 8})
    source = f"tfrecord:{tmp_path / 'in'}"
    manifest, _ = prepare("", source, "--features", "IMAGE=jpg", command=("convert",))
    assert manifest["features"] == {"image": "jpg"}
    [first, second] = open_prepared(tmp_path / "out").splits["train"]
    assert [first.label, second.label] == [7, 8]
    assert np.array_equal(decode_pixels(first), decode_pixels(Sample("", 0, picture(1))))
    del features["image"], features["label"]
    write_examples(tmp_path / "in" / "train.tfrecord", features)
    (tmp_path / "out").rename(tmp_path / "first")
    for names, words in (
        ("image=jpeg", "it has no feature jpeg, only cls, fine, jpg: choose one"),
        ("label=class", "it has no feature image/encoded, image, image_raw, encoded, only cls"),
        ("image=jpg", "it has no feature image/class/label, label, class, image/label, only cls"),
    ):
        for skip in ((), ("--skip-damaged",)):
            line = ["data", "convert", source, tmp_path / "out", "--features", names, *skip]
            outcome = run_inline(*line)
            assert outcome.returncode == 2, outcome.stderr
            assert f"train.tfrecord, record 0: {words}" in outcome.stderr


def test_a_feature_that_the_first_example_lacks_is_refused_at_once(run_inline, tmp_path, picture):
    with_feature = {"jpg": picture(1), "image": picture(1), "label": 0}
    without = {"image": picture(1), "label": 0}
    write_examples(tmp_path / "in" / "train.tfrecord", without, with_feature)
    line = ["data", "convert", f"tfrecord:{tmp_path / 'in'}", tmp_path / "out", "--skip-damaged"]
    outcome = run_inline(*line, "--features", "image=jpg")
    assert outcome.returncode == 2 and "it has no feature jpg, only image, label" in outcome.stderr


def test_a_damaged_example_before_the_first_readable_one_can_be_skipped(prepare, tmp_path, picture):
    path = tmp_path / "in" / "train.tfrecord"
    write_examples(path, {"jpg": picture(1), "n": 0}, {"jpg": picture(1), "n": 0})
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    options = ("--features", "image=jpg,label=n", "--skip-damaged")
    manifest, _ = prepare("", f"tfrecord:{tmp_path / 'in'}", *options, command=("convert",))
    assert count_samples(manifest) == {"train": 1}


@pytest.mark.case("Resuming from another data set")
@pytest.mark.parametrize(
    "first, second",
    [
        (["--features", "image=a"], ["--features", "image=b"]),
        (["--pattern", "train.*", "--pattern", "val.*"], ["--pattern", "*"]),
    ],
)
def test_an_interrupted_run_does_not_continue_with_another_selection(
    prepare, run_inline, tmp_path, picture, first, second
):
    same = {"a": picture(1), "b": picture(1), "image": picture(1), "label": 0}
    write_examples(tmp_path / "in" / "train.tfrecord", same)
    write_examples(tmp_path / "in" / "val.tfrecord", {**same, "image/filename": b"a\tb"})
    source = f"tfrecord:{tmp_path / 'in'}"
    outcome = run_inline("data", "convert", source, tmp_path / "out", *first)
    assert outcome.returncode == 2 and "its key" in outcome.stderr  # train is finished
    write_examples(tmp_path / "in" / "val.tfrecord", same)
    outcome = run_inline("data", "convert", source, tmp_path / "out", *second)
    assert outcome.returncode == 0 and "starting from the beginning" in outcome.stderr


def write_listed(root, picture, **lists):
    """Class folders "ant" and "bee" in `train` and `val`, and lists with these lines."""
    for name in ("train/ant/1.jpg", "train/bee/1.jpg", "val/ant/2.jpg", "val/bee/2.jpg"):
        write(root / name, picture(len(name)))
    for name, lines in lists.items():
        (root / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    return root


@pytest.mark.case("Labels of lists and of folders")
def test_the_order_of_a_list_holds_for_folders_too(prepare, tmp_path, picture):
    root = write_listed(tmp_path / "in", picture, train=["bee/1.jpg 0", "ant/1.jpg\t1"])
    manifest, _ = prepare("imagenet", root, "--format", "folder")
    assert manifest["classes"] == ["bee", "ant"]
    data_set = open_prepared(tmp_path / "out")
    labels = {s.key.split("/")[0]: s.label for split in data_set.splits.values() for s in split}
    assert labels == {"bee": 0, "ant": 1}
    (tmp_path / "out").rename(tmp_path / "first")
    assert prepare("imagenet", root, "--classes", "2")[0]["classes"] == ["bee", "ant"]


@pytest.mark.parametrize(
    "lists, words",
    [
        ({"train": ["ant/1.jpg 1", "bee/1.jpg 2"]}, "no image with label 0"),
        ({"train": ["ant/1.jpg 0", "bee/1.jpg 2"]}, "no image with label 1"),
        ({"train": ["ant/1.jpg 0", "ant/1.jpg 1"]}, "the folder ant has the labels 0 and 1"),
        ({"train": ["ant/1.jpg 0", "bee/1.jpg 0"]}, "label 0 has the folders ant and bee"),
        ({"val": ["ant/2.jpg 1", "bee/2.jpg 1"]}, "the class ant has the label 0"),
        ({"val": ["bee/2.jpg 1"]}, "no image with label 0"),
        ({"val": ["bee/2.jpg ٣"]}, "NAME LABEL"),
    ],
)
def test_lists_that_do_not_fit_the_classes_are_refused(refuse, tmp_path, picture, lists, words):
    assert words in refuse("imagenet", write_listed(tmp_path / "in", picture, **lists))


def test_a_list_in_another_encoding_is_refused(refuse, tmp_path, picture):
    root = write_listed(tmp_path / "in", picture)
    (root / "val.txt").write_bytes(b"ant/2\xe4.jpg 0\n")
    assert "val.txt is not a text in UTF-8" in refuse("imagenet", root)


@pytest.mark.case("Labels that begin at 1")
def test_labels_that_begin_at_1_are_reported_and_shifted(prepare, run_inline, tmp_path):
    source, root = f"tfrecord:{tmp_path / 'in'}", tmp_path / "in"
    place_records("tfrecord", root / "train.tfrecord", 3, labels=[1, 2, 3])
    manifest, messages = prepare("", source, command=("convert",))
    assert len(manifest["classes"]) == 4 and "no image has label 0" in messages
    (tmp_path / "out").rename(tmp_path / "first")
    manifest, messages = prepare("", source, "--label-offset", "1", command=("convert",))
    assert len(manifest["classes"]) == 3 and "label 0" not in messages
    samples = open_prepared(tmp_path / "out").splits["train"]
    assert [sample.label for sample in samples] == [0, 1, 2]
    for folder, offset, words in (
        (source, "2", "label 1 of image0 is less than --label-offset 2"),
        (tmp_path / "out", "1", "--label-offset works only with FORMAT:DIR"),
    ):
        line = ["data", "convert", folder, tmp_path / "other", "--label-offset", offset]
        outcome = run_inline(*line)
        assert outcome.returncode == 2 and words in outcome.stderr


@pytest.mark.case("Record files in the order of their classes")
@pytest.mark.parametrize(
    "labels, ordered",
    [
        ([0] * 30 + [1] * 30, True),
        ([0, 1] * 30, False),
        ([0, 0, 1, 1] * 15, False),  # 30 runs, of 31 expected ones
        ([0] * 59 + [1], False),
        ([0] * 60, False),
        ([0] * 5 + [1] * 5, False),  # too few to know
    ],
)
def test_record_files_in_the_order_of_their_classes_are_reported(
    prepare, tmp_path, labels, ordered
):
    place_records("tfrecord", tmp_path / "in" / "train.tfrecord", len(labels), labels=labels)
    source = f"tfrecord:{tmp_path / 'in'}"
    manifest, messages = prepare("", source, "--format", "tfrecord", command=("convert",))
    assert manifest["splits"]["train"]["ordered"] is ordered
    assert ("ordered by class" in messages) is ordered


def test_a_native_reader_of_ordered_records_is_warned_about(prepare, run_inline, tmp_path):
    source = f"tfrecord:{tmp_path / 'in'}"
    labels = [0] * 30 + [1] * 30
    place_records("tfrecord", tmp_path / "in" / "train.tfrecord", 60, labels=labels)
    prepare("", source, "--format", "lmdb", "--size", "32", command=("convert",))
    line = "run --framework caffe --workload convnet --loader-threads 1 --batch-size 2".split()
    line += ["--dry-run", "--data"]
    for loader, count in (("native", 1), ("xfbench", 0)):
        outcome = run_inline(*line, tmp_path / "out", "--loader", loader)
        assert outcome.stderr.count("ordered by class") == count, outcome.stderr


@pytest.mark.case("Validation sets by their usual names")
@pytest.mark.parametrize(
    "kind, train, test",
    [
        ("folder", "training", "validation"),
        ("folder", "Train", "Test"),
        ("imagenet", "train", "validation"),
        ("imagenet", "Training", "Val"),
    ],
)
def test_folders_of_splits_have_several_names(prepare, tmp_path, picture, kind, train, test):
    for folder in (train, test):
        for name in ("ant", "bee"):
            write(tmp_path / "in" / folder / name / "1.JPEG", picture(1))
    manifest, messages = prepare(kind, tmp_path / "in")
    assert manifest["classes"] == ["ant", "bee"]
    assert count_samples(manifest) == {"train": 2, "test": 2}
    assert f"in: class folders: 2 classes in {train}, test images in {test}\n" in messages


def test_the_published_test_images_of_imagenet_are_not_read(prepare, tmp_path, picture):
    for name in ("train/ant/1.JPEG", "train/bee/1.JPEG", "test/0001.JPEG"):
        write(tmp_path / "in" / name, picture(1))
    manifest, messages = prepare("imagenet", tmp_path / "in")
    assert count_samples(manifest) == {"train": 2} and "no test images" in messages


def test_several_folders_of_one_split_are_named(prepare, tmp_path, picture):
    for folder in ("train", "training", "val", "test"):
        write(tmp_path / "in" / folder / "ant" / "1.png", picture(1, kind="PNG"))
    _, messages = prepare("folder", tmp_path / "in")
    assert "training is left out: train has the training images" in messages
    assert "val is left out: test has the test images" in messages


def test_folders_that_are_no_classes_are_refused(refuse, tmp_path, picture):
    for name in ("ant", "bee"):
        write(tmp_path / "in" / "pictures" / name / "1.jpg", picture(1))
    message = refuse("folder", tmp_path / "in")
    assert "only one class, pictures, whose images are in folders" in message
    (tmp_path / "in" / "pictures").rename(tmp_path / "in" / "validation")
    assert "has the folder validation, but no folder train" in refuse("folder", tmp_path / "in")


def test_outer_folders_of_nested_images_are_reported(prepare, tmp_path, picture):
    for name in ("a/ant", "b/bee", "b/bug"):
        write(tmp_path / "in" / name / "1.jpg", picture(1))
    _, messages = prepare("folder", tmp_path / "in")
    assert "3 images are in nested folders, such as a/ant/1.jpg" in messages


@pytest.mark.parametrize("options", [(), ("--format", "folder")])
def test_names_with_unusual_characters_are_kept(prepare, tmp_path, picture, options):
    names = ["a\u2028b.jpg", "c\x85d.jpg", "e\xa0.jpg", "f g.jpg", "h\x1ci.jpg"]
    for name in names:
        write(tmp_path / "in" / "ant" / name, picture(1))
        write(tmp_path / "in" / "ant" / f"bad{name}", picture(1)[:-100])
    manifest, _ = prepare("folder", tmp_path / "in", "--skip-damaged", *options)
    assert sorted(manifest["splits"]["train"]["skipped"]) == [f"ant/bad{name}" for name in names]
    keys = [sample.key for sample in open_prepared(tmp_path / "out").splits["train"]]
    assert sorted(keys) == [f"ant/{name}" for name in names]


def test_a_folder_whose_name_is_not_utf_8_needs_another_name(prepare, refuse, tmp_path, picture):
    root = tmp_path / os.fsdecode(b"b\xe4ume")
    write(root / "ant" / "1.jpg", picture(1))
    assert "choose a name with --as" in refuse("folder", root)
    assert prepare("folder", root, "--as", "trees")[0]["name"] == "trees"


def test_idx_files_are_read_whatever_their_names_say_of_compression(prepare, mnist):
    root = mnist(3, 2)
    path = root / "train-images-idx3-ubyte"
    path.write_bytes(gzip.compress(path.read_bytes()))
    path = root / "t10k-labels-idx1-ubyte"
    path.rename(root / f"{path.name}.gz")
    assert count_samples(prepare("mnist", root)[0]) == {"train": 3, "test": 2}


def test_what_was_not_unpacked_is_named(refuse, tmp_path, mnist):
    root = mnist(3, 2)
    plain = root / "train-images-idx3-ubyte"
    content = plain.read_bytes()
    plain.write_bytes(b"")
    assert "train-images-idx3-ubyte is empty: unpack" in refuse("mnist", root)
    plain.write_bytes(content)
    inner = tmp_path / "outer" / "MNIST" / "raw"
    inner.parent.mkdir(parents=True)
    root.rename(inner)
    assert f"is {inner} the data set?" in refuse("mnist", tmp_path / "outer")
    write(tmp_path / "outer" / "cifar-10-binary.tar.gz", b"x")
    assert "unpack cifar-10-binary.tar.gz first" in refuse("cifar10", tmp_path / "outer")
    (tmp_path / "other" / "cifar-10-batches-bin").mkdir(parents=True)
    write(tmp_path / "other" / "cifar-10-batches-bin" / "data_batch_1.bin", b"")
    assert "is /" in refuse("cifar10", tmp_path / "other")


def test_words_in_names_of_folders_tell_splits_from_classes(prepare, refuse, tmp_path, picture):
    for name in ("seg_train/sea/1.jpg", "seg_test/sea/2.jpg", "seg_pred/3.jpg"):
        write(tmp_path / "in" / name, picture(1))
    manifest, messages = prepare("folder", tmp_path / "in")
    assert manifest["classes"] == ["sea"] and count_samples(manifest) == {"train": 1, "test": 1}
    assert "seg_pred is left out: its name is of no split" in messages
    for name in ("toy train/1.jpg", "test tube/2.jpg"):
        write(tmp_path / "things" / name, picture(1))
    manifest, _ = prepare("folder", tmp_path / "things", "--to", str(tmp_path / "out 2"))
    assert manifest["classes"] == ["test tube", "toy train"]
    write(tmp_path / "twice" / "training_set" / "training_set" / "cat" / "1.jpg", picture(1))
    write(tmp_path / "twice" / "test_set" / "test_set" / "cat" / "1.jpg", picture(1))
    assert "has only one class, training_set" in refuse("folder", tmp_path / "twice")


def test_images_and_labels_that_may_surprise_are_reported(prepare, refuse, tmp_path, picture):
    for name in ("0/1.png", "1/1.png", "2/1.png", "10/1.png", "stray.png"):
        write(tmp_path / "in" / name, picture(1, kind="PNG"))
    _, messages = prepare("folder", tmp_path / "in")
    assert "images beside the class folders are left out: 1, such as stray.png" in messages
    assert "classes are sorted by name: 10 has the label 2" in messages
    write(tmp_path / "in" / "0" / "1.png", b"")
    message = refuse("folder", tmp_path / "in", "--to", str(tmp_path / "out 2"))
    assert "0/1.png: not a complete JPEG or PNG file: it is empty" in message


def test_images_of_unknown_formats_are_refused_with_their_first_bytes(refuse, tmp_path, picture):
    write(tmp_path / "in" / "ant" / "1.jpg", b"\0\0\0\x18ftypheic" + bytes(99))
    assert "ant/1.jpg: not a complete JPEG or PNG file: it begins with 00 00 00 18" in refuse(
        "folder", tmp_path / "in"
    )
    png = picture(1, kind="PNG")
    gamma = struct.pack(">I", 2) + b"gAMA\0\0" + struct.pack(">I", zlib.crc32(b"gAMA\0\0"))
    write(tmp_path / "in" / "ant" / "1.jpg", png[:-12] + gamma + png[-12:])
    assert "ant/1.jpg: not a complete JPEG or PNG file" in refuse("folder", tmp_path / "in")


def test_missing_folders_and_unknown_formats_are_refused(run_inline, tmp_path):
    for source in (tmp_path / "nothing", f"webdataset:{tmp_path}"):
        message = convert(run_inline, tmp_path, source)
        assert "is not a folder, or FORMAT:FOLDER with one of folder, tfrecord" in message


def test_names_that_are_not_utf_8_are_refused_or_skipped(prepare, refuse, tmp_path, picture):
    root = tmp_path / "in"
    write(root / "ant" / "1.jpg", picture(1))
    write(root / "ant" / os.fsdecode(b"b\xe4r.jpg"), picture(1))
    assert "is not UTF-8: rename the file" in refuse("folder", root)
    manifest, _ = prepare("folder", root, "--skip-damaged")
    assert manifest["splits"]["train"]["skipped"] == ["ant/b\\xe4r.jpg"]
    (tmp_path / "out").rename(tmp_path / "first")
    (root / "ant").rename(root / os.fsdecode(b"b\xe4r"))
    assert "is not UTF-8: rename it" in refuse("folder", root, "--skip-damaged")


def test_a_list_is_split_at_line_ends_only(prepare, tmp_path, picture):
    root, names = write_listed(tmp_path / "in", picture), ["x\u2028y.jpg", "x\xa0", "x z.jpg"]
    for name in names:
        write(root / "val" / name, picture(1))
    (root / "val.txt").write_text("".join(f"{name} \t0\n" for name in names), encoding="utf-8")
    assert count_samples(prepare("imagenet", root)[0]) == {"train": 2, "test": 3}


def test_the_first_record_may_be_damaged(prepare, run_inline, tmp_path, picture):
    examples = [{"image": picture(number), "label": 0} for number in range(3)]
    examples[0]["image"] = examples[0]["image"][:-100]
    write_examples(tmp_path / "in" / "train.tfrecord", *examples)
    source = f"tfrecord:{tmp_path / 'in'}"
    assert "not a complete JPEG" in convert(run_inline, tmp_path, source)
    manifest, _ = prepare("", source, "--skip-damaged", command=("convert",))
    assert count_samples(manifest) == {"train": 2}
    write_examples(tmp_path / "in" / "train.tfrecord", examples[0])
    (tmp_path / "out").rename(tmp_path / "first")
    assert "not a complete JPEG" in convert(run_inline, tmp_path, source)


@pytest.mark.parametrize(
    "form, name", [("tfrecord", "birds-train-0.tfrecord"), ("recordio", "train.rec")]
)
def test_record_files_are_recognized(prepare, run_inline, tmp_path, form, name):
    place_records(form, tmp_path / "in" / name, 3)
    place_records(form, tmp_path / "in" / name.replace("train", "val"), 1)
    manifest, messages = prepare("", tmp_path / "in", command=("convert",))
    assert count_samples(manifest) == {"train": 3, "test": 1}
    assert f"in: {form}: training set " in messages
    (tmp_path / "out").rename(tmp_path / "first")
    place_records("lmdb", tmp_path / "in" / "train_lmdb", 1)
    message = convert(run_inline, tmp_path, tmp_path / "in")
    assert "has files of lmdb and " in message and f"lmdb:{tmp_path / 'in'}" in message
    (tmp_path / "in" / "train_lmdb" / "data.mdb").rename(tmp_path / "in" / "train_lmdb" / "1.jpg")
    message = convert(run_inline, tmp_path, tmp_path / "in")
    assert f"has files of {form} and folders with images" in message


@pytest.mark.parametrize("kind", ["imagenet", "folder"])
def test_prepare_names_the_command_for_record_files(refuse, tmp_path, kind):
    place_records("tfrecord", tmp_path / "in" / "train-00000-of-00001", 1)
    message = refuse(kind, tmp_path / "in")
    assert f"use `xfbench data convert tfrecord:{tmp_path / 'in'} TO`" in message


def test_names_of_classes_come_from_a_file(prepare, run_inline, tmp_path):
    source, names = f"tfrecord:{tmp_path / 'in'}", tmp_path / "names.txt"
    place_records("tfrecord", tmp_path / "in" / "train.tfrecord", 3, labels=[1, 2, 3])
    names.write_bytes("\ufeffn01 ant, emmet\r\nbee\r\nölkäfer\r\n".encode())
    options = ("--classes-file", names, "--label-offset", "1")
    manifest, _ = prepare("", source, *options, "--format", "folder", command=("convert",))
    assert manifest["classes"] == ["n01 ant, emmet", "bee", "ölkäfer"]
    keys = [sample.key for sample in open_prepared(tmp_path / "out").splits["train"]]
    assert [key.split("/")[0] for key in keys] == manifest["classes"]
    prepared_set = (tmp_path / "out").rename(tmp_path / "first")
    for folder, content, words in (
        (source, "a\nb\nc\n", "label 3 of image2 is invalid: there are 3 classes"),
        (source, "a\n\nb\n", "names.txt, line 2: '' is no name of a class"),
        (source, "a\nb\n../c\n", "names.txt, line 3: '../c' is no name of a class"),
        (source, "a\nb\na\n", "names.txt, line 3: the class a occurs twice"),
        (prepared_set, "a\n", "--classes-file works only with FORMAT:DIR"),
    ):
        names.write_text(content)
        line = ["data", "convert", folder, tmp_path / "out", "--classes-file", names]
        outcome = run_inline(*line)
        assert outcome.returncode == 2 and words in outcome.stderr, outcome.stderr
    names.write_bytes(b"\xe4\n")
    assert run_inline("data", "convert", source, tmp_path / "out", *options).returncode == 2


def test_an_index_next_to_a_file_defines_the_order(prepare, run_inline, tmp_path):
    write_records("recordio", tmp_path / "in", 3)
    index = tmp_path / "in" / "train.idx"
    index.write_text("".join(reversed(index.read_text().splitlines(True))))
    source = f"recordio:{tmp_path / 'in'}"
    prepare("", source, command=("convert",))
    samples = open_prepared(tmp_path / "out").splits["train"]
    assert [int(sample.image[0, 0, 0]) for sample in samples] == [2, 1, 0]
    (tmp_path / "out").rename(tmp_path / "first")
    index.write_text("0\t0\n")
    assert "train.idx lacks 2 records" in convert(run_inline, tmp_path, source)
