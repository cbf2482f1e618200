"""The layers of a network as TensorFlow operations, channels last.

- Padding is a separate operation, unless TensorFlow's padding "SAME" pads by the same amount.
- LRN is composed of other operations, because `tf.nn.lrn` has no float64 and computes a power per
  element.
- In float64, batch norm is composed of other operations, because the fused operation has no
  float64.
"""

from __future__ import annotations

from math import prod
from typing import Any, Iterable, List, Tuple

import numpy as np
import tensorflow as tf

from xfbench.workloads import layers as xl

Pads = List[Tuple[int, int]]
AverageUpdates = List[Tuple[Any, Any]]


def _padded(x: Any, kernel: int, stride: int, pads: Pads, fill: float = 0.0) -> tuple[Any, str]:
    """Return (input, padding argument) for an operation on `x` padded by `pads`.

    - `pads`: pixels (before, after) of height and of width.
    - `fill`: value of the padding.

    The padding argument is "SAME" if TensorFlow then pads by `pads`. Otherwise it is "VALID", and
    the returned input includes the padding. A list of pixels as padding argument would disable
    oneDNN. In pooling, XLA does not support such a list.
    """
    if not any(map(any, pads)):
        return x, "VALID"
    totals = [max((-(-n // stride) - 1) * stride + kernel - n, 0) for n in x.shape[1:3]]
    if pads == [(total // 2, total - total // 2) for total in totals]:
        return x, "SAME"
    return tf.pad(x, [(0, 0), *pads, (0, 0)], constant_values=fill), "VALID"


def _convolution(layer: xl.Convolution, x: Any, weight: Any) -> Any:
    x, padding = _padded(x, layer.kernel, layer.stride, [(layer.pad, layer.pad)] * 2)
    if layer.groups == 1:
        return tf.nn.conv2d(x, weight, layer.stride, padding)
    # A grouped convolution has no gradient on the CPU.
    parts = zip(tf.split(x, layer.groups, axis=3), tf.split(weight, layer.groups, axis=3))
    return tf.concat([tf.nn.conv2d(*part, layer.stride, padding) for part in parts], axis=3)


def _pooling(layer: xl.Pooling, x: Any) -> Any:
    kernel, stride, pad = layer.kernel, layer.stride, layer.pad
    reached = [(layer.output_size(size) - 1) * stride + kernel - pad for size in x.shape[1:3]]
    if layer.method == "max":
        pads = [(pad, max(end - size, 0)) for end, size in zip(reached, x.shape[1:3])]
        x, padding = _padded(x, kernel, stride, pads, -np.inf)
        return tf.nn.max_pool2d(x, kernel, stride, padding)
    if pad:
        x = tf.pad(x, [(0, 0), (pad, pad), (pad, pad), (0, 0)])
    sizes = x.shape[1:3]
    pads = [(0, max(end + pad - size, 0)) for end, size in zip(reached, sizes)]
    x, padding = _padded(x, kernel, stride, pads)
    mean = tf.nn.avg_pool2d(x, kernel, stride, padding)
    if padding == "SAME" or not any(map(any, pads)):
        return mean
    # The average counted the zeros beyond the padding, so divide by the clipped window.
    starts = [np.arange(count) * stride for count in mean.shape[1:3]]
    inside = [np.minimum(kernel, size - start) for start, size in zip(starts, sizes)]
    share = kernel * kernel / np.outer(*inside)
    return mean * tf.constant(share[:, :, np.newaxis], x.dtype)


def _lrn(layer: xl.LRN, x: Any) -> Any:
    size, half = layer.size, layer.size // 2
    if layer.region == "across":
        channel = np.arange(x.shape[3])
        near = abs(channel[:, np.newaxis] - channel) <= half
        band = tf.constant(near[np.newaxis, np.newaxis], x.dtype)
        squares = tf.nn.conv2d(x * x, band, 1, "VALID") / size
    else:
        padded = tf.pad(x * x, [(0, 0), (half, half), (half, half), (0, 0)])
        squares = tf.nn.avg_pool2d(padded, size, 1, "VALID")
    scale = layer.k + layer.alpha * squares
    if layer.beta == 0.75:  # two roots are several times faster than a power
        return x * tf.math.rsqrt(scale * tf.sqrt(scale))
    return x * tf.pow(scale, -layer.beta)


def batch_norm_and_averages(
    layer: xl.BatchNorm, x: Any, parts: dict[str, Any], training: bool
) -> Any:
    """Return (normalised `x`, updates of the running averages).

    - An update is (variable, new value). In test mode there are no updates.
    - `parts`: the layer's parameters by kind ("gamma", "beta", "mean", "variance").
    """
    gamma, beta, mean, variance = (parts[kind] for kind in ("gamma", "beta", "mean", "variance"))
    if x.dtype == tf.float32:
        # Not `tf.compat.v1.nn.fused_batch_norm`: it raises eps to 1.001e-5.
        y, new_mean, new_variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=gamma,
            offset=beta,
            mean=mean,
            variance=variance,
            epsilon=layer.eps,
            exponential_avg_factor=1 - layer.momentum,
            is_training=training,
        )
        return y, [(mean, new_mean), (variance, new_variance)] if training else []
    if not training:
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, layer.eps), []
    batch_mean, batch_variance = tf.nn.moments(x, [0, 1, 2])
    y = tf.nn.batch_normalization(x, batch_mean, batch_variance, beta, gamma, layer.eps)
    count = prod(x.shape[:3])
    unbiased = batch_variance * (count / (count - 1))
    return y, [
        (old, layer.momentum * old + (1 - layer.momentum) * new)
        for old, new in ((mean, batch_mean), (variance, unbiased))
    ]


def output(layer: xl.Layer, inputs: list[Any], parts: dict[str, Any], dropout: bool) -> Any:
    """Return the output of `layer`, which is not a BatchNorm or SoftmaxLoss.

    - `parts`: the layer's parameters by kind ("weight", "bias").
    - `dropout`: if false, dropout layers do nothing.
    """
    x = inputs[0]
    if isinstance(layer, xl.Convolution):
        y = _convolution(layer, x, parts["weight"])
        return tf.nn.bias_add(y, parts["bias"]) if layer.bias else y
    if isinstance(layer, xl.InnerProduct):
        y = tf.matmul(tf.reshape(x, (x.shape[0], -1)), parts["weight"])
        return tf.nn.bias_add(y, parts["bias"]) if layer.bias else y
    if isinstance(layer, xl.Pooling):
        return _pooling(layer, x)
    if isinstance(layer, xl.ReLU):
        return tf.nn.relu(x)
    if isinstance(layer, xl.LRN):
        return _lrn(layer, x)
    if isinstance(layer, xl.Dropout):
        return tf.nn.dropout(x, layer.ratio) if dropout else x
    if isinstance(layer, xl.Concat):
        return tf.concat(inputs, axis=-1)
    if isinstance(layer, xl.Eltwise):
        return tf.add_n(inputs)
    raise TypeError(f"the TensorFlow adapter does not translate {type(layer).__name__}")


def find_convolution_layouts(nodes: Iterable[Any]) -> set[str]:
    """Return the layouts in which the nodes of an executed graph convolve, such as "NCHW"."""
    return {
        node.attr["data_format"].s.decode()
        for node in nodes
        if "Conv2D" in node.op and "data_format" in node.attr
    }
