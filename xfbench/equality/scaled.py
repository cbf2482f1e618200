"""Give a network initial weights with which every layer has a visible effect.

With its published weights, a layer may have almost no effect. For example, ConvNet's LRN reads the
output of a layer whose weights are about 1e-4. This LRN equals the identity to seven digits, so no
check would notice if it were missing.

The standard deviation of each layer's weights is chosen so that the mean square of the layer's
output is about one. There are two exceptions:

- The input of an LRN is large.
- The input of a batch norm is small: its variance is about the batch norm's eps.

Approximate mean squares suffice. So they are computed from the layers, without a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod, sqrt

from xfbench.workloads import Pixels
from xfbench.workloads import layers as xl

# Approximate factors by which pooling changes the mean square of rectified values. Max pooling
# returns the largest of some similar neighbours, average pooling their mean.
_MAX_POOLING, _AVERAGE_POOLING = 2.0, 0.6
LRN_SHARE = 0.02  # the term that an LRN's neighbours add to k: large enough to be visible
_BATCH_NORM = {
    "gamma_filler": xl.Filler("constant", 1.25),
    "beta_filler": xl.Filler("constant", 0.25),
}
WeightedLayer = xl.Convolution | xl.InnerProduct


def scale_weights(network: xl.Network, pixels: Pixels) -> xl.Network:
    """Return the network with scaled initial weights. Layers, shapes and names stay the same.

    `pixels` defines how the network's input is normalized.
    """
    sizes = {"data": _noise_mean_square(pixels)}
    layers: list[xl.Layer] = []
    for layer in network.layers:
        fillers = _BATCH_NORM if isinstance(layer, xl.BatchNorm) else {}
        if isinstance(layer, WeightedLayer):
            target = _target_mean_square_before_norm(network, layer.name)
            deviation = sqrt(target / (_fan_in(network, layer) * sizes[layer.inputs[0]]))
            fillers = {
                "weight_filler": xl.Filler("gaussian", deviation),
                "bias_filler": xl.Filler("gaussian", 0.01 * sqrt(target)),
            }
        scaled_layer: xl.Layer = replace(layer, **fillers)  # type: ignore[arg-type]
        sizes[layer.name] = _output_mean_square(network, scaled_layer, sizes)
        layers.append(scaled_layer)
    return replace(network, layers=tuple(layers))


def estimate_mean_squares(network: xl.Network, pixels: Pixels) -> dict[str, float]:
    """Return the approximate mean squares of "data" and of all layer outputs at initial weights."""
    sizes = {"data": _noise_mean_square(pixels)}
    for layer in network.layers:
        sizes[layer.name] = _output_mean_square(network, layer, sizes)
    return sizes


def _noise_mean_square(pixels: Pixels) -> float:
    """Return the mean square of uniform noise from 0 to 255 after normalization by `pixels`."""
    mean = sum(pixels.mean) / len(pixels.mean)
    return (256**2 / 12 + (127.5 - mean) ** 2) * pixels.scale**2


def _target_mean_square_before_norm(network: xl.Network, name: str) -> float:
    """Return the mean square that the output of the layer `name` should have.

    - Before an LRN: large enough that the neighbours' squares have a visible effect.
    - Before a batch norm: small enough that eps has a visible effect.
    - Elsewhere: one.
    """
    factor = 1.0
    while True:
        reader = next((layer for layer in network.layers if name in layer.inputs), None)
        if isinstance(reader, xl.LRN):
            return LRN_SHARE / reader.alpha / factor
        if isinstance(reader, xl.BatchNorm):
            return reader.eps / factor
        if not isinstance(reader, xl.ReLU | xl.Pooling):
            return 1.0
        factor *= _output_mean_square(network, reader, {name: 1.0})
        name = reader.name


def _fan_in(network: xl.Network, layer: WeightedLayer) -> int:
    return prod(layer.parameters(network.input_shapes(layer))["weight"].shape[1:])


def _output_mean_square(
    network: xl.Network, layer: xl.Layer, input_mean_squares: Mapping[str, float]
) -> float:
    """Return the mean square of a layer's output, from the mean squares of its inputs by name."""
    size = input_mean_squares[layer.inputs[0]]
    if isinstance(layer, WeightedLayer):
        fan_in = _fan_in(network, layer)
        biases = _filler_mean_square(layer.bias_filler, fan_in) if layer.bias else 0.0
        return fan_in * _filler_mean_square(layer.weight_filler, fan_in) * size + biases
    if isinstance(layer, xl.ReLU):
        return size / 2
    if isinstance(layer, xl.Pooling):
        return size * (_MAX_POOLING if layer.method == "max" else _AVERAGE_POOLING)
    if isinstance(layer, xl.LRN):
        return float(size * (layer.k + layer.alpha * size) ** (-2 * layer.beta))
    if isinstance(layer, xl.BatchNorm):
        return layer.gamma_filler.value**2 * size / (size + layer.eps) + layer.beta_filler.value**2
    if isinstance(layer, xl.Eltwise):
        return sum(input_mean_squares[name] for name in layer.inputs)
    if isinstance(layer, xl.Concat):
        channels = [shape[0] for shape in network.input_shapes(layer)]
        parts = zip(channels, layer.inputs, strict=True)
        return sum(count * input_mean_squares[name] for count, name in parts) / sum(channels)
    return size


def _filler_mean_square(filler: xl.Filler, fan_in: int) -> float:
    """Return the mean square of the values that the filler draws."""
    return {"xavier": 1 / fan_in, "msra": 2 / fan_in}.get(filler.type, filler.value**2)
