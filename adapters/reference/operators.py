"""Layers without windows as pure functions: inner product, ReLU, LRN, batch norm, loss.

Arguments and results:

- `x`: the input of a layer, shape (N, C, H, W) or (N, C).
- `dy`: the gradient of the loss with respect to the layer's output.
- `dx`: the gradient of the loss with respect to `x`.

No function stores anything or changes its arguments. All arrays have the same dtype, in which
everything is computed. `graph` connects the layers.
"""

from __future__ import annotations

from typing import Tuple

import numpy as np

from xfbench.adapters.reference import windows
from xfbench.workloads import layers as xl

Pair = Tuple[np.ndarray, np.ndarray]


def shift_gradient(dy: np.ndarray) -> np.ndarray:
    """Return the gradient of a bias or shift, shape (C,): the sum of `dy` over images and pixels.

    In float32 the pixels are added one after another, the least exact order that frameworks use. If
    a batch norm follows, the exact sum is 0. Then the result is only the rounding error of the
    addition.
    """
    if dy.dtype != np.float32:
        return channel_sums(dy)
    rows = dy.swapaxes(0, 1).reshape(dy.shape[1], -1)
    sums: np.ndarray = np.add.accumulate(rows, axis=1)[:, -1]
    return sums


def channel_sums(x: np.ndarray) -> np.ndarray:
    """Return the sum of each channel over images and pixels, shape (C,)."""
    sums: np.ndarray = x.sum(axis=(0, *range(2, x.ndim)))
    return sums


