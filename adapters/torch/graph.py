"""A network as one PyTorch module that runs the layers in order."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from xfbench.workloads import layers as xl


class _LRN(nn.Module):  # type: ignore[misc]
    """Local response normalisation (LRN), composed of other operations.

    Across channels, a 1x1 convolution sums the squares. Its weights are a band matrix of zeros and
    ones. PyTorch's own LRN uses a five-dimensional average pooling, which is several times slower.
    In mixed precision, this class uses PyTorch's own LRN across channels, because the convolution
    would round the sums.
    """

    def __init__(self, layer: xl.LRN, channels: int) -> None:
        super().__init__()
        self.layer = layer
        channel = torch.arange(channels)
        near = (channel[:, None] - channel).abs() <= layer.size // 2
        self.register_buffer("band", near[:, :, None, None].float(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer = self.layer
        if layer.region == "within":
            mean = functional.avg_pool2d(x * x, layer.size, stride=1, padding=layer.size // 2)
        elif x.dtype == self.band.dtype:
            mean = functional.conv2d(x * x, self.band) / layer.size
        else:  # the convolution would round the sums to this lower precision
            return functional.local_response_norm(x, layer.size, layer.alpha, layer.beta, layer.k)
        scale = layer.k + layer.alpha * mean
        if layer.beta == 0.75:  # two roots are several times faster than a power
            return x * (scale * scale.sqrt()).rsqrt()
        return x * scale**-layer.beta


class Graph(nn.Module):  # type: ignore[misc]
    """A module that runs the layers and returns (weighted loss, scores of the main head).

    - If `dropout` is false, dropout layers do nothing.
    - `forward` adds "data" and the output of each layer to `collected_outputs`, by layer name. Loss
      layers are excluded. None: nothing is collected.
    - An output is freed after the last layer that reads it, so that less memory is used.
    """

    def __init__(self, network: xl.Network, dropout: bool) -> None:
        super().__init__()
        self.network = network
        self.scope: Any = nullcontext  # the context in which a layer runs, such as a profiler range
        last = {name: layer.name for layer in network.layers for name in layer.inputs}
        self.done_after: dict[str, list[str]] = {layer.name: [] for layer in network.layers}
        for name, reader in last.items():
            if name != network.scores_layer:
                self.done_after[reader].append(name)
        self.parts = nn.ModuleList(
            _build_module(layer, network.input_shapes(layer), dropout) for layer in network.layers
        )

    def forward(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        collected_outputs: dict[str, Any] | None = None,
    ) -> tuple[Any, torch.Tensor]:
        values = {"data": images}
        total: Any = 0.0
        for layer, part in zip(self.network.layers, self.parts):
            inputs = [values[name] for name in layer.inputs]
            with self.scope(layer.name):
                if isinstance(layer, xl.SoftmaxLoss):
                    total = total + layer.weight * functional.cross_entropy(inputs[0], labels)
                elif isinstance(layer, xl.Concat):
                    values[layer.name] = torch.cat(inputs, dim=1)
                elif isinstance(layer, xl.Eltwise):
                    values[layer.name] = sum(inputs[1:], inputs[0])
                elif isinstance(layer, xl.InnerProduct):
                    values[layer.name] = part(inputs[0].flatten(1))
                else:
                    values[layer.name] = part(inputs[0])
            if collected_outputs is not None:
                collected_outputs.update(values)
            del inputs
            for name in self.done_after[layer.name]:
                del values[name]
        return total, values[self.network.scores_layer]


def _build_module(layer: xl.Layer, input_shapes: list[xl.Shape], dropout: bool) -> nn.Module:
    if isinstance(layer, xl.Convolution):
        return nn.Conv2d(
            input_shapes[0][0],
            layer.channels,
            layer.kernel,
            layer.stride,
            layer.pad,
            groups=layer.groups,
            bias=layer.bias,
        )
    if isinstance(layer, xl.InnerProduct):
        return nn.Linear(int(np.prod(input_shapes[0])), layer.channels, bias=layer.bias)
    if isinstance(layer, xl.Pooling) and layer.method == "max":
        return nn.MaxPool2d(layer.kernel, layer.stride, layer.pad, ceil_mode=True)
    if isinstance(layer, xl.Pooling):
        # Without padding, `count_include_pad` does not change the result. But if it is true, the
        # gradient that TorchInductor compiles is wrong where a window is clipped: it divides by
        # the size of the whole window.
        counted = layer.pad > 0
        return nn.AvgPool2d(
            layer.kernel, layer.stride, layer.pad, ceil_mode=True, count_include_pad=counted
        )
    if isinstance(layer, xl.ReLU):
        return nn.ReLU()
    if isinstance(layer, xl.LRN):
        return _LRN(layer, input_shapes[0][0])
    if isinstance(layer, xl.Dropout):
        return nn.Dropout(layer.ratio) if dropout else nn.Identity()
    if isinstance(layer, xl.BatchNorm):
        return nn.BatchNorm2d(input_shapes[0][0], eps=layer.eps, momentum=1 - layer.momentum)
    return nn.Identity()  # `Graph.forward` computes Concat, Eltwise and SoftmaxLoss
