"""Layers without windows as pure functions: inner product, ReLU, LRN, batch norm, loss.

As in `windows`, nothing is stored or changed, and a gradient function takes the arguments of
its forward function. `dy` is the gradient with respect to the output, `dx` to the input. All
arrays have the same precision, in which everything is computed. Images are (N, C, H, W), flat
values (N, C). `graph` connects the layers.
"""

from __future__ import annotations

from typing import Tuple

import numpy as np

from xfbench.adapters.reference import windows
from xfbench.workloads import layers as xl

Pair = Tuple[np.ndarray, np.ndarray]


def shift_gradient(dy: np.ndarray) -> np.ndarray:
    """Return the gradient of a bias or shift, which is added to every pixel of a channel, (C,).

    In float32 pixels are added one after another, the least exact order in use. Before a batch
    norm the exact sum is zero, and the result is the rounding of this order.
    """
    if dy.dtype != np.float32:
        return channel_sums(dy)
    rows = dy.swapaxes(0, 1).reshape(dy.shape[1], -1)
    sums: np.ndarray = np.add.accumulate(rows, axis=1)[:, -1]
    return sums


def channel_sums(x: np.ndarray) -> np.ndarray:
    """Return the sum over images and pixels of each channel, (C,)."""
    sums: np.ndarray = x.sum(axis=(0, *range(2, x.ndim)))
    return sums


def inner_product(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return `x`, flattened in C, H, W order, times `weight` (channels, C * H * W), plus `bias`."""
    y: np.ndarray = x.reshape(len(x), -1) @ weight.T
    return y if bias is None else y + bias


def inner_product_weight_gradient(x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return the gradient in the weight's shape, (channels, C * H * W)."""
    gradient: np.ndarray = dy.T @ x.reshape(len(x), -1)
    return gradient


def inner_product_input_gradient(x: np.ndarray, weight: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return the gradient in the shape of `x`."""
    dx: np.ndarray = dy @ weight
    return dx.reshape(x.shape)


def relu(x: np.ndarray) -> np.ndarray:
    """max(0, x)."""
    y: np.ndarray = np.maximum(x, 0)
    return y


def relu_gradient(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return the gradient of the input: `dy` where `y` is positive, else 0 (also at x = 0)."""
    return dy * (y > 0)


def lrn(layer: xl.LRN, x: np.ndarray) -> np.ndarray:
    """Return x * s ** -beta, where s = k + alpha / n * (sum of the n neighbours' squares).

    Raises ValueError for an even size.
    """
    return x * _lrn_scale(layer, x) ** -layer.beta


def lrn_gradient(layer: xl.LRN, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return dy * s ** -beta - 2 * alpha * beta / n * x * sum(dy * x * s ** (-beta - 1)).

    A pixel is a neighbour of its neighbours, so the sum is the forward one.
    """
    scale = _lrn_scale(layer, x)
    direct = dy * scale**-layer.beta
    factor = 2 * layer.alpha * layer.beta / _neighbour_count(layer)
    dx: np.ndarray = direct - factor * x * _neighbour_sums(layer, direct * x / scale)
    return dx


def batch_statistics(x: np.ndarray) -> Pair:
    """Return the mean and biased variance of each channel, (C,) both."""
    count = x.size // x.shape[1]
    mean = channel_sums(x) / count
    return mean, channel_sums((x - _per_channel(mean, x)) ** 2) / count


def batch_norm(
    layer: xl.BatchNorm, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, statistics: Pair
) -> np.ndarray:
    """Return gamma * (x - mean) / sqrt(variance + eps) + beta.

    `statistics` are (mean, variance).
    """
    normalised, _ = _normalised_and_deviation(layer, x, statistics)
    y: np.ndarray = normalised * _per_channel(gamma, x) + _per_channel(beta, x)
    return y


def batch_norm_parameter_gradients(layer: xl.BatchNorm, x: np.ndarray, dy: np.ndarray) -> Pair:
    """Return the gradients of gamma and beta in training, (C,) both."""
    normalised, _ = _normalised_and_deviation(layer, x, batch_statistics(x))
    return shift_gradient(dy * normalised), shift_gradient(dy)


def batch_norm_input_gradient(
    layer: xl.BatchNorm, x: np.ndarray, gamma: np.ndarray, dy: np.ndarray
) -> np.ndarray:
    """Return the gradient in training, where the statistics also depend on `x`."""
    normalised, deviation = _normalised_and_deviation(layer, x, batch_statistics(x))
    count = x.size // x.shape[1]
    mean = _per_channel(channel_sums(dy) / count, x)
    slope = _per_channel(channel_sums(dy * normalised) / count, x)
    dx: np.ndarray = (dy - mean - normalised * slope) * _per_channel(gamma / deviation, x)
    return dx


def running_averages(
    layer: xl.BatchNorm, x: np.ndarray, statistics: Pair, mean: np.ndarray, variance: np.ndarray
) -> Pair:
    """Return the averages after a training step on `x`, of the unbiased variance.

    The variance of a single value is not corrected.
    """
    count = x.size // x.shape[1]
    batch_mean, biased = statistics
    unbiased = biased * (count / max(count - 1, 1))
    old, new = layer.momentum, 1 - layer.momentum
    return old * mean + new * batch_mean, old * variance + new * unbiased


def mean_softmax_loss(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the mean over the batch of -log softmax(x)[label], unweighted, shape ().

    The probability has no lower limit. Caffe's is the smallest normal float32, so its value
    (but not its gradient) is at most 87.3 per image; the comparison with Caffe allows for it.
    """
    return np.asarray(-_log_softmax(x)[np.arange(len(x)), labels].mean(), x.dtype)


def mean_softmax_loss_gradient(x: np.ndarray, labels: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return the input gradient; `dy`, shape (), is the loss layer's weight in the total."""
    dx: np.ndarray = np.exp(_log_softmax(x))
    dx[np.arange(len(x)), labels] -= 1
    dx *= float(dy) / len(x)
    return dx


def _neighbour_count(layer: xl.LRN) -> int:
    return layer.size if layer.region == "across" else layer.size**2


def _neighbour_sums(layer: xl.LRN, x: np.ndarray) -> np.ndarray:
    """Return the sums over each pixel's neighbours and itself, with zeros beyond the edges."""
    if layer.size % 2 == 0:
        raise ValueError(f"{layer.name}: an even number of neighbours has no middle")
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
    """Return values of shape (C,) in a shape that broadcasts over the channels of `x`."""
    return values.reshape(-1, *(1,) * (x.ndim - 2))


def _normalised_and_deviation(layer: xl.BatchNorm, x: np.ndarray, statistics: Pair) -> Pair:
    """Return (x - mean) / deviation, and the deviation sqrt(variance + eps), (C,)."""
    mean, variance = statistics
    deviation = np.sqrt(variance + layer.eps)
    return (x - _per_channel(mean, x)) / _per_channel(deviation, x), deviation


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=1, keepdims=True)
    logarithm: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logarithm
