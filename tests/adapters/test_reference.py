"""Tests of the reference against slopes, loops written from the definitions, and itself.

They need only NumPy. `xfbench verify` compares frameworks with the reference.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xfbench.adapters.reference import graph, train
from xfbench.environments import worker_archive
from xfbench.model import adapter
from xfbench.worker import loop
from xfbench.worker.protocol import Group, Options
from xfbench.workloads import workloads
from xfbench.workloads.layers import (
    LRN,
    BatchNorm,
    Concat,
    Convolution,
    Dropout,
    Eltwise,
    InnerProduct,
    Layer,
    Network,
    Pooling,
    ReLU,
    Shape,
    SoftmaxLoss,
)
from xfbench.workloads.solver import Solver

CLASSES = 3
BATCH = 3


def build_network(shape: tuple[int, int, int], *layers: Layer) -> Network:
    """Return a network of `layers` followed by a classifier of the last output."""
    return Network(
        "small",
        shape,
        CLASSES,
        (*layers, InnerProduct("ip", (layers[-1].name,), CLASSES), SoftmaxLoss("loss", ("ip",))),
    )


def build_chain(shape: tuple[int, int, int], layer: Layer) -> Network:
    return build_network(shape, layer)


X = ("data",)
SMALL: dict[str, Network] = {
    "convolution": build_chain((2, 7, 5), Convolution("c", X, 3, kernel=3, stride=2, pad=1)),
    "convolution, grouped": build_chain(
        (4, 6, 7), Convolution("c", X, 6, kernel=5, stride=2, pad=2, groups=2, bias=False)
    ),
    "convolution, 1×1": build_chain((5, 3, 4), Convolution("c", X, 4, kernel=1)),
    "convolution, 1×1 grouped": build_chain((6, 3, 2), Convolution("c", X, 3, kernel=1, groups=3)),
    "convolution, 1×1 strided": build_chain((3, 5, 6), Convolution("c", X, 2, kernel=1, stride=2)),
    "convolution, pixels unread": build_chain(
        (2, 9, 8), Convolution("c", X, 2, kernel=2, stride=3, pad=1)
    ),
    "inner product": build_chain((2, 3, 2), InnerProduct("i", X, 4, bias=False)),
    "max pooling": build_chain((2, 7, 6), Pooling("p", X, "max", kernel=3, stride=2)),
    "max pooling, padded": build_chain(
        (2, 3, 7), Pooling("p", X, "max", kernel=2, stride=2, pad=1)
    ),
    "max pooling, stride 1": build_chain(
        (2, 5, 4), Pooling("p", X, "max", kernel=3, stride=1, pad=1)
    ),
    "average pooling": build_chain((2, 8, 6), Pooling("p", X, "average", kernel=3, stride=2)),
    "average pooling, padded": build_chain(
        (2, 6, 8), Pooling("p", X, "average", kernel=3, stride=2, pad=1)
    ),
    "average pooling, wide": build_chain((1, 9, 7), Pooling("p", X, "average", kernel=5, stride=3)),
    "relu": build_chain((3, 4, 3), ReLU("r", X)),
    "lrn across": build_chain(
        (7, 2, 3), LRN("n", X, "across", size=5, alpha=2.0, beta=0.75, k=1.5)
    ),
    "lrn across few channels": build_chain((2, 3, 2), LRN("n", X, "across", size=5, alpha=1.0)),
    "lrn within": build_chain((2, 5, 4), LRN("n", X, "within", size=3, alpha=2.0, beta=0.6)),
    "lrn within, wide": build_chain((1, 3, 4), LRN("n", X, "within", size=5, alpha=3.0)),
    "batch norm": build_chain((3, 4, 3), BatchNorm("b", X)),
    "batch norm, flat": build_network((2, 3, 2), InnerProduct("i", X, 4), BatchNorm("b", ("i",))),
    "batch norm hides a bias": build_network(
        (2, 4, 5), Convolution("c", X, 3, kernel=3), BatchNorm("b", ("c",)), ReLU("r", ("b",))
    ),
    "dropout": build_chain((2, 4, 4), Dropout("d", X, 0.4)),
    "concat": build_network(
        (2, 5, 4),
        Convolution("c", X, 3, kernel=3, pad=1),
        Pooling("p", X, "max", kernel=3, stride=1, pad=1),
        Concat("both", ("p", "c", "data")),
    ),
    "eltwise": build_network(
        (2, 4, 3), Convolution("c", X, 2, kernel=3, pad=1), Eltwise("e", ("data", "c", "data"))
    ),
    "fan-out": build_network(
        (2, 5, 5),
        Convolution("stem", X, 4, kernel=3, pad=1),
        ReLU("r", ("stem",)),
        Convolution("left", ("r",), 4, kernel=1),
        LRN("right", ("r",), "across", size=3, alpha=1.0),
        Eltwise("e", ("left", "r", "right")),
        BatchNorm("b", ("e",)),
    ),
    "two heads": Network(
        "small",
        (2, 4, 4),
        CLASSES,
        (
            Convolution("c", X, 2, kernel=3),
            InnerProduct("side", ("c",), CLASSES),
            SoftmaxLoss("side/loss", ("side",), 0.3),
            ReLU("r", ("c",)),
            InnerProduct("ip", ("r",), CLASSES),
            SoftmaxLoss("loss", ("ip",)),
        ),
    ),
    "a layer that nothing reads": Network(
        "small",
        (2, 4, 4),
        CLASSES,
        (
            Convolution("dead", X, 2, kernel=3),
            InnerProduct("ip", X, CLASSES),
            SoftmaxLoss("loss", ("ip",)),
        ),
    ),
}
every_network = pytest.mark.parametrize("network", SMALL.values(), ids=SMALL)


def build_parameters(network: Network, random: np.random.RandomState) -> dict[str, np.ndarray]:
    """Return parameters with which every layer matters: none zero, outputs of size about one."""
    parameters = {}
    for name, parameter in network.parameters.items():
        values = random.standard_normal(parameter.shape)
        if name.endswith("weight"):
            values /= np.sqrt(np.prod(parameter.shape[1:]))
        if name.endswith(("gamma", "variance")):
            values = 0.5 + np.abs(values)
        parameters[name] = values
    return parameters


def build_problem(network: Network, seed: int, precision: str = "float64") -> dict[str, Any]:
    """Return parameters, images, labels and masks for `graph.forward`."""
    random = np.random.RandomState(seed)
    dtype = np.dtype(precision)
    masks = {
        layer.name: (random.random_sample((BATCH, *network.shapes[layer.name])) >= layer.ratio)
        / (1 - layer.ratio)
        for layer in network.layers
        if isinstance(layer, Dropout)
    }
    return {
        "parameters": {k: v.astype(dtype) for k, v in build_parameters(network, random).items()},
        "images": random.standard_normal((BATCH, *network.input_shape)).astype(dtype),
        "labels": random.randint(0, network.classes, BATCH),
        "masks": {name: mask.astype(dtype) for name, mask in masks.items()},
    }


def compute_gradients(network: Network, problem: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the gradients of every learned parameter and of "data"."""
    activations = graph.forward(network, training=True, **problem)
    gradients = graph.backward(network, problem["parameters"], activations, ["data"])
    return {**gradients.parameters, **gradients.outputs}


