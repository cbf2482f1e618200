"""Data sets are made whole or not at all, go on after a kill, and are the same in every format."""

import json
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests import temporary_mounts
from xfbench.base.errors import UsageError
from xfbench.datasets import checking, sources, writing
from xfbench.datasets.manifest import Manifest, Preprocessing
from xfbench.datasets.recordio import Writer as RecordIOWriter
from xfbench.worker import pictures, prepared
from xfbench.worker.formats import Damaged
from xfbench.worker.samples import Sample, sample_digest

UNCHANGED = Preprocessing(channels=3)
SQUASHED = Preprocessing(channels=3, size=(24, 32), shuffle=0)
every_format = pytest.mark.parametrize("form", prepared.FORMATS)


def make_set(source, target, form, preprocessing=SQUASHED):
    manifest = writing.make_data_set(source, target, form, preprocessing)
    assert not list(target.parent.glob("*.partial")) and not list(target.parent.glob("*.lock"))
    return manifest


@every_format
def test_every_format_stores_the_source_samples(folders, tmp_path, form):
    source = sources.open_image_folder(folders())
    manifest = make_set(source, tmp_path / form, form)
    assert Manifest.read(tmp_path / form) == manifest
    assert manifest.shape == (3, 24, 32) and manifest.splits["train"].samples == 21
    written_set = prepared.open_prepared(tmp_path / form)
    order = np.random.RandomState(0).permutation(21)
    for index, place in enumerate(order):
        source_sample, written_sample = (
            source.splits["train"][int(place)],
            written_set.splits["train"][index],
        )
        expected_pixels = writing.resize_and_encode_sample(source_sample, SQUASHED).image
        assert (
            np.array_equal(pictures.decode_pixels(written_sample, 3), expected_pixels)
            and written_sample.label == source_sample.label
        )
        digest = written_set.listed["train"].digests[index]
        assert digest == sample_digest(expected_pixels, source_sample.label)


def test_all_formats_are_equal_as_pixels_and_as_jpeg(folders, tmp_path):
    source = sources.open_image_folder(folders())
    for encoding in (None, "jpeg:80"):
        preprocessing = SQUASHED.model_copy(update={"encoding": encoding})
        targets = [tmp_path / f"{form}-{encoding}" for form in prepared.FORMATS]
        for form, target in zip(prepared.FORMATS, targets, strict=True):
            make_set(source, target, form, preprocessing)
        report = checking.build_comparison_document(checking.compare_data_sets(targets))
        assert report["equal"], report
        assert {
            format_report["largest_pixel_difference"] for format_report in report["formats"]
        } == {0}
        assert len({Manifest.read(target).samples_digest for target in targets}) == 1


@every_format
def test_converted_set_keeps_its_digest(folders, tmp_path, form):
    before = make_set(sources.open_image_folder(folders()), tmp_path / "first", form)
    for target_format in prepared.FORMATS:
        after = make_set(
            sources.open_data_set_as_source(str(tmp_path / "first")),
            tmp_path / target_format,
            target_format,
            UNCHANGED,
        )
        assert after.samples_digest == before.samples_digest
        assert after.preprocessing == before.preprocessing


def test_unchanged_files_keep_their_bytes(folders, tmp_path):
    root = folders()
    manifest = make_set(sources.open_image_folder(root), tmp_path / "kept", "folder", UNCHANGED)
    assert manifest.shape == (3, 40, 48)
    for path in (root / "train").rglob("*.JPEG"):
        written_path = tmp_path / "kept" / "train" / path.parent.name / path.name
        assert written_path.read_bytes() == path.read_bytes()


def test_raw_format_refuses_images_of_different_sizes(folders, tmp_path, picture):
    root = folders()
    (root / "train" / "n02" / "n02_3.JPEG").write_bytes(picture(1, height=41))
    with pytest.raises(UsageError, match=r"40×48 and 41×48 pixels.*--size"):
        writing.make_data_set(
            sources.open_image_folder(root), tmp_path / "raw" / "set", "raw", UNCHANGED
        )
    manifest = make_set(sources.open_image_folder(root), tmp_path / "folder", "folder", UNCHANGED)
    assert manifest.shape is None


