"""Convert parameters between canonical layouts and those of channels-last frameworks.

Channels-last frameworks store convolution weights as (kh, kw, in/groups, out). They store
inner-product weights as (in, out), with the inputs in the order H, W, C.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xfbench.workloads.layers import Convolution, Layer, Network, Shape


@dataclass(frozen=True)
class Layout:
    """The layout in which a framework stores one parameter.

    To convert a canonical array (shape `canonical`) to this layout, reshape it to `view`, permute
    its axes by `axes`, and reshape it to `stored`.
    """

    canonical: Shape
    view: Shape
    axes: Shape
    stored: Shape

    def to_framework_layout(self, array: np.ndarray) -> np.ndarray:
        """Return the canonical `array` in the framework's layout."""
        return array.reshape(self.view).transpose(self.axes).reshape(self.stored)

    def to_canonical_layout(self, array: np.ndarray) -> np.ndarray:
        """Return the framework's `array` in the canonical layout, contiguous in memory."""
        transposed = array.reshape([self.view[axis] for axis in self.axes])
        return np.ascontiguousarray(
            transposed.transpose(np.argsort(self.axes)).reshape(self.canonical)
        )


def parameter_layouts(network: Network) -> dict[str, Layout]:
    """Return the layout of each parameter by the parameter's name."""
    return {
        f"{layer.name}/{kind}": _layout_of_parameter(layer, inputs, kind, parameter.shape)
        for layer in network.layers
        for inputs in [network.input_shapes(layer)]
        for kind, parameter in layer.parameters(inputs).items()
    }


def _layout_of_parameter(
    layer: Layer, input_shapes: list[Shape], parameter_kind: str, shape: Shape
) -> Layout:
    if parameter_kind == "weight" and isinstance(layer, Convolution):
        out, depth, height, width = shape
        return Layout(shape, shape, (2, 3, 1, 0), (height, width, depth, out))
    if parameter_kind == "weight":
        axes = (2, 3, 1, 0) if len(input_shapes[0]) == 3 else (1, 0)
        return Layout(shape, (shape[0], *input_shapes[0]), axes, (shape[1], shape[0]))
    return Layout(shape, shape, (0,), shape)