def shift_problem(
    problem: dict[str, Any], direction: dict[str, np.ndarray], distance: float
) -> dict[str, Any]:
    """Add `distance` times `direction` to the parameters and images of a problem."""
    values = {
        name: value + distance * direction[name] if name in direction else value
        for name, value in {**problem["parameters"], "data": problem["images"]}.items()
    }
    return {**problem, "images": values.pop("data"), "parameters": values}


def compute_slope(
    network: Network, problem: dict[str, Any], direction: dict[str, np.ndarray]
) -> float:
    # Small enough that hardly any ReLU or maximum switches, large compared with rounding.
    step = 1e-7
    loss_ahead, loss_behind = (
        graph.forward(network, training=True, **shift_problem(problem, direction, distance)).loss
        for distance in (step, -step)
    )
    return (loss_ahead - loss_behind) / (2 * step)


@every_network
def test_each_gradient_is_the_slope_of_the_loss(network: Network) -> None:
    problem = build_problem(network, seed=1)
    gradients = compute_gradients(network, problem)
    assert sorted(gradients) == sorted(
        ["data", *(name for name, p in network.parameters.items() if p.learned)]
    )
    for name, gradient in gradients.items():
        slopes = np.zeros_like(gradient)
        for index in np.ndindex(gradient.shape):
            unit = np.zeros_like(gradient)
            unit[index] = 1.0
            slopes[index] = compute_slope(network, problem, {name: unit})
        error = np.linalg.norm(slopes - gradient)
        assert error <= 1e-6 * np.linalg.norm(gradient) + 1e-7, name


