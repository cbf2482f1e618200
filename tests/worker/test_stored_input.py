"""Input from a prepared data set: cropped, mirrored and ordered the same for everybody."""

from dataclasses import replace

import numpy as np
import pytest

from xfbench.data import sources, writing
from xfbench.data.manifest import Preprocessing
from xfbench.worker.input import open_data_set
from xfbench.worker.prepared import FORMATS
from xfbench.worker.protocol import Group, Unsupported
from xfbench.workloads import workloads

CONVNET = workloads()["convnet"]
MEAN = 127.5


def of(samples, split="train"):
    """A source of these (C, H, W) images, labelled by number."""
    kept = sources._Arrays(np.asarray(samples, np.uint8), np.arange(len(samples)))
    classes = tuple(map(str, range(10)))
    return sources.Source("made", classes, {"train": kept, "test": kept}, 3, "made")


@pytest.fixture
def stored(tmp_path):
    """A function: the made data set in that format, as the workload is fed from it."""

    def make(images, workload=CONVNET, form="raw", batch_size=2):
        folder = tmp_path / form
        if not folder.exists():
            writing.make_data_set(of(images), folder, form, Preprocessing(channels=3))
        return open_data_set("made", workload, batch_size, 0, str(folder))

    return make


def positions(height=36, width=40):
    """Six images that tell where they were cropped: red rows, green columns, blue the image."""
    images = np.empty((6, 3, height, width), np.uint8)
    images[:, 0] = np.arange(height)[:, np.newaxis]
    images[:, 1] = np.arange(width)
    images[:, 2] = np.arange(6)[:, np.newaxis, np.newaxis]
    return images


def corner(image):
    """Row, column and number of the first pixel of an image as the network gets it (BGR)."""
    blue, green, red = image[:, 0, 0] + MEAN
    return int(red), int(green), int(blue)


def test_training_crops_randomly_and_tests_crop_the_center(stored):
    data = stored(positions())
    seen = set()
    for seed in range(60):
        for images, labels in data.epoch(2, seed):
            assert images.shape == (2, 3, 32, 32) and images.dtype == np.float32
            for image, label in zip(images, labels, strict=True):
                row, column, number = corner(image)
                assert number == label
                assert image[2, -1, 0] + MEAN == row + 31 and image[1, 0, -1] + MEAN == column + 31
                seen.add((row, column))
    assert {row for row, _ in seen} == set(range(5))
    assert {column for _, column in seen} == set(range(9))
    images, labels = data.test.batch(np.arange(6))
    assert [corner(image) for image in images] == [(2, 4, number) for number in range(6)]


def test_training_mirrors_half_of_the_images_and_tests_none(stored):
    mirrored = replace(CONVNET, pixels=replace(CONVNET.pixels, mirror=True))
    data = stored(positions(), mirrored)
    turned = [
        image[1, 0, 0] > image[1, 0, -1]
        for seed in range(50)
        for images, _ in data.epoch(2, seed)
        for image in images
    ]
    assert 0.4 < np.mean(turned) < 0.6
    images, _ = data.test.batch(np.arange(6))
    assert (images[:, 1, 0, 0] < images[:, 1, 0, -1]).all()


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_feeds_the_same_bytes(stored, form):
    first, other = stored(positions(), form="raw"), stored(positions(), form=form)
    for seed in (0, 7):
        for one, two in zip(first.epoch(2, seed), other.epoch(2, seed), strict=True):
            assert np.array_equal(one[0], two[0]) and np.array_equal(one[1], two[1])


def test_ranks_share_the_batches_of_a_single_rank(stored):
    data = stored(positions())
    parts = [data.epoch(6, 3, Group(rank, 3, "ddp").shard(6)) for rank in range(3)]
    whole = data.epoch(6, 3)
    for images, labels in whole:
        shared = [next(part) for part in parts]
        assert np.array_equal(np.concatenate([one for one, _ in shared]), images)
        assert np.array_equal(np.concatenate([two for _, two in shared]), labels)


def test_too_small_or_too_few_images_are_unsupported(stored):
    data = stored(positions(height=30))
    with pytest.raises(Unsupported, match=r"30×40 pixels, convnet reads 32×32.*--size"):
        data.first(2, 0)
    with pytest.raises(Unsupported, match="a batch of 7 is more than the 6 images of made"):
        stored(positions(height=30), batch_size=7)


def test_batch_can_be_stored_channels_last(stored):
    split = stored(positions()).train
    draws = np.random.RandomState(0).random_sample((3, 3))
    plain, _ = split.batch(np.array([4, 0, 2]), draws)
    moved, _ = split.batch(np.array([4, 0, 2]), draws, channels_last=True)
    assert np.array_equal(plain, moved)
    assert plain.flags.c_contiguous and moved.transpose(0, 2, 3, 1).flags.c_contiguous
