"""The same network at weights that make every layer matter.

At its published weights a layer may hardly act: ConvNet's LRN, fed by weights of 1e-4, is
the identity to seven digits, and no check would see it gone. Here the weights' deviations
are chosen so that values keep their size through the network, but are large where an LRN
reads them, and so small before a batch norm that its eps is half of what it divides by.
Estimates of the size suffice, so this is arithmetic on layers, not a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod, sqrt

from xfbench.workloads import Pixels
from xfbench.workloads import layers as xl

# What pooling does to the mean square of rectified values, roughly: the largest of some
# neighbours that resemble one another, or their mean.
_MAX_POOLING, _AVERAGE_POOLING = 2.0, 0.6
LRN_SHARE = 0.02  # how much of an LRN's scale its neighbours make, beside k: enough to see
_BATCH_NORM = {
    "gamma_filler": xl.Filler("constant", 1.25),
    "beta_filler": xl.Filler("constant", 0.25),
}
WeightedLayer = xl.Convolution | xl.InnerProduct


def scale_weights(network: xl.Network, pixels: Pixels) -> xl.Network:
    """`network` with other initial values: the same layers, shapes and parameter names."""
    sizes = {"data": _pixels_mean_square(pixels)}
    layers: list[xl.Layer] = []
    for layer in network.layers:
        fillers = _BATCH_NORM if isinstance(layer, xl.BatchNorm) else {}
        if isinstance(layer, WeightedLayer):
            target = _target_mean_square(network, layer.name)
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
    """About how large "data" and every layer's output are, at the initial weights."""
    sizes = {"data": _pixels_mean_square(pixels)}
    for layer in network.layers:
        sizes[layer.name] = _output_mean_square(network, layer, sizes)
    return sizes


def _pixels_mean_square(pixels: Pixels) -> float:
    """Of uniform noise over 0 to 255 after the workload's own mean and scale."""
    mean = sum(pixels.mean) / len(pixels.mean)
    return (256**2 / 12 + (127.5 - mean) ** 2) * pixels.scale**2


def _target_mean_square(network: xl.Network, name: str) -> float:
    """One, but where an LRN reads the values so much that its neighbours' squares count.

    And so little before a batch norm that its eps does.
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


def _output_mean_square(network: xl.Network, layer: xl.Layer, sizes: Mapping[str, float]) -> float:
    """The mean square of a layer's output, given those of its inputs."""
    size = sizes[layer.inputs[0]]
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
        return sum(sizes[name] for name in layer.inputs)
    if isinstance(layer, xl.Concat):
        channels = [shape[0] for shape in network.input_shapes(layer)]
        parts = zip(channels, layer.inputs, strict=True)
        return sum(count * sizes[name] for count, name in parts) / sum(channels)
    return size


def _filler_mean_square(filler: xl.Filler, fan_in: int) -> float:
    """The mean square of the values it draws."""
    return {"xavier": 1 / fan_in, "msra": 2 / fan_in}.get(filler.type, filler.value**2)