@st.composite
def random_networks(draw: st.DrawFn) -> Network:
    """Draw a chain of layers of any kind and geometry, with shortcuts where shapes allow them."""
    shape = draw(st.tuples(st.integers(1, 4), st.integers(3, 9), st.integers(3, 9)))
    layers: list[Layer] = []
    names = {"data": shape}
    for number in range(draw(st.integers(1, 5))):
        source = draw(st.sampled_from(sorted(names)))
        layer = draw(random_layers(f"layer{number}", source, names))
        layers.append(layer)
        names[layer.name] = layer.output_shape([names[name] for name in layer.inputs])
    return build_network(shape, *layers)


@st.composite
def random_layers(draw: st.DrawFn, name: str, source: str, names: dict[str, Shape]) -> Layer:
    channels, height, width = names[source]
    kind = draw(
        st.sampled_from(
            ["convolution", "max", "average", "relu", "across", "within", "norm", "sum", "concat"]
        )
    )
    inputs = (source,)
    size = draw(st.sampled_from([3, 5]))
    if kind == "convolution":
        kernel = draw(st.integers(1, min(height, width)))
        groups = draw(st.sampled_from([g for g in (1, 2, 3) if channels % g == 0]))
        stride, pad = draw(st.integers(1, 3)), draw(st.integers(0, 2))
        channels_out = groups * draw(st.integers(1, 2))
        return Convolution(
            name, inputs, channels_out, kernel, stride, pad, groups, draw(st.booleans())
        )
    if kind in ("max", "average"):
        kernel = draw(st.integers(1, min(height, width)))
        stride, pad = draw(st.integers(1, kernel)), draw(st.integers(0, kernel - 1))
        return Pooling(name, inputs, kind, kernel, stride, pad)
    if kind in ("across", "within"):
        return LRN(name, inputs, kind, size, alpha=1.5, beta=0.7)
    if kind == "norm":
        return BatchNorm(name, inputs)
    if kind in ("sum", "concat"):
        first = 0 if kind == "sum" else 1
        fits = [n for n in sorted(names) if names[n][first:] == names[source][first:]]
        second_input = draw(st.sampled_from(fits))
        return (Eltwise if kind == "sum" else Concat)(name, (source, second_input))
    return ReLU(name, inputs)


@settings(max_examples=80, derandomize=True)
@given(network=random_networks(), seed=st.integers(0, 1000))
def test_gradients_of_random_networks_are_slopes_of_the_loss(network: Network, seed: int) -> None:
    problem = build_problem(network, seed)
    gradients = compute_gradients(network, problem)
    random = np.random.RandomState(seed + 1)
    direction = {name: random.standard_normal(g.shape) for name, g in gradients.items()}
    expected = sum(float(np.sum(g * direction[name])) for name, g in gradients.items())
    scale = np.sqrt(sum(float(np.sum(g**2)) for g in gradients.values()))
    assert abs(compute_slope(network, problem, direction) - expected) <= 1e-5 * scale + 1e-7


def test_output_gradient_equals_the_input_gradient_of_the_rest() -> None:
    network = SMALL["fan-out"]
    problem = build_problem(network, seed=2)
    activations = graph.forward(network, training=True, **problem)
    parameters = problem["parameters"]
    gradients = graph.backward(network, parameters, activations, network.shapes)
    assert sorted(gradients.outputs) == sorted(network.shapes)
    assert gradients.outputs["loss"] == 1.0
    head, *rest = network.layers
    renamed_layers = [
        type(layer)(
            **{**vars(layer), "inputs": tuple(rename_head(n, head.name) for n in layer.inputs)}
        )
        for layer in rest
    ]
    tail = Network("tail", network.shapes[head.name], CLASSES, tuple(renamed_layers))
    tail_problem = {**problem, "images": activations.outputs[head.name]}
    assert np.array_equal(
        compute_gradients(tail, tail_problem)["data"], gradients.outputs[head.name]
    )


def rename_head(name: str, head: str) -> str:
    return "data" if name == head else name


def pad_images(x: np.ndarray, pad: int) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))