def test_existing_target_is_refused(mnist, tmp_path):
    source, preprocessing = sources.open_mnist(mnist()), Preprocessing(channels=1)
    make_set(source, tmp_path / "set", "raw", preprocessing)
    with pytest.raises(UsageError, match="already exists"):
        writing.make_data_set(source, tmp_path / "set", "raw", preprocessing)


def test_images_with_equal_names_get_different_names(folders, tmp_path, picture):
    root = folders()
    (root / "train" / "n01" / "n01_0.JPEG.jpg").write_bytes(picture(1))
    (root / "train" / "n01" / "n01_0.JPEG").write_bytes(picture(1, kind="PNG"))
    (root / "train" / "n01" / "n01_0.JPEG.png").write_bytes(picture(2, kind="PNG"))
    make_set(sources.open_image_folder(root), tmp_path / "set", "folder", UNCHANGED)
    names = {path.name for path in (tmp_path / "set" / "train" / "n01").glob("n01_0*")}
    assert names == {"n01_0.JPEG.png", "n01_0.JPEG-2.png", "n01_0.JPEG.jpg"}


def stop_at_damaged_image(path, root, target):
    """Damage an image of the source, write until it is met, and return what repairs it."""
    content = path.read_bytes()
    path.write_bytes(content[:-200])
    with pytest.raises(Damaged, match=path.stem):
        writing.make_data_set(sources.open_image_folder(root), target, "raw", SQUASHED)
    return lambda: path.write_bytes(content)


def test_run_stops_at_a_damaged_picture_and_resumes_after_repair(folders, tmp_path):
    root = folders()
    repair = stop_at_damaged_image(root / "train" / "n03" / "n03_1.JPEG", root, tmp_path / "set")
    assert not (tmp_path / "set").exists()
    repair()
    resumed_manifest = make_set(sources.open_image_folder(root), tmp_path / "set", "raw")
    assert (
        resumed_manifest.samples_digest
        == make_set(sources.open_image_folder(root), tmp_path / "other", "raw").samples_digest
    )


MAKE_SCRIPT = """
import sys, time
from pathlib import Path
from xfbench.datasets import sources, writing
from xfbench.datasets.manifest import Preprocessing

writing._SYNC_INTERVAL = 3
def report(split, done, total):
    print(split, done, flush=True)
    time.sleep(0.02)

how = Preprocessing(channels=3, size=(24, 32), shuffle=0)
images = sources.open_image_folder(Path(sys.argv[1]))
writing.make_data_set(images, Path(sys.argv[2]), sys.argv[3], how, report)
"""


@every_format
def test_killed_run_leaves_no_target_and_resumes(folders, tmp_path, form):
    root, target = folders(train=20), tmp_path / "set"
    expected_manifest = make_set(sources.open_image_folder(root), tmp_path / "whole", form)
    command = [sys.executable, "-c", MAKE_SCRIPT, str(root), str(target), form]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(4):
                last = process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL and not target.exists()
    assert last.split()[0] == "train" and int(last.split()[1]) >= 21, "each went on further"
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
    assert Manifest.read(target) == expected_manifest
    checks = checking.compare_data_sets([tmp_path / "whole", target])
    assert checking.build_comparison_document(checks)["equal"]


