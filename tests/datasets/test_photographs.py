"""Photographs are the same samples from every format, whichever framework reads them.

The quick tests have 84 small ones, the deep tests 2,000, and the long tests 2,000 as large as
ImageNet's. The frameworks' readers run in their own interpreters and compare there with ours, so
that digests come back and not pixels.
"""

import io

import PIL.Image
import PIL.ImageOps
import pytest

from tests import photographs
from tests.datasets.photograph_sets import FILE_FORMATS, GROUPS, ORIENTATIONS, SCALES, prepare
from tests.datasets.tasks import Task
from xfbench.datasets import checking
from xfbench.datasets.manifest import Manifest
from xfbench.worker import pictures, prepared
from xfbench.worker.samples import sample_digest, stream_digest

MARKS = {"few": (), "many": pytest.mark.deep, "large": pytest.mark.long}
every_scale = pytest.mark.parametrize("scale", [pytest.param(s, marks=MARKS[s]) for s in SCALES])

# The largest difference from our reader, of 255, for each set and reader.
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
# Whether a reader shows an image as its EXIF orientation asks.
APPLIES_ORIENTATION = {
    "tensorflow": {("turned-tfrecord", "accurate"): False},
    "mxnet": {("turned-recordio", "imdecode"): False, ("turned-recordio", "ImageRecordIter"): True},
    "caffe": {("turned-lmdb", "plain"): False, ("turned-lmdb", "force_color"): True},
    "torch": {("turned-folder", "DataLoader"): False},
}


def make_comparison_task(framework, scale, readers):
    """A task: the framework's own readers on these sets."""
    names = sorted({f"photographs/{scale}/{name}" for name, _ in readers})
    batch = "" if scale == "few" else f"-{scale}"
    return Task(framework, "compare_photographs", tuple(names), batch=batch)


@every_scale
@pytest.mark.parametrize("group", ["kept", "scaled", "jpeg"])
def test_our_reader_gives_one_stream_from_every_format(scale, group, find_set):
    folders = [find_set(f"photographs/{scale}/{group}-{form}") for form in GROUPS[group][0]]
    checks, scale_settings = checking.compare_data_sets(folders), SCALES[scale]
    assert checking.build_comparison_document(checks)["equal"], checks
    assert {(check.samples, check.largest_pixel_difference) for check in checks} == {
        (scale_settings.count, 0)
    }
    manifest = Manifest.read(folders[0])
    assert len(manifest.classes) == len(photographs.CLASSES) == 21
    assert manifest.splits["train"].samples == scale_settings.train
    assert manifest.shape == (
        None if group == "kept" else (3, scale_settings.size, scale_settings.size)
    )


@pytest.mark.parametrize(
    ("answer", "framework", "scale"),
    [
        pytest.param(
            make_comparison_task(framework, scale, readers),
            *(framework, scale),
            id=f"{scale}-{framework}",
            marks=MARKS[scale],
        )
        for scale in SCALES
        for framework, readers in BOUNDS.items()
    ],
    indirect=["answer"],
)
def test_a_frameworks_readers_give_our_photographs(answer, framework, scale, find_set):
    for (name, reader), bound in BOUNDS[framework].items():
        folder = find_set(f"photographs/{scale}/{name}")
        manifest = Manifest.read(folder)
        for split, listed in prepared.open_prepared(folder).listed.items():
            key = f"{name} {reader} {split}"
            assert answer[f"{key} labels"].tolist() == listed.labels
            largest = answer[f"{key} largest"].max()
            assert largest <= bound, key
            digest = stream_digest(answer[f"{key} digests"].tolist())
            assert (digest == manifest.splits[split].stream_digest) == (largest == 0)


def list_digests(folder, show):
    """Digests of the training samples of our reader, each picture changed by `show`."""
    digests = []
    for sample in prepared.open_prepared(folder).splits["train"]:
        with PIL.Image.open(io.BytesIO(sample.image)) as picture:
            digests.append(sample_digest(pictures.pixels_from_image(show(picture)), sample.label))
    return digests


def keep_picture(picture):
    return picture


@pytest.mark.parametrize("form", FILE_FORMATS)
def test_pictures_that_ask_to_be_turned_are_counted(form, find_set):
    folder = find_set(f"photographs/few/turned-{form}")
    assert Manifest.read(folder).splits["train"].turned == 7
    lines = [line.split("\t") for line in (folder / "train.samples").read_text().splitlines()]
    orientations = {int(line[1]) + 1: line[4:] for line in lines}
    assert orientations == {
        orientation: [str(orientation)] if orientation > 1 else [] for orientation in ORIENTATIONS
    }
    assert prepared.open_prepared(folder).listed["train"].digests == list_digests(
        folder, keep_picture
    )


@pytest.mark.parametrize(("options", "count"), [([], 7), (["--encode", "jpeg"], 0)])
def test_prepare_reports_pictures_that_ask_to_be_turned(options, count, find_set, tmp_path):
    source = find_set("photographs/few/turned-folder") / "train"
    messages = prepare("folder", source, tmp_path / "set", "--format", "folder", *options)
    assert ("7 JPEG files have an EXIF rotation" in messages) == bool(count)
    assert Manifest.read(tmp_path / "set").splits["train"].turned == count


@pytest.mark.parametrize(
    ("answer", "framework"),
    [
        (make_comparison_task(framework, "few", readers), framework)
        for framework, readers in APPLIES_ORIENTATION.items()
    ],
    ids=APPLIES_ORIENTATION,
    indirect=["answer"],
)
def test_some_readers_turn_what_asks_for_it(answer, framework, find_set):
    for (name, reader), applies_orientation in APPLIES_ORIENTATION[framework].items():
        show = PIL.ImageOps.exif_transpose if applies_orientation else keep_picture
        digests = answer[f"{name} {reader} train digests"].tolist()
        assert digests == list_digests(find_set(f"photographs/few/{name}"), show), reader