def slow_convolution(
    layer: Convolution, x: np.ndarray, parameters: dict[str, np.ndarray]
) -> np.ndarray:
    images, channels = x.shape[:2]
    padded, kernel, stride = pad_images(x, layer.pad), layer.kernel, layer.stride
    side = [(size - kernel) // stride + 1 for size in padded.shape[2:]]
    y = np.zeros((images, layer.channels, *side))
    input_count, output_count = channels // layer.groups, layer.channels // layer.groups
    for n, o, i, j in np.ndindex(y.shape):
        first = o // output_count * input_count
        for c, u, v in product(range(input_count), range(kernel), range(kernel)):
            pixel = padded[n, first + c, i * stride + u, j * stride + v]
            y[n, o, i, j] += pixel * parameters["weight"][o, c, u, v]
        y[n, o, i, j] += parameters["bias"][o] if layer.bias else 0.0
    return y


def slow_pooling(layer: Pooling, x: np.ndarray) -> np.ndarray:
    def window_bounds(size: int) -> list[tuple[int, int]]:
        """Return (start, end) of each window in the padded input; all start within the pixels."""
        bounds, start = [], -layer.pad
        while not bounds or (bounds[-1][0] + layer.kernel < size + layer.pad and start < size):
            bounds.append((start, min(start + layer.kernel, size + layer.pad)))
            start += layer.stride
        return bounds

    down, across = window_bounds(x.shape[2]), window_bounds(x.shape[3])
    y = np.zeros((*x.shape[:2], len(down), len(across)))
    for n, c, i, j in np.ndindex(y.shape):
        (top, bottom), (left, right) = down[i], across[j]
        pixels = x[n, c, max(top, 0) : bottom, max(left, 0) : right]
        area = (bottom - top) * (right - left)
        y[n, c, i, j] = pixels.max() if layer.method == "max" else pixels.sum() / area
    return y


def slow_lrn(layer: LRN, x: np.ndarray) -> np.ndarray:
    y, half = np.zeros_like(x), layer.size // 2
    count = layer.size if layer.region == "across" else layer.size**2
    for n, c, i, j in np.ndindex(x.shape):
        nearby = [slice(max(index - half, 0), index + half + 1) for index in (c, i, j)]
        if layer.region == "across":
            squares = x[n, nearby[0], i, j] ** 2
        else:
            squares = x[n, c, nearby[1], nearby[2]] ** 2
        scale = layer.k + layer.alpha / count * squares.sum()
        y[n, c, i, j] = x[n, c, i, j] / scale**layer.beta
    return y


@settings(max_examples=150, derandomize=True)
@given(network=random_networks(), seed=st.integers(0, 1000))
def test_outputs_match_loops_written_from_the_definitions(network: Network, seed: int) -> None:
    problem = build_problem(network, seed)
    activations = graph.forward(network, training=True, **problem)
    for layer in network.layers:
        x = activations.outputs[layer.inputs[0]]
        if isinstance(layer, Convolution):
            kinds = layer.parameters([x.shape[1:]])
            layer_parameters = {
                kind: problem["parameters"][f"{layer.name}/{kind}"] for kind in kinds
            }
            expected = slow_convolution(layer, x, layer_parameters)
        elif isinstance(layer, Pooling):
            expected = slow_pooling(layer, x)
        elif isinstance(layer, LRN):
            expected = slow_lrn(layer, x)
        else:
            continue
        output = activations.outputs[layer.name]
        assert output.shape == (BATCH, *network.shapes[layer.name]) == expected.shape
        np.testing.assert_allclose(output, expected, rtol=1e-12, atol=1e-12)


def pool_images(layer: Pooling, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the layer's output, and the share of each pixel in the sum of all outputs."""
    network = build_chain(images.shape[1:], layer)
    parameters = {
        name: np.zeros(p.shape) if name != "ip/weight" else np.ones(p.shape) * [[1], [0], [0]]
        for name, p in network.parameters.items()
    }
    labels = np.ones(len(images), np.int64)
    activations = graph.forward(network, parameters, images, labels, training=True)
    gradients = graph.backward(network, parameters, activations, ["data", layer.name]).outputs
    return activations.outputs[layer.name], gradients["data"] / gradients[layer.name].flat[0]


@pytest.mark.parametrize(
    ("size", "geometry", "windows"),
    [
        (32, (3, 2, 0), 16),  # rounded up
        (112, (3, 2, 0), 56),
        (14, (5, 3, 0), 4),
        (7, (3, 2, 1), 4),
        (3, (2, 2, 1), 2),  # a third window would start in the padding
        (5, (2, 2, 1), 3),
        (28, (3, 1, 1), 28),
    ],
)
@pytest.mark.parametrize("method", ["max", "average"])
def test_pooling_rounds_up_and_drops_windows_in_the_padding(
    size: int, geometry: tuple[int, int, int], windows: int, method: str
) -> None:
    layer = Pooling("p", X, method, *geometry)
    y, _ = pool_images(layer, np.ones((1, 1, size, size)))
    assert y.shape == (1, 1, windows, windows)


def test_average_pooling_divides_by_the_clipped_window() -> None:
    y, _ = pool_images(Pooling("p", X, "average", kernel=3, stride=2, pad=1), np.ones((1, 1, 4, 4)))
    # The first window counts its padding; the last reaches beyond it by one and is clipped.
    side = np.array([2 / 3, 1, 1 / 2])
    np.testing.assert_allclose(y[0, 0], np.outer(side, side))


def test_equal_maxima_send_the_gradient_to_the_first() -> None:
    images = np.zeros((1, 1, 4, 5))
    y, share = pool_images(Pooling("p", X, "max", kernel=3, stride=2), images)
    assert np.all(y == 0)
    expected = np.zeros((4, 5))
    expected[:3:2, :3:2] = 1
    np.testing.assert_allclose(share[0, 0], expected)


def test_padding_is_never_the_maximum() -> None:
    images = -np.arange(1.0, 10.0).reshape(1, 1, 3, 3)
    y, _ = pool_images(Pooling("p", X, "max", kernel=2, stride=2, pad=1), images)
    np.testing.assert_array_equal(y[0, 0], [[-1, -2], [-4, -5]])


@pytest.mark.parametrize("method", ["max", "average"])
def test_pooling_window_without_a_pixel_is_refused(method: str) -> None:
    with pytest.raises(ValueError, match="outside the input"):
        pool_images(Pooling("p", X, method, kernel=1, stride=3), np.ones((1, 1, 5, 5)))


def test_lrn_of_even_size_is_refused() -> None:
    network = build_chain((4, 3, 3), LRN("n", X, "across", size=4))
    with pytest.raises(ValueError, match="must be odd"):
        graph.forward(network, training=True, **build_problem(network, 0))


def test_loss_is_the_weighted_sum_of_the_mean_loss_per_head() -> None:
    network = SMALL["two heads"]
    problem = build_problem(network, seed=3)
    activations = graph.forward(network, training=False, **problem)

    def mean_loss(scores: np.ndarray) -> float:
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        return float(-np.log(shares[np.arange(BATCH), problem["labels"]]).mean())

    side, main = mean_loss(activations.outputs["side"]), mean_loss(activations.outputs["ip"])
    assert activations.loss == pytest.approx(0.3 * side + main, rel=1e-12)
    assert activations.outputs["side/loss"] == pytest.approx(side, rel=1e-12)


def test_huge_loss_is_finite_and_exact() -> None:
    network = build_chain((1, 1, 1), ReLU("r", X))
    parameters = {"ip/weight": np.array([[1e4], [0.0], [0.0]]), "ip/bias": np.zeros(3)}
    images, labels = np.ones((1, 1, 1, 1)), np.array([2])
    activations = graph.forward(network, parameters, images, labels, training=True)
    assert activations.loss == 1e4


POLICIES: dict[str, tuple[Solver, list[float]]] = {
    "fixed": (Solver(0.1), [0.1, 0.1, 0.1, 0.1]),
    "step": (Solver(0.1, "step", gamma=0.1, stepsize=2), [0.1, 0.1, 0.01, 0.01]),
    "inv": (Solver(0.1, "inv", gamma=0.5, power=2.0), [0.1, 0.1 / 2.25, 0.025, 0.016]),
    "poly": (Solver(0.1, "poly", power=2.0, max_iter=4), [0.1, 0.05625, 0.025, 0.00625]),
}


@pytest.mark.parametrize(("solver", "rates"), POLICIES.values(), ids=POLICIES)
def test_updates_follow_the_learning_rate_policy_of_caffe(
    solver: Solver, rates: list[float]
) -> None:
    network = Network(
        "small",
        (2, 1, 1),
        2,
        (
            InnerProduct("ip", X, 2, lr_mult=(1.0, 2.0), decay_mult=(250.0, 0.0)),
            SoftmaxLoss("loss", ("ip",)),
        ),
    )
    solver = Solver(**{**vars(solver), "momentum": 0.8, "weight_decay": 0.004})
    random = np.random.RandomState(4)
    values = {name: random.standard_normal(p.shape) for name, p in network.parameters.items()}
    velocities = {name: np.zeros(p.shape) for name, p in network.parameters.items()}
    weight, bias = float(values["ip/weight"][1, 0]), float(values["ip/bias"][1])
    weight_velocity = bias_velocity = 0.0
    for iteration, rate in enumerate(rates):
        gradients = {n: random.standard_normal(p.shape) for n, p in network.parameters.items()}
        graph.update(
            network,
            solver,
            iteration,
            parameters=values,
            velocities=velocities,
            gradients=gradients,
        )
        weight_gradient, bias_gradient = gradients["ip/weight"][1, 0], gradients["ip/bias"][1]
        weight_velocity = 0.8 * weight_velocity + rate * (weight_gradient + 1.0 * weight)
        bias_velocity = 0.8 * bias_velocity + rate * 2 * bias_gradient
        weight, bias = weight - weight_velocity, bias - bias_velocity
        assert values["ip/weight"][1, 0] == pytest.approx(weight, rel=1e-12)
        assert values["ip/bias"][1] == pytest.approx(bias, rel=1e-12)


def test_lars_scales_the_rate_by_weight_and_gradient_norms() -> None:
    network = Network(
        "small",
        (3, 1, 1),
        2,
        (InnerProduct("ip", X, 2, decay_mult=(2.0, 0.0)), SoftmaxLoss("loss", ("ip",))),
    )
    solver = Solver(0.1, momentum=0.5, weight_decay=0.01, lars=0.02)
    weight, gradient = np.array([[3.0, 0, 0], [0, 4.0, 0]]), np.array([[0, 0, 6.0], [8.0, 0, 0]])
    values = {"ip/weight": weight.copy(), "ip/bias": np.zeros(2)}
    velocities = {"ip/weight": np.ones((2, 3)), "ip/bias": np.zeros(2)}
    graph.update(
        network,
        solver,
        0,
        parameters=values,
        velocities=velocities,
        gradients={"ip/weight": gradient, "ip/bias": np.array([1.0, -1.0])},
    )
    trust = 0.02 * 5 / (10 + 0.01 * 2 * 5)  # norms 5 and 10
    velocity = 0.5 + 0.1 * trust * (gradient + 0.02 * weight)
    np.testing.assert_allclose(values["ip/weight"], weight - velocity, rtol=1e-14)
    np.testing.assert_allclose(values["ip/bias"], [-0.1, 0.1], rtol=1e-14)  # biases start at 0


def build_trainer(
    network: Network, precision: str = "float64", dropout: str = "identity", seed: int = 0
) -> train.ReferenceTrainer:
    options = Options("numpy", 1, precision, dropout=dropout, seed=seed)
    solver = Solver(0.05, "inv", gamma=0.5, power=1.0, weight_decay=0.01)
    trainer = train.build(network, solver, options, Group())
    trainer.assign(build_problem(network, 5)["parameters"])
    return trainer


def load_batch(network: Network, trainer: train.ReferenceTrainer) -> tuple[np.ndarray, np.ndarray]:
    problem = build_problem(network, seed=6)
    return trainer.load(problem["images"].astype(np.float32), problem["labels"])


def test_step_applies_the_update_of_its_gradients() -> None:
    network = SMALL["fan-out"]
    trainer = build_trainer(network)
    batch = load_batch(network, trainer)
    weight, velocity = trainer.parameters()["stem/weight"], 0.0
    for rate in (0.05, 0.05 / 1.5, 0.05 / 2):
        before = trainer.parameters()
        gradient = trainer.gradients(batch)["stem/weight"]
        assert all(np.array_equal(v, before[k]) for k, v in trainer.parameters().items())
        trainer.step(batch)
        velocity = 0.9 * velocity + rate * (gradient + 0.01 * weight)
        weight = weight - velocity
        np.testing.assert_allclose(trainer.parameters()["stem/weight"], weight, rtol=1e-12)
    assert trainer.wait_for_loss() == pytest.approx(
        graph.forward(network, before, *batch, training=True).loss, rel=1e-12
    )


def test_running_averages_use_a_tenth_of_the_unbiased_variance() -> None:
    network = SMALL["batch norm"]
    trainer = build_trainer(network)
    images, labels = load_batch(network, trainer)
    before = trainer.parameters()
    trainer.step((images, labels))
    after = trainer.parameters()
    pixels = images.swapaxes(0, 1).reshape(3, -1)
    mean = 0.9 * before["b/mean"] + 0.1 * pixels.mean(axis=1)
    variance = 0.9 * before["b/variance"] + 0.1 * pixels.var(axis=1, ddof=1)
    np.testing.assert_allclose(after["b/mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(after["b/variance"], variance, rtol=1e-12)


def test_batch_norm_uses_the_batch_only_in_training() -> None:
    network = SMALL["batch norm"]
    problem = build_problem(network, seed=7)
    scale_and_shift = {kind: problem["parameters"][f"b/{kind}"] for kind in ("gamma", "beta")}
    pixels = problem["images"].swapaxes(0, 1).reshape(3, -1)
    batch_statistics = pixels.mean(axis=1), pixels.var(axis=1)
    running_averages = problem["parameters"]["b/mean"], problem["parameters"]["b/variance"]
    for training, (mean, variance) in ((True, batch_statistics), (False, running_averages)):
        activations = graph.forward(network, training=training, **problem)
        normalised = (pixels - mean[:, None]) / np.sqrt(variance + 1e-5)[:, None]
        expected = scale_and_shift["gamma"][:, None] * normalised + scale_and_shift["beta"][:, None]
        output = activations.outputs["b"].swapaxes(0, 1).reshape(3, -1)
        np.testing.assert_allclose(output, expected, rtol=1e-10)
        assert sorted(activations.averages) == (["b/mean", "b/variance"] if training else [])


def test_dropout_multiplies_by_its_mask_in_training_only() -> None:
    network = SMALL["dropout"]
    problem = build_problem(network, seed=8)
    images, mask = problem["images"], problem["masks"]["d"]
    outputs = graph.forward(network, training=True, **problem).outputs
    np.testing.assert_array_equal(outputs["d"], images * mask)
    unmasked = graph.forward(network, training=True, **{**problem, "masks": None}).outputs
    np.testing.assert_array_equal(unmasked["d"], images)
    test_outputs = graph.forward(network, training=False, **problem).outputs
    np.testing.assert_array_equal(test_outputs["d"], images)


def test_random_dropout_is_scaled_and_follows_its_seed() -> None:
    network = build_chain((4, 50, 50), Dropout("d", X, 0.7))

    def first_step(seed: int, dropout: str = "random") -> tuple[np.ndarray, float]:
        trainer = build_trainer(network, dropout=dropout, seed=seed)
        batch = trainer.load(np.ones((2, 4, 50, 50), np.float32), np.array([0, 1]))
        gradient = trainer.gradients(batch)["ip/weight"]
        return gradient, trainer.test_loss(batch)

    (gradient, loss), (same_seed_gradient, _), (other_seed_gradient, other_loss) = (
        first_step(0),
        first_step(0),
        first_step(1),
    )
    assert np.array_equal(gradient, same_seed_gradient)
    assert not np.array_equal(gradient, other_seed_gradient)
    assert loss == other_loss
    identity_gradient, _ = first_step(0, "identity")
    assert not np.any(identity_gradient == 0)
    dropped_share = np.mean(gradient == 0)
    assert dropped_share == pytest.approx(0.7**2, abs=0.03)  # both images lose the pixel


@every_network
def test_float32_computation_stays_in_float32(network: Network) -> None:
    problem = build_problem(network, seed=9, precision="float32")
    activations = graph.forward(network, training=True, **problem)
    gradients = graph.backward(network, problem["parameters"], activations, network.shapes)
    values = dict(problem["parameters"])
    velocities = {name: np.zeros_like(gradient) for name, gradient in gradients.parameters.items()}
    solver = Solver(np.float64(0.1), "poly", power=0.5, max_iter=9, weight_decay=1e-3)
    graph.update(
        network,
        solver,
        1,
        parameters=values,
        velocities=velocities,
        gradients=gradients.parameters,
    )
    for arrays in (
        activations.outputs,
        activations.averages,
        gradients.parameters,
        gradients.outputs,
        values,
    ):
        for name, array in arrays.items():
            assert array.dtype == np.float32, name
    exact = graph.forward(network, training=True, **build_problem(network, seed=9))
    assert activations.loss == pytest.approx(exact.loss, rel=1e-4)
    assert activations.loss != exact.loss


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_parameters_read_back_as_the_same_bytes(precision: str) -> None:
    network = SMALL["fan-out"]
    assigned = build_problem(network, 10, precision)["parameters"]
    trainer = build_trainer(network, precision)
    trainer.assign(assigned)
    returned = trainer.parameters()
    assert list(returned) == list(assigned)
    for name, value in assigned.items():
        assert returned[name].dtype == value.dtype
        assert returned[name].tobytes() == value.tobytes()
    returned["stem/weight"][...] = 0
    assert trainer.parameters()["stem/weight"].tobytes() == assigned["stem/weight"].tobytes()


@pytest.mark.parametrize("name", workloads())
def test_network_outputs_have_the_shapes_the_workload_declares(name: str) -> None:
    network = workloads()[name].network
    parameters = {k: np.full(p.shape, 1e-3, np.float32) for k, p in network.parameters.items()}
    images = np.ones((1, *network.input_shape), np.float32)
    activations = graph.forward(network, parameters, images, np.array([0]), training=False)
    for layer in network.layers:
        batch_axis = () if isinstance(layer, SoftmaxLoss) else (1,)
        assert activations.outputs[layer.name].shape == (*batch_axis, *network.shapes[layer.name])
    # With these weights all classes have the same score.
    heads = sum(layer.weight for layer in network.losses)
    assert activations.loss == pytest.approx(heads * np.log(network.classes), rel=1e-5)


def test_reference_learns_the_digits() -> None:
    workload = workloads()["lenet"]
    request = {
        "batch_size_per_rank": 32,
        "global_batch_size": 32,
        "seed": 0,
        "data": "digits",
        "warmup": 0,
        "window": 1,
        "steps": 60,
        "epochs": None,
    }
    options = Options("numpy", 1, "float32")
    losses = loop.train_and_measure(workload, request, options, train.build, Group())[
        "measurement"
    ]["losses"]
    assert np.mean(losses[:3]) > 2.0
    assert np.mean(losses[-10:]) < 1.0


def trace_reference(folder: Path) -> dict[str, np.ndarray]:
    """Return a trace of the worker archive in its own process, started as the adapter defines."""
    workload = workloads()["convnet"]
    framework_adapter = adapter.load("reference")
    job = {
        "action": "trace",
        "dropout": "identity",
        "output": str(folder / "trace.npz"),
        "workload": workload.to_json(),
        "request": {
            "framework": "reference",
            "kernel": framework_adapter.default_kernel,
            "threads": 1,
            "precision": framework_adapter.precisions[0],
            "device": framework_adapter.devices[0],
            "ranks": 1,
            "strategy": "none",
            "batch_size_per_rank": 2,
            "steps": 3,
            "seed": 0,
            "data": "synthetic",
        },
    }
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps(job))
    variables = {
        name: value.format(threads=1) for name, value in framework_adapter.variables.items()
    }
    archive = worker_archive.ensure_worker_archive("reference")
    subprocess.run(
        [sys.executable, archive, folder / "job.json", folder / "reply.json"],
        env={"PATH": os.environ["PATH"], **variables},
        check=True,
        timeout=60,
    )
    reply = json.loads((folder / "reply.json").read_text())
    assert reply["status"] == "ok", reply
    with np.load(folder / "trace.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def test_repeated_trace_on_a_single_thread_is_bit_identical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XFBENCH_HOME", str(tmp_path / "cache"))
    first_trace, second_trace = (
        trace_reference(tmp_path / "one"),
        trace_reference(tmp_path / "other"),
    )
    assert sorted(first_trace) == sorted(second_trace)
    for name, array in first_trace.items():
        assert array.tobytes() == second_trace[name].tobytes(), name
    assert first_trace["gradient/conv1/weight"].dtype == np.float64
    assert not np.array_equal(first_trace["initial/ip1/weight"], first_trace["final/ip1/weight"])
