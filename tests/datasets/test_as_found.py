"""Data sets as users have them on disk, given to `xfbench data` on the command line."""

import gzip
import io
import json
import os
import pickle

import numpy as np
import pytest
from PIL import Image

from tests.datasets.idx_files import encode_idx
from xfbench.datasets import sources
from xfbench.worker.prepared import open_prepared


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
    assert count_samples(prepare("folder", tmp_path / "in")[0]) == {"train": 2}


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
    manifest, _ = prepare("", tmp_path / "in", command=("convert",))
    assert manifest["classes"] == ["ant", "bee"]
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


def test_a_source_without_any_readable_image_is_refused(refuse, tmp_path, picture):
    write(tmp_path / "in" / "ant" / "1.jpg", picture(1)[:300])
    assert "no train image can be read" in refuse("folder", tmp_path / "in", "--skip-damaged")