def inner_product(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return the product of each image and `weight`, plus `bias`.

    Images are flattened in C, H, W order. `weight` is (channels, C * H * W). `bias` is (channels,),
    or None for no bias.
    """
    y: np.ndarray = x.reshape(len(x), -1) @ weight.T
    return y if bias is None else y + bias


def inner_product_weight_gradient(x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return the gradient of the weight, shape (channels, C * H * W)."""
    gradient: np.ndarray = dy.T @ x.reshape(len(x), -1)
    return gradient


def inner_product_input_gradient(x: np.ndarray, weight: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return the gradient of the input, in the shape of `x`."""
    dx: np.ndarray = dy @ weight
    return dx.reshape(x.shape)


def relu(x: np.ndarray) -> np.ndarray:
    """Return max(0, x)."""
    y: np.ndarray = np.maximum(x, 0)
    return y


def relu_gradient(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return the gradient of the input: `dy` where the output `y` is positive, else 0."""
    return dy * (y > 0)


def lrn(layer: xl.LRN, x: np.ndarray) -> np.ndarray:
    """Return x * s ** -beta, where s = k + alpha / n * (sum of the squares of n neighbours).

    The n neighbours of a value include the value itself. Raises ValueError if the size of `layer`
    is even.
    """
    return x * _lrn_scale(layer, x) ** -layer.beta


def lrn_gradient(layer: xl.LRN, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return dy * s ** -beta - 2 * alpha * beta / n * x * sum(dy * x * s ** (-beta - 1)).

    The sum is over the n neighbours and s is the same as in `lrn`.
    """
    scale = _lrn_scale(layer, x)
    direct = dy * scale**-layer.beta
    factor = 2 * layer.alpha * layer.beta / _neighbour_count(layer)
    dx: np.ndarray = direct - factor * x * _neighbour_sums(layer, direct * x / scale)
    return dx


def batch_statistics(x: np.ndarray) -> Pair:
    """Return (mean, biased variance) of the channels of `x`, each of shape (C,)."""
    count = x.size // x.shape[1]
    mean = channel_sums(x) / count
    return mean, channel_sums((x - _per_channel(mean, x)) ** 2) / count


def batch_norm(
    layer: xl.BatchNorm, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, statistics: Pair
) -> np.ndarray:
    """Return gamma * (x - mean) / sqrt(variance + eps) + beta.

    `statistics` is (mean, variance), each of shape (C,).
    """
    normalised, _ = _normalised_and_deviation(layer, x, statistics)
    y: np.ndarray = normalised * _per_channel(gamma, x) + _per_channel(beta, x)
    return y


def batch_norm_parameter_gradients(layer: xl.BatchNorm, x: np.ndarray, dy: np.ndarray) -> Pair:
    """Return the gradients of (gamma, beta) in training, each of shape (C,)."""
    normalised, _ = _normalised_and_deviation(layer, x, batch_statistics(x))
    return shift_gradient(dy * normalised), shift_gradient(dy)


def batch_norm_input_gradient(
    layer: xl.BatchNorm, x: np.ndarray, gamma: np.ndarray, dy: np.ndarray
) -> np.ndarray:
    """Return the gradient of the input in training, where mean and variance also depend on `x`."""
    normalised, deviation = _normalised_and_deviation(layer, x, batch_statistics(x))
    count = x.size // x.shape[1]
    mean = _per_channel(channel_sums(dy) / count, x)
    slope = _per_channel(channel_sums(dy * normalised) / count, x)
    dx: np.ndarray = (dy - mean - normalised * slope) * _per_channel(gamma / deviation, x)
    return dx


def running_averages(
    layer: xl.BatchNorm, x: np.ndarray, statistics: Pair, mean: np.ndarray, variance: np.ndarray
) -> Pair:
    """Return the running averages (mean, variance) after a training step on `x`.

    - `statistics`: (mean, biased variance) of `x`, as returned by `batch_statistics`.
    - `mean`, `variance`: the running averages before the step.

    The running variance is updated with the unbiased variance of `x`. If each channel of `x` has a
    single value, the biased variance is used instead.
    """
    count = x.size // x.shape[1]
    batch_mean, biased = statistics
    unbiased = biased * (count / max(count - 1, 1))
    old, new = layer.momentum, 1 - layer.momentum
    return old * mean + new * batch_mean, old * variance + new * unbiased


def mean_softmax_loss(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the batch mean of -log softmax(x)[label], without the layer's weight, shape ().

    Here a probability has no lower limit. In Caffe's loss the limit is the smallest normal float32.
    Caffe's loss is therefore at most 87.3 per image, but its gradient has no limit. The comparison
    with Caffe allows for this difference.
    """
    return np.asarray(-_log_softmax(x)[np.arange(len(x)), labels].mean(), x.dtype)


def mean_softmax_loss_gradient(x: np.ndarray, labels: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return the gradient of the input.

    `dy`, shape (), is the weight of the loss layer times the loss scale of the precision.
    """
    dx: np.ndarray = np.exp(_log_softmax(x))
    dx[np.arange(len(x)), labels] -= 1
    dx *= float(dy) / len(x)
    return dx


def _neighbour_count(layer: xl.LRN) -> int:
    return layer.size if layer.region == "across" else layer.size**2


def _neighbour_sums(layer: xl.LRN, x: np.ndarray) -> np.ndarray:
    """Return, for each value of `x`, the sum of its neighbours and itself.

    Neighbours outside the array count as 0. Raises ValueError if the size of `layer` is even.
    """
    if layer.size % 2 == 0:
        raise ValueError(f"{layer.name}: the size of an LRN layer must be odd")
    half = layer.size // 2
    if layer.region == "within":
        square = xl.Pooling(layer.name, layer.inputs, "average", layer.size, 1, half)
        return windows.window_sums(square, x)
    channels = x.shape[1]
    padded = np.zeros((len(x), channels + 2 * half, *x.shape[2:]), x.dtype)
    padded[:, half : half + channels] = x
    sums = np.zeros_like(x)
    for shift in range(layer.size):
        sums += padded[:, shift : shift + channels]
    return sums


def _lrn_scale(layer: xl.LRN, x: np.ndarray) -> np.ndarray:
    return layer.k + layer.alpha / _neighbour_count(layer) * _neighbour_sums(layer, x * x)


def _per_channel(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return `values`, shape (C,), in a shape that broadcasts over the channels of `x`."""
    return values.reshape(-1, *(1,) * (x.ndim - 2))


def _normalised_and_deviation(layer: xl.BatchNorm, x: np.ndarray, statistics: Pair) -> Pair:
    """Return ((x - mean) / deviation, deviation), where deviation is sqrt(variance + eps)."""
    mean, variance = statistics
    deviation = np.sqrt(variance + layer.eps)
    return (x - _per_channel(mean, x)) / _per_channel(deviation, x), deviation


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=1, keepdims=True)
    logarithm: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logarithm
