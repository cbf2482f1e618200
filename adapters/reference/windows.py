"""Layers with windows as pure functions: convolution and pooling, written for clarity.

Arguments and results:

- `x`: the input of a layer, shape (N, C, H, W).
- `dy`: the gradient of the loss with respect to the layer's output.
- `dx`: the gradient of the loss with respect to `x`.

No function stores anything or changes its arguments. A gradient function recomputes what it needs
from the forward pass. All arrays have the same dtype, in which everything is computed. The layers
without windows are in `operators`.
"""

from __future__ import annotations

from typing import Iterator, Union

import numpy as np

from xfbench.workloads import layers as xl

Windowed = Union[xl.Convolution, xl.Pooling]


def convolution(
    layer: xl.Convolution, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None
) -> np.ndarray:
    """Return the cross-correlation of `x` and `weight`, plus `bias`.

    It is computed as one matrix product per group. `weight` is (channels, C / groups, kernel,
    kernel). `bias` is (channels,), or None for no bias.
    """
    rows = np.matmul(_kernel_matrices(layer, weight), _window_columns(layer, x))
    y = _from_channel_rows(rows, (len(x), *layer.output_shape([x.shape[1:]])))
    return y if bias is None else y + bias[:, np.newaxis, np.newaxis]


def convolution_weight_gradient(layer: xl.Convolution, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return the gradient of the weight, shape (channels, C / groups, kernel, kernel)."""
    weight = layer.parameters([x.shape[1:]])["weight"]
    columns = _window_columns(layer, x).transpose(0, 2, 1)
    gradient: np.ndarray = np.matmul(_channel_rows(layer, dy), columns)
    return gradient.reshape(weight.shape)


def convolution_input_gradient(
    layer: xl.Convolution, x: np.ndarray, weight: np.ndarray, dy: np.ndarray
) -> np.ndarray:
    """Return the gradient of the input. Each pixel of `dy` adds to all pixels of its window."""
    columns = np.matmul(
        _kernel_matrices(layer, weight).transpose(0, 2, 1), _channel_rows(layer, dy)
    )
    if _is_pointwise(layer):
        return _from_channel_rows(columns, x.shape)
    dx = _allocate_padded(layer, x)
    shares = columns.reshape(x.shape[1], layer.kernel**2, len(x), *dy.shape[2:])
    for place, pixels in enumerate(_views_by_window_position(layer, dx, x.shape)):
        np.add(pixels, shares[:, place].swapaxes(0, 1), out=pixels)
    return _unpadded_view(layer, dx, x.shape)


def max_pooling(layer: xl.Pooling, x: np.ndarray) -> np.ndarray:
    """Return the largest pixel of each window. Padding is ignored.

    Raises ValueError if a window contains no pixel of `x`.
    """
    _refuse_empty_windows(layer, x.shape)
    y = np.full_like(x, -np.inf, shape=(len(x), *layer.output_shape([x.shape[1:]])))
    for pixels in _views_by_window_position(layer, _pad(layer, x, -np.inf), x.shape):
        np.maximum(y, pixels, out=y)
    return y


def max_pooling_gradient(
    layer: xl.Pooling, x: np.ndarray, y: np.ndarray, dy: np.ndarray
) -> np.ndarray:
    """Return the gradient of the input. `y` is the output of `max_pooling`.

    Each window gives its whole `dy` to its largest pixel. If several pixels are the largest, the
    first one in row order gets it.
    """
    dx = _allocate_padded(layer, x)
    searching = np.ones(y.shape, bool)
    sources = _views_by_window_position(layer, _pad(layer, x, -np.inf), x.shape)
    for pixels, gradient in zip(sources, _views_by_window_position(layer, dx, x.shape)):
        is_match = searching & (pixels == y)
        np.add(gradient, dy * is_match, out=gradient)
        searching &= ~is_match
    return _unpadded_view(layer, dx, x.shape)


def window_sums(layer: xl.Pooling, x: np.ndarray) -> np.ndarray:
    """Return the sum of the pixels in each window. Padding is zero."""
    sums = np.zeros_like(x, shape=(len(x), *layer.output_shape([x.shape[1:]])))
    for pixels in _views_by_window_position(layer, _pad(layer, x), x.shape):
        sums += pixels
    return sums


def average_pooling(layer: xl.Pooling, x: np.ndarray) -> np.ndarray:
    """Return the mean of each window.

    Padding counts as zeros. Pixels beyond the padding do not count. Raises ValueError if a window
    contains no pixel of `x`.
    """
    _refuse_empty_windows(layer, x.shape)
    y: np.ndarray = window_sums(layer, x) / _window_sizes(layer, x)
    return y


def average_pooling_gradient(layer: xl.Pooling, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Return the gradient of the input.

    Each window divides its `dy` equally among its positions. The share of a padding pixel is
    dropped.
    """
    dx = _allocate_padded(layer, x)
    share = dy / _window_sizes(layer, x)
    for gradient in _views_by_window_position(layer, dx, x.shape):
        np.add(gradient, share, out=gradient)
    return _unpadded_view(layer, dx, x.shape)


def _is_pointwise(layer: xl.Convolution) -> bool:
    return layer.kernel == 1 and layer.stride == 1 and layer.pad == 0


def _kernel_matrices(layer: xl.Convolution, weight: np.ndarray) -> np.ndarray:
    """Return a matrix per group with one row per output channel.

    The result has the shape (groups, channels / groups, C / groups * kernel ** 2).
    """
    return weight.reshape(layer.groups, len(weight) // layer.groups, -1)


def _channel_rows(layer: xl.Convolution, x: np.ndarray) -> np.ndarray:
    """Return a matrix per group with one row per channel. A row has the pixels of all images.

    The result has the shape (groups, C / groups, N * H * W).
    """
    return x.swapaxes(0, 1).reshape(layer.groups, x.shape[1] // layer.groups, -1)


def _from_channel_rows(rows: np.ndarray, shape: xl.Shape) -> np.ndarray:
    """Undo `_channel_rows`: return `rows` as a view with `shape` (N, C, H, W)."""
    images, channels, height, width = shape
    return rows.reshape(channels, images, height, width).swapaxes(0, 1)


def _window_columns(layer: xl.Convolution, x: np.ndarray) -> np.ndarray:
    """Return a matrix per group with one column per window of every image.

    The result has the shape (groups, C / groups * kernel ** 2, N * windows).
    """
    if _is_pointwise(layer):
        return _channel_rows(layer, x)
    images, channels = x.shape[:2]
    _, height, width = layer.output_shape([x.shape[1:]])
    columns = np.empty((channels, layer.kernel**2, images, height, width), x.dtype)
    for place, pixels in enumerate(_views_by_window_position(layer, _pad(layer, x), x.shape)):
        columns[:, place] = pixels.swapaxes(0, 1)
    return columns.reshape(layer.groups, -1, images * height * width)


def _padded_length(layer: Windowed, size: int, window_count: int) -> int:
    """Return the length of one side of the padded input, in pixels.

    This length has room for the input's `size` pixels and for `window_count` whole windows.
    """
    return max(layer.pad + size, (window_count - 1) * layer.stride + layer.kernel)


def _allocate_padded(layer: Windowed, x: np.ndarray, value: float = 0.0) -> np.ndarray:
    """Return an array filled with `value`, with room for `x`, its padding and all windows."""
    _, height, width = layer.output_shape([x.shape[1:]])
    sides = _padded_length(layer, x.shape[2], height), _padded_length(layer, x.shape[3], width)
    return np.full_like(x, value, shape=(*x.shape[:2], *sides))


def _pad(layer: Windowed, x: np.ndarray, value: float = 0.0) -> np.ndarray:
    """Return a copy of `x` with padding around it. Each padding pixel is `value`."""
    padded = _allocate_padded(layer, x, value)
    _unpadded_view(layer, padded, x.shape)[...] = x
    return padded


def _unpadded_view(layer: Windowed, padded: np.ndarray, shape: xl.Shape) -> np.ndarray:
    """Return a view of `padded` without the padding. `shape` is the shape of the input."""
    _, _, height, width = shape
    start = layer.pad
    return padded[:, :, start : start + height, start : start + width]


def _views_by_window_position(
    layer: Windowed, padded: np.ndarray, shape: xl.Shape
) -> Iterator[np.ndarray]:
    """Yield a view of `padded` for each position in a window, row by row.

    A view has the shape (N, C, windows down, windows across). It contains the pixel at the same
    position of every window. `shape` is the shape of the input without padding.
    """
    _, height, width = layer.output_shape([shape[1:]])
    for row in range(layer.kernel):
        for column in range(layer.kernel):
            rows = slice(row, row + (height - 1) * layer.stride + 1, layer.stride)
            columns = slice(column, column + (width - 1) * layer.stride + 1, layer.stride)
            yield padded[:, :, rows, columns]


def _refuse_empty_windows(layer: xl.Pooling, shape: xl.Shape) -> None:
    """Raise ValueError if a window contains no pixel of an input with `shape`."""
    for size in shape[2:]:
        last = (layer.output_size(size) - 1) * layer.stride
        if layer.pad >= layer.kernel or last >= layer.pad + size:
            raise ValueError(f"{layer.name}: a pooling window lies completely outside the input")


def _window_sizes(layer: xl.Pooling, x: np.ndarray) -> np.ndarray:
    """Return the number of pixels in each window. Pixels beyond the padding do not count.

    The result has the shape (windows down, windows across).
    """
    down, across = (_side_sizes(layer, size) for size in x.shape[2:])
    return np.outer(down, across).astype(x.dtype)


def _side_sizes(layer: xl.Pooling, size: int) -> np.ndarray:
    starts = np.arange(layer.output_size(size)) * layer.stride
    return np.minimum(layer.kernel, size + 2 * layer.pad - starts)
