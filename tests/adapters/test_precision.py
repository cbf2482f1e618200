"""Tests of what the reference rounds in each precision."""

from dataclasses import replace

import numpy as np
import pytest

from xfbench.adapters.reference import graph
from xfbench.adapters.reference.precision import PRECISIONS, round_to_nearest
from xfbench.worker.input import synthetic_batch
from xfbench.workloads import workloads
from xfbench.workloads.initial import initial_parameters

LENET = workloads()["lenet"]
RANDOM = np.random.RandomState(0)
VALUES = np.concatenate(
    [RANDOM.standard_normal(10**4) * 10.0 ** RANDOM.randint(-3, 4, 10**4), [0.0, -0.0, 1.0, -2.5]]
).astype(np.float32)


def significand_bits(x):
    """Return the largest number of significand bits of any value, with the leading bit."""
    fractions, _ = np.frexp(np.asarray(x, np.float64))
    return next(bits for bits in range(1, 54) if np.all(fractions * 2.0**bits % 1 == 0))


def test_float16_rounds_to_11_significand_bits():
    normal = VALUES[np.abs(VALUES) > 1e-4]  # float16 has fewer bits below 6.1e-5
    assert np.array_equal(
        round_to_nearest(normal, 11), normal.astype(np.float16).astype(np.float32)
    )
    half = PRECISIONS["float16"]
    assert half.round_value(np.float32([1e6, 1e-9])).tolist() == [np.inf, 0.0]


@pytest.mark.parametrize("bits", [8, 11])
def test_nearest_rounds_to_the_nearest_value_and_ties_to_even(bits):
    rounded = round_to_nearest(VALUES, bits)
    assert significand_bits(rounded) == bits
    spacing = 2.0 ** (np.floor(np.log2(np.abs(VALUES[:-4]))) - bits + 1)
    assert np.all(np.abs(rounded[:-4] - VALUES[:-4]) <= spacing / 2)
    ulp = np.float32(2.0 ** (1 - bits))
    assert round_to_nearest(1 + ulp * np.float32([0.5, 1.5]), bits).tolist() == [1, 1 + 2 * ulp]
    assert np.array_equal(
        round_to_nearest(np.float32([np.inf, np.nan]), bits), [np.inf, np.nan], True
    )


def train_lenet(precision, network=LENET.network):
    """Return LeNet's forward and backward pass, batch 4; `precision` can be a name."""
    parameters = initial_parameters(network, 0)
    images, labels = synthetic_batch(LENET, 4, 0)
    rounded = PRECISIONS.get(precision, precision)
    activations = graph.forward(
        network, parameters, images, labels, training=True, precision=rounded
    )
    return activations, graph.backward(network, parameters, activations, network.shapes)


def test_bfloat16_rounds_layer_outputs_and_gradients():
    activations, gradients = train_lenet("bfloat16")
    for name, value in activations.outputs.items():
        if name not in ("data", "loss"):
            assert significand_bits(value) <= 8, name
    for name, value in {**gradients.parameters, **gradients.outputs}.items():
        assert significand_bits(value) <= 8 or name in ("loss", "data"), name


def test_float16_scales_the_loss_to_keep_small_gradients():
    """Gradients that are smaller by the loss scale lose no more than others without it."""
    half, layers = PRECISIONS["float16"], LENET.network.layers
    unscaled_float16, share = replace(half, loss_scale=1.0), 1 / half.loss_scale
    lightly_weighted = replace(
        LENET.network, layers=(*layers[:-1], replace(layers[-1], weight=share))
    )
    scaled, unscaled, full_weight = (
        train_lenet(precision, network)[1].parameters
        for precision, network in (
            (half, lightly_weighted),
            (unscaled_float16, lightly_weighted),
            (unscaled_float16, LENET.network),
        )
    )
    for name, gradient in full_weight.items():
        assert np.array_equal(scaled[name], share * gradient), name
    assert not np.array_equal(unscaled["conv1/weight"], scaled["conv1/weight"])


def test_tf32_rounds_only_the_inputs_of_products():
    activations, gradients = train_lenet("tf32")
    assert significand_bits(activations.outputs["conv1"]) > 11
    assert significand_bits(gradients.parameters["conv1/weight"]) > 11
    images, weight, bias = (
        round_to_nearest(value, 11)
        for value in (
            activations.outputs["data"],
            initial_parameters(LENET.network, 0)["conv1/weight"],
            initial_parameters(LENET.network, 0)["conv1/bias"],
        )
    )
    exact, _ = train_lenet("float32")
    assert not np.array_equal(activations.outputs["conv1"], exact.outputs["conv1"])
    rows = np.einsum("nchw,ochw->no", images[:, :, :5, :5], weight) + bias
    assert np.allclose(activations.outputs["conv1"][:, :, 0, 0], rows, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("coarse", "fine"), [("bfloat16", "tf32"), ("tf32", "float32")])
def test_a_coarser_precision_is_farther_from_the_truth(coarse, fine):
    truth, _ = train_lenet("float64")
    coarse_error, fine_error = (
        np.linalg.norm(train_lenet(p)[0].outputs["ip2"] - truth.outputs["ip2"])
        for p in (coarse, fine)
    )
    assert coarse_error > 2 * fine_error
