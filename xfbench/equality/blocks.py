"""Split a network into small blocks of layers, with their real shapes and a probe at the end.

1. A network can be cut at each position where later layers read exactly one earlier value.
2. The layers between two cuts are a piece.
3. Pieces are joined into groups. Each group begins with a piece that has weights.
4. Two neighbouring groups are a block, so that each layer's gradient passes through another layer.
5. A probe follows each block: an inner product whose weights hardly move, and a loss. With the
   probe, the block is a network that any adapter can train.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod, sqrt

from xfbench.equality.scaled import LRN_SHARE, WeightedLayer, estimate_mean_squares
from xfbench.workloads import Pixels
from xfbench.workloads import layers as xl

PROBE_CLASSES = 8
_PROBE_LR_MULT = 1e-6  # not zero: Caffe computes no gradient at a multiplier of 0
# Input of a block that reads no activations: noise between -1 and 1 in each channel.
NOISE = Pixels("", (127.5,), 1 / 127.5)


@dataclass(frozen=True)
class Block:
    """A block as a network of its own.

    - `network`: the block's layers, with the probe unless the block ends in a loss
    - `reads`: the name of the value in the whole network that the block reads as its input; "" if
      the block reads noise
    - `layers`: the names of the block's layers in the whole network
    """

    network: xl.Network
    reads: str
    layers: tuple[str, ...]


def cut_into_distinct_overlapping_blocks(network: xl.Network, pixels: Pixels) -> list[Block]:
    """Return the blocks of the network in order. If blocks differ only in names, keep the first.

    `pixels` defines how the network's input is normalized.
    """
    sizes = estimate_mean_squares(network, pixels)
    groups = _groups_of_pieces_with_weights(network)
    pairs = [a + b for a, b in itertools.pairwise(groups)] or groups
    distinct: dict[object, Block] = {}
    for layers in pairs:
        block = _build_block(network, layers, sizes)
        distinct.setdefault(structure_without_names(block.network), block)
    return list(distinct.values())


def isolate_layer(network: xl.Network, name: str) -> Block:
    """Return a block that tests the layer `name` alone.

    Each input of the layer comes from a stem: a layer with weights that reads noise. The gradients
    of the stems' weights show the gradients that the layer computes for its inputs. If a
    convolution reads the layer, the block includes that convolution, because the memory layout of
    the gradients depends on the convolution.
    """
    layer = next(layer for layer in network.layers if layer.name == name)
    shapes = network.input_shapes(layer)
    height_width = shapes[0][1:]
    channels = max(shape[0] for shape in shapes)
    input_size = sqrt(LRN_SHARE / layer.alpha) if isinstance(layer, xl.LRN) else 1.0
    stems: list[xl.Layer] = []
    for number, shape in enumerate(shapes):
        stem = f"stem{number}"
        filler = xl.Filler("gaussian", input_size * sqrt(3.0 / channels))  # for noise within ±1
        if height_width and prod(height_width) > 1:
            stems.append(xl.Convolution(stem, ("data",), shape[0], 1, weight_filler=filler))
        else:
            stems.append(xl.InnerProduct(stem, ("data",), prod(shape), weight_filler=filler))
    rewired_layer = replace(layer, inputs=tuple(stem.name for stem in stems))
    layers = [*stems, _with_variance_preserving_weights(rewired_layer, shapes)]
    reader = next((la for la in network.layers if name in la.inputs), None)
    if isinstance(reader, xl.Convolution):
        layers.append(_with_variance_preserving_weights(reader, network.input_shapes(reader)))
    layer_network = xl.Network(
        f"{network.name} {name}",
        (channels, *(height_width or (1, 1))),  # type: ignore[arg-type]
        min(PROBE_CLASSES, network.classes),
        tuple(layers),
    )
    last = layers[-1].name
    return Block(
        _add_probe_and_loss(layer_network, last, estimate_mean_squares(layer_network, NOISE)[last]),
        "",
        (name,),
    )


def _with_variance_preserving_weights(layer: xl.Layer, input_shapes: list[xl.Shape]) -> xl.Layer:
    """Return the layer with random weights, so that its output has the mean square of its input.

    A layer without weights is returned unchanged.
    """
    if not isinstance(layer, WeightedLayer):
        return layer
    shape = layer.parameters(input_shapes)["weight"].shape
    return replace(layer, weight_filler=xl.Filler("gaussian", 1 / sqrt(prod(shape[1:]))))


def _groups_of_pieces_with_weights(network: xl.Network) -> list[tuple[xl.Layer, ...]]:
    groups: list[tuple[xl.Layer, ...]] = []
    for piece in _split_into_pieces(network):
        if groups and not any(isinstance(layer, WeightedLayer) for layer in piece):
            groups[-1] += piece
        else:
            groups.append(piece)
    return groups


def _split_into_pieces(network: xl.Network) -> Iterator[tuple[xl.Layer, ...]]:
    """Split the layers of the network into pieces and yield the pieces in order.

    A piece ends after a layer if all later layers together read at most one of the values that are
    computed up to this layer.
    """
    piece: list[xl.Layer] = []
    for number, layer in enumerate(network.layers):
        piece.append(layer)
        if len(_live_values(network, number + 1)) <= 1:
            yield tuple(piece)
            piece = []


def _live_values(network: xl.Network, position: int) -> set[str]:
    """Return the names of values that are computed before layer `position` and read later.

    A layer reads a value later if it is the layer `position` or follows it. The name of a value is
    the name of the layer that computes it, or "data" for the network's input.
    """
    produced = {"data", *(layer.name for layer in network.layers[:position])}
    return {name for layer in network.layers[position:] for name in layer.inputs} & produced


def _build_block(
    network: xl.Network, layers: tuple[xl.Layer, ...], mean_squares_for_probe: Mapping[str, float]
) -> Block:
    position = network.layers.index(layers[0])
    [reads] = _live_values(network, position)
    shape = network.shapes[reads]
    rewired_layers = tuple(
        replace(layer, inputs=tuple("data" if name == reads else name for name in layer.inputs))
        for layer in layers
    )
    block_network = xl.Network(
        f"{network.name} {layers[0].name} to {layers[-1].name}",
        (*shape, *(1,) * (3 - len(shape))),  # type: ignore[arg-type]
        min(PROBE_CLASSES, network.classes),
        rewired_layers,
    )
    leaves = _live_values(network, position + len(layers))
    if leaves:
        leaf = leaves.pop()
        block_network = _add_probe_and_loss(block_network, leaf, mean_squares_for_probe[leaf])
    return Block(block_network, reads, tuple(layer.name for layer in layers))


def _add_probe_and_loss(network: xl.Network, value_name: str, mean_square: float) -> xl.Network:
    """Add a probe and a loss after the value `value_name`, unless the network ends in a loss.

    The probe is an inner product. `mean_square` is the approximate mean square of the value. It
    determines the probe's weights so that the mean square of the scores is about one. The loss is
    then far from both of its extremes.
    """
    if isinstance(network.layers[-1], xl.SoftmaxLoss):
        return network
    filler = xl.Filler("gaussian", 1 / sqrt(prod(network.shapes[value_name]) * mean_square))
    probe = xl.InnerProduct(
        "probe",
        (value_name,),
        PROBE_CLASSES,
        weight_filler=filler,
        lr_mult=(_PROBE_LR_MULT, _PROBE_LR_MULT),
    )
    loss = xl.SoftmaxLoss("probe_loss", ("probe",))
    return replace(network, layers=(*network.layers, probe, loss))


def structure_without_names(network: xl.Network) -> object:
    """Return the structure of the network without names, for comparing blocks."""
    numbers = {"data": -1, **{layer.name: n for n, layer in enumerate(network.layers)}}
    layers = tuple(
        replace(layer, name="", inputs=tuple(str(numbers[name]) for name in layer.inputs))
        for layer in network.layers
    )
    return network.input_shape, layers