def test_changed_preprocessing_starts_over(folders, tmp_path):
    root, target = folders(train=20), tmp_path / "set"
    command = [sys.executable, "-c", MAKE_SCRIPT, str(root), str(target), "raw"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(4):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    changed_preprocessing = SQUASHED.model_copy(update={"fit": "crop"})
    manifest = make_set(sources.open_image_folder(root), target, "raw", changed_preprocessing)
    assert (
        manifest.samples_digest
        == make_set(
            sources.open_image_folder(root), tmp_path / "x", "raw", changed_preprocessing
        ).samples_digest
    )


def test_second_writer_of_the_same_set_is_refused(folders, tmp_path):
    root, target = folders(train=20), tmp_path / "set"
    command = [sys.executable, "-c", MAKE_SCRIPT, str(root), str(target), "raw"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(UsageError, match="another process is writing"):
            writing.make_data_set(sources.open_image_folder(root), target, "raw", SQUASHED)
        process.send_signal(signal.SIGCONT)
        process.stdout.read()
    assert process.returncode == 0 and target.exists()


def test_waiting_writer_takes_the_set_of_the_first_writer(folders, tmp_path):
    lock_requested = threading.Event()
    root, target = folders(train=20), tmp_path / "set"
    command = [sys.executable, "-c", MAKE_SCRIPT, str(root), str(target), "raw"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        reports = []
        with ThreadPoolExecutor(1) as executor:
            waiting = executor.submit(
                lambda: writing.make_data_set(
                    *(sources.open_image_folder(root), target, "raw", SQUASHED),
                    report_progress=lambda *progress: reports.append(progress),
                    lock_timeout_s=60,
                    tell=lambda _: lock_requested.set(),
                )
            )
            assert lock_requested.wait(60)
            process.send_signal(signal.SIGCONT)
            process.stdout.read()
            assert waiting.result() == Manifest.read(target)
    assert process.returncode == 0 and not reports
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("set")] == ["set"]


@pytest.fixture
def small_disk(tmp_path):
    """A folder that takes 200 KB."""
    temporary_mounts.require_mounting()
    with temporary_mounts.mount(
        tmp_path / "disk", "-t", "tmpfs", "-o", "size=200k", "tmpfs"
    ) as folder:
        yield folder


@every_format
def test_full_disk_is_reported_and_the_run_resumes(folders, tmp_path, small_disk, form):
    root, target = folders(train=60), small_disk / "set"
    completed = subprocess.run(
        [
            *(sys.executable, "-m", "xfbench", "data", "convert", f"folder:{root}", str(target)),
            *("--format", form, "--encode", "pixels"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert completed.returncode == 2, completed.stderr
    assert "Traceback" not in completed.stderr
    assert "space" in completed.stderr.lower() and not target.exists()
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    preprocessing = Preprocessing(channels=3, encoding="pixels", shuffle=0)
    resumed_manifest = make_set(sources.open_image_folder(root), target, form, preprocessing)
    assert (
        resumed_manifest.samples_digest
        == make_set(
            sources.open_image_folder(root), tmp_path / "x", form, preprocessing
        ).samples_digest
    )


def test_changed_or_truncated_samples_are_reported(mnist, tmp_path):
    target = tmp_path / "set"
    make_set(sources.open_mnist(mnist()), target, "raw", Preprocessing(channels=1))
    pixels = target / "train.pixels"
    content = bytearray(pixels.read_bytes())
    content[784 * 7 + 3] ^= 1
    pixels.write_bytes(content)
    [check] = checking.compare_data_sets([target])
    assert check.defect == "train image 7, 00000007, does not match the data set's list"
    assert not checking.build_comparison_document([check])["equal"]
    pixels.write_bytes(content[:-1])
    with pytest.raises(Damaged, match="39199 bytes, not 39200"):
        checking.compare_data_sets([target])


@pytest.mark.parametrize(
    "change, message_pattern",
    [
        (lambda m: m["splits"]["train"].update(samples=49), "differs from the manifest"),
        (
            lambda m: m["splits"]["train"].update(stream_digest="sha256:0"),
            "differs from the manifest",
        ),
        (lambda m: m.update(classes=["0", "1"]), "2 classes"),
        (lambda m: m.update(format="pickle"), "not a manifest of xfbench"),
        (lambda m: m["splits"].pop("train"), "not a manifest of xfbench"),
        (lambda m: m.update(shape=[1, 28, 27]), "bytes, not "),
    ],
)
def test_a_manifest_that_does_not_match_is_refused(mnist, tmp_path, change, message_pattern):
    target = tmp_path / "set"
    make_set(sources.open_mnist(mnist()), target, "raw", Preprocessing(channels=1))
    path = target / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(Damaged, match=message_pattern):
        prepared.open_prepared(target)


@pytest.mark.parametrize("form, name", [("tfrecord", "test.tfrecord"), ("recordio", "test.rec")])
def test_damaged_test_split_is_not_treated_as_missing(folders, tmp_path, form, name):
    make_set(sources.open_image_folder(folders()), tmp_path / form, form)
    for file_name in ("manifest.json", "train.samples", "test.samples"):
        (tmp_path / form / file_name).unlink()
    assert set(sources.open_data_set_as_source(f"{form}:{tmp_path / form}").splits) == {
        "train",
        "test",
    }
    path = tmp_path / form / name
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(Damaged, match=r"truncated"):
        sources.open_data_set_as_source(f"{form}:{tmp_path / form}")
    for path in (tmp_path / form).glob("test.*"):
        path.unlink()
    assert set(sources.open_data_set_as_source(f"{form}:{tmp_path / form}").splits) == {"train"}


def test_foreign_set_gets_its_classes_and_checksum_check(folders, tmp_path):
    before = make_set(sources.open_image_folder(folders()), tmp_path / "theirs", "tfrecord")
    for file_name in ("manifest.json", "train.samples", "test.samples"):
        (tmp_path / "theirs" / file_name).unlink()
    foreign_set = f"tfrecord:{tmp_path / 'theirs'}"
    after = make_set(
        sources.open_data_set_as_source(foreign_set), tmp_path / "after", "folder", UNCHANGED
    )
    assert after.classes == ("0", "1", "2") and after.splits == before.splits
    assert {path.name for path in (tmp_path / "after" / "train").iterdir()} == {"0", "1", "2"}
    path = tmp_path / "theirs" / "train.tfrecord"
    content = bytearray(path.read_bytes())
    content[-20] ^= 1  # within the last record's data
    path.write_bytes(content)
    source = sources.open_data_set_as_source(foreign_set)
    with pytest.raises(Damaged, match="record 20: the checksum of its data is wrong"):
        make_set(source, tmp_path / "never", "raw")


def test_label_above_a_million_is_refused(tmp_path):
    writer = RecordIOWriter(tmp_path, "train", 0)
    for label in (0, 2**24):
        writer.add(Sample(str(label), label, np.zeros((3, 4, 4), np.uint8)))
    writer.close()
    with pytest.raises(
        Damaged, match="label 16777216 of 00000001 is invalid: the maximum is 1000000"
    ):
        make_set(
            sources.open_data_set_as_source(f"recordio:{tmp_path}"),
            tmp_path / "set",
            "raw",
            UNCHANGED,
        )


def test_empty_foreign_set_is_refused(tmp_path):
    (tmp_path / "train.tfrecord").write_bytes(b"")
    with pytest.raises(Damaged, match="no training images"):
        sources.open_data_set_as_source(f"tfrecord:{tmp_path}")


def test_a_cropped_set_that_keeps_its_size_stays_cropped(folders, tmp_path):
    cropped = Preprocessing(channels=3, size=(24, 32), fit="crop")
    before = make_set(sources.open_image_folder(folders()), tmp_path / "first", "raw", cropped)
    assert before.preprocessing.fit == "crop"
    after = make_set(
        sources.open_data_set_as_source(str(tmp_path / "first")),
        tmp_path / "second",
        "folder",
        UNCHANGED,
    )
    assert (after.preprocessing.size, after.preprocessing.fit) == ((24, 32), "crop")


def test_a_cropped_set_that_is_squashed_says_so(folders, tmp_path):
    cropped = Preprocessing(channels=3, size=(24, 32), fit="crop")
    make_set(sources.open_image_folder(folders()), tmp_path / "first", "raw", cropped)
    squashed = Preprocessing(channels=3, size=(16, 16))
    after = make_set(
        sources.open_data_set_as_source(str(tmp_path / "first")),
        tmp_path / "second",
        "raw",
        squashed,
    )
    assert (after.preprocessing.size, after.preprocessing.fit) == ((16, 16), "squash")


def make_source(values, labels=None, classes=("a", "b"), key="{}"):
    """A source of one image of 4 by 4 pixels for each value."""
    samples = [
        Sample(key.format(n), label, np.full((3, 4, 4), value, np.uint8))
        for n, (value, label) in enumerate(zip(values, labels or [0] * len(values), strict=True))
    ]
    return sources.Source("drawn", classes, {"train": samples}, 3, "")


@pytest.mark.parametrize(("label", "accepted"), [(-1, False), (0, True), (1, True), (2, False)])
def test_labels_are_those_of_the_classes(tmp_path, label, accepted):
    source = make_source([0], [label])
    if accepted:
        assert make_set(source, tmp_path / "set", "raw", UNCHANGED).classes == ("a", "b")
    else:
        with pytest.raises(Damaged, match=f"label {label} of 0 is invalid: there are 2 classes"):
            writing.make_data_set(source, tmp_path / "set", "raw", UNCHANGED)


@pytest.mark.parametrize("mark", ["\t", "\n", "\r"])
def test_image_name_with_a_tab_or_line_end_is_refused(tmp_path, mark):
    with pytest.raises(Damaged, match="has a tab or a line end"):
        writing.make_data_set(
            make_source([0], key=f"a{mark}{{}}"), tmp_path / "set", "raw", UNCHANGED
        )


def test_digest_of_a_set_depends_on_its_class_names(tmp_path):
    digests = {
        make_set(
            make_source([0], classes=(*names,)), tmp_path / names, "raw", UNCHANGED
        ).samples_digest
        for names in ("ab", "ac")
    }
    assert len(digests) == 2


def test_largest_pixel_difference_has_no_sign(tmp_path):
    for name, values in (("first", (10, 20, 30)), ("second", (19, 15, 30)), ("third", (1, 20, 30))):
        make_set(make_source(values), tmp_path / name, "raw", UNCHANGED)
    checks = checking.compare_data_sets([tmp_path / name for name in ("first", "second", "third")])
    assert [check.largest_pixel_difference for check in checks] == [0, 9, 9]
    assert not checking.build_comparison_document(checks)["equal"]


@pytest.fixture
def stopped_run(folders, tmp_path):
    """A run that has written all training images and stops at a damaged test image.

    The source's folder, the set's, and a function that repairs the image.
    """
    root = folders()
    repair = stop_at_damaged_image(root / "val" / "n01" / "n01_0.JPEG", root, tmp_path / "set")
    return root, tmp_path / "set", repair


def test_unfinished_line_of_a_list_is_written_again(stopped_run, tmp_path):
    root, target, repair = stopped_run
    listing = tmp_path / "set.partial" / "train.samples"
    listing.write_text(listing.read_text()[:-20])
    repair()
    manifest = make_set(sources.open_image_folder(root), target, "raw")
    assert manifest == make_set(sources.open_image_folder(root), tmp_path / "other", "raw")
    assert [check.defect for check in checking.compare_data_sets([target])] == [None]


def test_changed_number_of_images_starts_over(stopped_run, tmp_path, picture):
    root, target, repair = stopped_run
    (root / "train" / "n02" / "n02_9.JPEG").write_bytes(picture(9))
    repair()
    manifest = make_set(sources.open_image_folder(root), target, "raw")
    assert (
        manifest.samples_digest
        == make_set(sources.open_image_folder(root), tmp_path / "other", "raw").samples_digest
    )
