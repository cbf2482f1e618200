"""Input from a prepared data set: cropped, mirrored and ordered the same for everybody."""

from dataclasses import replace

import numpy as np
import pytest

from xfbench.datasets import sources, writing
from xfbench.datasets.manifest import Preprocessing
from xfbench.worker.input import open_data_set
from xfbench.worker.prepared import FORMATS
from xfbench.worker.protocol import Group, Unsupported
from xfbench.workloads import workloads

CONVNET = workloads()["convnet"]
MEAN = 127.5


def make_source(samples, split="train"):
    """A source of these (C, H, W) images, labelled by number."""
    arrays = sources._ArraySamples(np.asarray(samples, np.uint8), np.arange(len(samples)))
    classes = tuple(map(str, range(10)))
    return sources.Source("made", classes, {"train": arrays, "test": arrays}, 3, "made")


@pytest.fixture
def open_stored(tmp_path):
    """A function: the made data set in that format, as the workload is fed from it."""

    def open_in_format(images, workload=CONVNET, form="raw", batch_size=2):
        folder = tmp_path / form
        if not folder.exists():
            writing.make_data_set(make_source(images), folder, form, Preprocessing(channels=3))
        return open_data_set("made", workload, batch_size, 0, str(folder))

    return open_in_format


def make_position_images(height=36, width=40):
    """Six images that tell where they were cropped: red rows, green columns, blue the image."""
    images = np.empty((6, 3, height, width), np.uint8)
    images[:, 0] = np.arange(height)[:, np.newaxis]
    images[:, 1] = np.arange(width)
    images[:, 2] = np.arange(6)[:, np.newaxis, np.newaxis]
    return images


def decode_corner(image):
    """Row, column and number of the first pixel of an image as the network gets it (BGR)."""
    blue, green, red = image[:, 0, 0] + MEAN
    return int(red), int(green), int(blue)


def test_training_crops_randomly_and_tests_crop_the_center(open_stored):
    data = open_stored(make_position_images())
    corners = set()
    for seed in range(60):
        for images, labels in data.epoch(2, seed):
            assert images.shape == (2, 3, 32, 32) and images.dtype == np.float32
            for image, label in zip(images, labels, strict=True):
                row, column, number = decode_corner(image)
                assert number == label
                assert image[2, -1, 0] + MEAN == row + 31 and image[1, 0, -1] + MEAN == column + 31
                corners.add((row, column))
    assert {row for row, _ in corners} == set(range(5))
    assert {column for _, column in corners} == set(range(9))
    images, labels = data.test.batch(np.arange(6))
    assert [decode_corner(image) for image in images] == [(2, 4, number) for number in range(6)]


def test_training_mirrors_half_of_the_images_and_tests_none(open_stored):
    mirrored = replace(CONVNET, pixels=replace(CONVNET.pixels, mirror=True))
    data = open_stored(make_position_images(), mirrored)
    mirrored_images = [
        image[1, 0, 0] > image[1, 0, -1]
        for seed in range(50)
        for images, _ in data.epoch(2, seed)
        for image in images
    ]
    assert 0.4 < np.mean(mirrored_images) < 0.6
    images, _ = data.test.batch(np.arange(6))
    assert (images[:, 1, 0, 0] < images[:, 1, 0, -1]).all()


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_feeds_the_same_bytes(open_stored, form):
    raw_format, other_format = (
        open_stored(make_position_images(), form="raw"),
        open_stored(make_position_images(), form=form),
    )
    for seed in (0, 7):
        for raw_batch, other_batch in zip(
            raw_format.epoch(2, seed), other_format.epoch(2, seed), strict=True
        ):
            assert np.array_equal(raw_batch[0], other_batch[0]) and np.array_equal(
                raw_batch[1], other_batch[1]
            )


def test_ranks_share_the_batches_of_a_single_rank(open_stored):
    data = open_stored(make_position_images())
    rank_epochs = [data.epoch(6, 3, Group(rank, 3, "ddp").shard(6)) for rank in range(3)]
    single_rank_epoch = data.epoch(6, 3)
    for images, labels in single_rank_epoch:
        rank_batches = [next(rank_epoch) for rank_epoch in rank_epochs]
        assert np.array_equal(
            np.concatenate([rank_images for rank_images, _ in rank_batches]), images
        )
        assert np.array_equal(
            np.concatenate([rank_labels for _, rank_labels in rank_batches]), labels
        )


def test_too_small_or_too_few_images_are_unsupported(open_stored):
    data = open_stored(make_position_images(height=30))
    with pytest.raises(Unsupported, match=r"30×40 pixels, but convnet reads 32×32.*--size"):
        data.first_batch(2, 0)
    with pytest.raises(Unsupported, match="a batch of 7 is larger than the 6 images of made"):
        open_stored(make_position_images(height=30), batch_size=7)


def test_batch_can_be_stored_channels_last(open_stored):
    split = open_stored(make_position_images()).train
    draws = np.random.RandomState(0).random_sample((3, 3))
    plain, _ = split.batch(np.array([4, 0, 2]), draws)
    channels_last_images, _ = split.batch(np.array([4, 0, 2]), draws, channels_last=True)
    assert np.array_equal(plain, channels_last_images)
    assert (
        plain.flags.c_contiguous and channels_last_images.transpose(0, 2, 3, 1).flags.c_contiguous
    )
