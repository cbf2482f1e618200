"""Layers and networks as data, with their shapes, parameters and operation counts.

Conventions:

- Output sizes follow Caffe. Convolution rounds its output size down. Pooling rounds it up, and
  drops a last window that would start in the padding.
- Shapes are per image, channels first: (C, H, W).
- The weight of a convolution has the canonical layout (out, in/groups, kh, kw).
- The weight of an inner product has the canonical layout (out, in). The input of an inner product
  is flattened in C, H, W order.

This module imports no framework and contains no values of parameters.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from math import prod
from typing import Any, Dict, Tuple, Type, Union

Shape = Tuple[int, ...]


@dataclass(frozen=True)
class Filler:
    """The distribution of a parameter's initial values, named as in Caffe.

    - "constant": every element is `value`.
    - "gaussian": normal with standard deviation `value`.
    - "xavier": uniform within ±sqrt(3 / fan_in) (Glorot and Bengio 2010, in Caffe's form).
    - "msra": normal with standard deviation sqrt(2 / fan_in) (He et al. 2015).
    """

    type: str = "constant"
    value: float = 0.0


ZERO_FILLER = Filler()
ONE_FILLER = Filler("constant", 1.0)


@dataclass(frozen=True)
class Parameter:
    """A tensor of a layer: its shape, filler and solver multipliers.

    - `lr_mult`: factor of the solver's learning rate for this parameter.
    - `decay_mult`: factor of the solver's weight decay for this parameter.
    - `learned`: false for a running average, which has no gradient.
    """

    shape: Shape
    filler: Filler
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    learned: bool = True


@dataclass(frozen=True)
class Convolution:
    """A two-dimensional cross-correlation with a square kernel and `groups` independent groups.

    `kernel`, `stride` and `pad` are in pixels. `lr_mult` and `decay_mult` are multipliers for
    (weight, bias).
    """

    name: str
    inputs: Tuple[str, ...]
    channels: int
    kernel: int
    stride: int = 1
    pad: int = 0
    groups: int = 1
    bias: bool = True
    weight_filler: Filler = ZERO_FILLER
    bias_filler: Filler = ZERO_FILLER
    lr_mult: Tuple[float, float] = (1.0, 1.0)
    decay_mult: Tuple[float, float] = (1.0, 1.0)

    def output_shape(self, inputs: list[Shape]) -> Shape:
        _, height, width = inputs[0]
        return (
            self.channels,
            (height + 2 * self.pad - self.kernel) // self.stride + 1,
            (width + 2 * self.pad - self.kernel) // self.stride + 1,
        )

    def parameters(self, inputs: list[Shape]) -> dict[str, Parameter]:
        weight_shape = (self.channels, inputs[0][0] // self.groups, self.kernel, self.kernel)
        return _weight_and_bias_parameters(self, weight_shape)

    def macs(self, inputs: list[Shape]) -> int:
        """Return the number of multiply-accumulates in the forward pass of one image.

        The addition of the bias is not counted.
        """
        per_output = inputs[0][0] // self.groups * self.kernel * self.kernel
        return prod(self.output_shape(inputs)) * per_output


@dataclass(frozen=True)
class InnerProduct:
    """A fully connected layer, whose input is flattened in C, H, W order.

    `lr_mult` and `decay_mult` are multipliers for (weight, bias).
    """

    name: str
    inputs: Tuple[str, ...]
    channels: int
    bias: bool = True
    weight_filler: Filler = ZERO_FILLER
    bias_filler: Filler = ZERO_FILLER
    lr_mult: Tuple[float, float] = (1.0, 1.0)
    decay_mult: Tuple[float, float] = (1.0, 1.0)

    def output_shape(self, inputs: list[Shape]) -> Shape:
        return (self.channels,)

    def parameters(self, inputs: list[Shape]) -> dict[str, Parameter]:
        return _weight_and_bias_parameters(self, (self.channels, prod(inputs[0])))

    def macs(self, inputs: list[Shape]) -> int:
        return self.channels * prod(inputs[0])


@dataclass(frozen=True)
class _BaseLayer:
    """The base class of layers that are neither a convolution nor an inner product.

    By default, the output has the shape of the first input, and the layer has no parameters. Its
    multiply-accumulates are not counted.
    """

    name: str
    inputs: Tuple[str, ...]

    def output_shape(self, inputs: list[Shape]) -> Shape:
        """Return the shape of the output. `inputs` has the shapes of the inputs."""
        return inputs[0]

    def parameters(self, inputs: list[Shape]) -> dict[str, Parameter]:
        """Return the parameters by kind, such as "gamma". `inputs` has the shapes of the inputs."""
        return {}

    def macs(self, inputs: list[Shape]) -> int:
        """Return the number of multiply-accumulates in the forward pass of one image.

        Only convolutions and inner products are counted. Other layers return 0.
        """
        return 0


@dataclass(frozen=True)
class Pooling(_BaseLayer):
    """Pooling over square windows, with `method` "max" or "average".

    `kernel`, `stride` and `pad` are in pixels. An average counts padding as zeros. As in Caffe, the
    divisor of an average does not count pixels beyond the padding.
    """

    method: str = "max"
    kernel: int = 2
    stride: int = 2
    pad: int = 0

    def output_shape(self, inputs: list[Shape]) -> Shape:
        channels, height, width = inputs[0]
        return (channels, self.output_size(height), self.output_size(width))

    def output_size(self, size: int) -> int:
        """Return the number of windows along an input side of `size` pixels, rounded up.

        A last window that would start in the padding is not counted.
        """
        count = -(-(size + 2 * self.pad - self.kernel) // self.stride) + 1
        if self.pad and (count - 1) * self.stride >= size + self.pad:
            count -= 1
        return count


@dataclass(frozen=True)
class ReLU(_BaseLayer):
    """The rectified linear unit, max(0, x)."""


@dataclass(frozen=True)
class LRN(_BaseLayer):
    """Local response normalisation: x / (k + alpha / n * sum of n squares) ** beta.

    - `region` "across": the squares of `size` neighbouring channels, so n = size.
    - `region` "within": the squares of size * size pixels of the same channel, so n = size ** 2.
      Padding counts as zeros. `k` must be 1, because Caffe ignores `k` in this region.
    """

    region: str = "across"
    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0


@dataclass(frozen=True)
class Dropout(_BaseLayer):
    """Dropout: training zeroes a random share `ratio` and scales the rest by 1/(1 - ratio)."""

    ratio: float = 0.5


@dataclass(frozen=True)
class BatchNorm(_BaseLayer):
    """Batch normalisation of each channel, with scale (gamma) and shift (beta).

    Training normalises by the mean and the biased variance of the batch. A running average becomes
    momentum * old + (1 - momentum) * batch. Here `batch` is the mean or the unbiased variance of
    the batch.
    """

    eps: float = 1e-5
    momentum: float = 0.9
    gamma_filler: Filler = ONE_FILLER
    beta_filler: Filler = ZERO_FILLER

    def parameters(self, inputs: list[Shape]) -> dict[str, Parameter]:
        shape = (inputs[0][0],)
        return {
            "gamma": Parameter(shape, self.gamma_filler),
            "beta": Parameter(shape, self.beta_filler),
            "mean": Parameter(shape, ZERO_FILLER, learned=False),
            "variance": Parameter(shape, ONE_FILLER, learned=False),
        }


@dataclass(frozen=True)
class Concat(_BaseLayer):
    """The concatenation of the inputs along the channels."""

    def output_shape(self, inputs: list[Shape]) -> Shape:
        return (sum(shape[0] for shape in inputs), *inputs[0][1:])


@dataclass(frozen=True)
class Eltwise(_BaseLayer):
    """The sum of the inputs."""


@dataclass(frozen=True)
class SoftmaxLoss(_BaseLayer):
    """The batch mean of -log softmax(input)[label], times `weight` in the total loss."""

    weight: float = 1.0

    def output_shape(self, inputs: list[Shape]) -> Shape:
        return ()


Layer = Union[
    Convolution,
    InnerProduct,
    Pooling,
    ReLU,
    LRN,
    Dropout,
    BatchNorm,
    Concat,
    Eltwise,
    SoftmaxLoss,
]
LAYER_TYPES: Dict[str, Type[Any]] = {
    kind.__name__: kind
    for kind in (
        Convolution,
        InnerProduct,
        Pooling,
        ReLU,
        LRN,
        Dropout,
        BatchNorm,
        Concat,
        Eltwise,
        SoftmaxLoss,
    )
}


@dataclass(frozen=True)
class Network:
    """A network: its layers in the order in which they run.

    Each layer names its inputs. A layer's name is also the name of its output, and "data" is the
    name of the images. `input_shape` is (channels, height, width).
    """

    name: str
    input_shape: Tuple[int, int, int]
    classes: int
    layers: Tuple[Layer, ...]

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The shape per image of "data" and of every layer's output, by name."""
        shapes: dict[str, Shape] = {"data": self.input_shape}
        for layer in self.layers:
            shapes[layer.name] = layer.output_shape([shapes[name] for name in layer.inputs])
        return shapes

    def input_shapes(self, layer: Layer) -> list[Shape]:
        """Return the shape per image of each input of `layer`."""
        return [self.shapes[name] for name in layer.inputs]

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by canonical name, such as "<layer>/weight", in layer order."""
        return {
            f"{layer.name}/{kind}": parameter
            for layer in self.layers
            for kind, parameter in layer.parameters(self.input_shapes(layer)).items()
        }

    @property
    def learned_count(self) -> int:
        """The number of trained values, without running averages."""
        return sum(prod(p.shape) for p in self.parameters.values() if p.learned)

    @property
    def forward_macs(self) -> int:
        """The number of multiply-accumulates in the forward pass of one image."""
        return sum(layer.macs(self.input_shapes(layer)) for layer in self.layers)

    @property
    def train_macs(self) -> int:
        """The number of multiply-accumulates in a training step, per image.

        In each layer, the forward pass, the weight gradient and the input gradient cost the same.
        A layer that reads the images computes no input gradient.
        """
        return sum(
            layer.macs(self.input_shapes(layer)) * (2 if layer.inputs == ("data",) else 3)
            for layer in self.layers
        )

    @property
    def losses(self) -> list[SoftmaxLoss]:
        """The loss layers, in the order in which they run."""
        return [layer for layer in self.layers if isinstance(layer, SoftmaxLoss)]

    @property
    def scores_layer(self) -> str:
        """The name of the layer that outputs the class scores, which the last loss layer reads."""
        return self.losses[-1].inputs[0]

    def to_json(self) -> dict[str, Any]:
        """Return the network as a JSON object. `layer_from_json` reads its layers."""
        return {
            "name": self.name,
            "input_shape": list(self.input_shape),
            "classes": self.classes,
            "layers": [
                {"type": type(layer).__name__, **_fields_as_json_without_type(layer)}
                for layer in self.layers
            ],
        }


def layer_from_json(document: dict[str, Any]) -> Layer:
    """Return the layer described by `document`, a JSON object.

    Raises KeyError for a missing or unknown "type", TypeError for a missing or unknown field.
    """
    values = dict(document)
    kind = LAYER_TYPES[values.pop("type")]
    for field in fields(kind):
        value = values.get(field.name)
        if isinstance(value, list):
            values[field.name] = tuple(value)
        elif isinstance(value, dict):
            values[field.name] = Filler(**value)
    layer: Layer = kind(**values)
    return layer


def _fields_as_json_without_type(layer: Layer) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in asdict(layer).items()
    }


def _weight_and_bias_parameters(
    layer: Convolution | InnerProduct, weight_shape: Shape
) -> dict[str, Parameter]:
    parameters = {
        "weight": Parameter(
            weight_shape, layer.weight_filler, layer.lr_mult[0], layer.decay_mult[0]
        )
    }
    if layer.bias:
        parameters["bias"] = Parameter(
            weight_shape[:1], layer.bias_filler, layer.lr_mult[1], layer.decay_mult[1]
        )
    return parameters
