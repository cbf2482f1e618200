"""Sums and maxima over square windows in JAX, channels last.

This module implements the gradient of the maximum. JAX's own gradient is several times slower on a
CPU, because it also reduces the positions of all elements.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Pads = Tuple[Tuple[int, int], ...]
_Window = Tuple[int, int, int, int]


def sums(x: Any, kernel: int, stride: int, pads: Pads) -> Any:
    """Return the sum of every window of `kernel` × `kernel` pixels, with zeros as padding.

    `pads` has the pixels of padding (before, after) for height and width.
    """
    return _reduce_windows(x, 0.0, lax.add, kernel, stride, pads)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def maxima(x: Any, kernel: int, stride: int, pads: Pads) -> Any:
    """Return the maximum of every window of `kernel` × `kernel` pixels, ignoring padding.

    `pads` has the pixels of padding (before, after) for height and width. In the backward pass, the
    first maximum of a window gets the window's whole gradient.
    """
    return _reduce_windows(x, -np.inf, lax.max, kernel, stride, pads)


def _reduce_windows(
    x: Any, start: float, operation: Any, kernel: int, stride: int, pads: Pads
) -> Any:
    size: _Window = (1, kernel, kernel, 1)
    steps: _Window = (1, stride, stride, 1)
    return lax.reduce_window(x, start, operation, size, steps, [(0, 0), *pads, (0, 0)])


def _maxima_forward(x: Any, kernel: int, stride: int, pads: Pads) -> tuple[Any, tuple[Any, Any]]:
    largest = maxima(x, kernel, stride, pads)
    return largest, (x, largest)


def _maxima_backward(
    kernel: int, stride: int, pads: Pads, residuals: tuple[Any, Any], output_gradient: Any
) -> tuple[Any]:
    x, largest = residuals
    padded = jnp.pad(x, [(0, 0), *pads, (0, 0)], constant_values=-np.inf)
    spans = [(count - 1) * stride + 1 for count in largest.shape[1:3]]
    free = jnp.ones(largest.shape, bool)
    total = jnp.zeros_like(padded)
    for place in np.ndindex(kernel, kernel):
        stops = [first + span for first, span in zip(place, spans)]
        window_values = padded[:, place[0] : stops[0] : stride, place[1] : stops[1] : stride]
        chosen = free & (window_values == largest)
        free &= ~chosen
        padding = [
            (first, size - end, stride - 1)
            for first, end, size in zip(place, stops, padded.shape[1:3])
        ]
        window_slope = jnp.where(chosen, output_gradient, 0)
        total += lax.pad(
            window_slope, jnp.zeros((), window_slope.dtype), [(0, 0, 0), *padding, (0, 0, 0)]
        )
    inside = [slice(before, before + size) for (before, _), size in zip(pads, x.shape[1:3])]
    return (total[:, inside[0], inside[1]],)


maxima.defvjp(_maxima_forward, _maxima_backward)
