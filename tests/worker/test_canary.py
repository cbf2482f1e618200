"""The canary's expected loss: which images the oracle evaluates, and in which precision."""

from collections import Counter

import numpy as np
import pytest

from xfbench.adapters.reference import train
from xfbench.execution.canary import Expected
from xfbench.worker import check
from xfbench.worker.input import open_data_set
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workloads
from xfbench.workloads.initial import initial_parameters

BATCH_SIZE = 48
REQUEST = {"batch_size_per_rank": BATCH_SIZE, "seed": 0, "data": "synthetic"}
LENET = workloads()["lenet"]
LOSS_CAP = -np.log(np.finfo(np.float32).tiny)


def first_batch():
    return open_data_set("synthetic", LENET, BATCH_SIZE, 0).first_batch(BATCH_SIZE, 0)


def compute_canary(build, precision="float32"):
    reply = check.compute_canary_losses_before_training(
        LENET, REQUEST, Options("numpy", 1, precision), build
    )
    return Expected.model_validate(reply["canary"])


@pytest.fixture
def count_images():
    """A function that makes a trainer's builder with given losses, and counts images.

    `scale` is the mean loss. In each precision, the loss of every image is multiplied by a factor.
    """

    def make_builder(scale=1.0, **factors):
        counts = Counter()

        class Trainer:
            def __init__(self, precision):
                self.precision = precision

            def assign(self, parameters):
                assert set(parameters) == set(LENET.network.parameters)

            def load(self, images, labels):
                return images

            def test_loss(self, images):
                counts[self.precision] += len(images)
                losses = scale * (1 + images[:, 0, 0, 0] / np.abs(first_batch()[0]).max() / 2)
                return float(np.mean(losses, dtype=np.float64)) * factors.get(self.precision, 1)

        return (lambda network, solver, options, group: Trainer(options.precision)), counts

    return make_builder


def reference_loss(images, labels, precision="float64"):
    trainer = train.build(LENET.network, LENET.solver, Options("numpy", 1, precision), Group())
    trainer.assign(initial_parameters(LENET.network, 0))
    return float(trainer.test_loss(trainer.load(images, labels)))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_expected_loss_is_that_of_the_whole_batch(precision):
    expected = compute_canary(train.build, precision)
    loss = reference_loss(*first_batch())
    assert expected.loss == expected.floored == pytest.approx(loss, rel=1e-7)
    assert expected.relative_error(reference_loss(*first_batch(), precision)) <= expected.tolerance


@pytest.mark.parametrize("image", [0, 31, 32, BATCH_SIZE - 1])
@pytest.mark.parametrize("wrong", ["image", "label"])
def test_one_wrong_image_is_found_wherever_it_is(image, wrong):
    images, labels = (array.copy() for array in first_batch())
    if wrong == "image":
        images[image] = images[image - 1]
    else:
        labels[image] = (labels[image] + 1) % 10
    expected = compute_canary(train.build)
    assert expected.relative_error(reference_loss(images, labels)) > expected.tolerance


def test_only_the_first_images_are_evaluated_in_float64(count_images):
    build, counts = count_images(float32=1 + 9e-7, bfloat16=1.01)
    expected = compute_canary(build, "bfloat16")
    assert counts == {"float64": 32, "bfloat16": 32, "float32": BATCH_SIZE}
    assert expected.rounded / expected.loss == pytest.approx(1.01, abs=1e-9)


def test_all_images_are_evaluated_in_float64_if_float32_is_inexact(count_images):
    build, counts = count_images(float32=1 + 2e-6)
    expected = compute_canary(build)
    assert counts == {"float64": BATCH_SIZE, "float32": 32}
    exact_build, _ = count_images()
    assert expected.loss == pytest.approx(compute_canary(exact_build).loss, rel=1e-9)


def test_loss_of_each_image_has_caffes_limit(count_images):
    build, _ = count_images(scale=0.75 * LOSS_CAP)
    images = first_batch()[0]
    losses = 0.75 * LOSS_CAP * (1 + images[:, 0, 0, 0] / np.abs(images).max() / 2)
    assert losses.min() < LOSS_CAP < losses.max()
    expected = compute_canary(build)
    assert expected.loss == pytest.approx(losses.mean(), rel=1e-6)
    assert expected.floored == pytest.approx(np.minimum(losses, LOSS_CAP).mean(), rel=1e-6)
    assert expected.floored < expected.loss
