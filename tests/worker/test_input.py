"""What networks are fed: real digits, seeded noise, and a fixed order."""

import numpy as np
import pytest

from xfbench.worker.input import open_data_set, synthetic_batch
from xfbench.worker.protocol import Unsupported
from xfbench.workloads import workloads

LENET = workloads()["lenet"]


def test_digits_have_1797_images_in_two_disjoint_splits():
    data = open_data_set("digits", LENET, 64, 0)
    assert len(data.train) + len(data.test) == 1797
    images, _ = data.train.batch(np.arange(len(data.train)))
    assert images.shape[1:] == (1, 28, 28)
    train_images = {image.tobytes() for image in images}
    test_images, _ = data.test.batch(np.arange(len(data.test)))
    assert sum(image.tobytes() in train_images for image in test_images) < 5


def test_pixels_are_scaled_as_the_workload_specifies():
    images, _ = open_data_set("digits", LENET, 64, 0).first_batch(64, 0)
    assert images.dtype == np.float32
    assert images.min() == 0 and 0.9 < images.max() <= 255 / 256


def test_epoch_has_full_batches_in_the_order_of_the_seed():
    data = open_data_set("digits", LENET, 64, 0)
    batches = list(data.epoch(64, 5))
    assert len(batches) == 1437 // 64 and all(len(labels) == 64 for _, labels in batches)
    same_seed_batches = list(data.epoch(64, 5))
    other_seed_batches = list(data.epoch(64, 6))
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(batches, same_seed_batches, strict=True))
    assert not np.array_equal(batches[0][0], other_seed_batches[0][0])


def test_synthetic_noise_is_seeded_and_mean_subtracted():
    workload = workloads()["googlenet"]
    images, labels = synthetic_batch(workload, 4, 7)
    same_seed_images, _ = synthetic_batch(workload, 4, 7)
    assert np.array_equal(images, same_seed_images)
    assert images.shape == (4, 3, 224, 224) and labels.max() < 1000
    assert images[:, 0].min() == -104 and images[:, 2].max() == 255 - 123


def test_data_that_do_not_fit_the_network_are_unsupported():
    with pytest.raises(Unsupported, match="one-channel"):
        open_data_set("digits", workloads()["alexnet"], 2, 0)
    with pytest.raises(Unsupported, match="larger than the 1437"):
        open_data_set("digits", LENET, 2000, 0)
