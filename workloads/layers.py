"""Layers and networks as values, with their shapes, parameters and operation counts.

The geometry is Caffe's: convolution rounds its output size down. Pooling rounds up and drops a
last window that would start in the padding. Shapes are per image, channels first. Parameters
have the canonical layout (convolution: out, in/groups, kh, kw; inner product: out, in over a
C, H, W flatten). This module imports no framework and holds no trained values.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from math import prod
from typing import Any, Dict, Tuple, Type, Union

Shape = Tuple[int, ...]


@dataclass(frozen=True)
class Filler:
    """The initial values of a parameter, as Caffe's fillers of the same names define them.

    constant: every element is `value`; gaussian: normal, standard deviation `value`;
    xavier: uniform within ±sqrt(3 / fan_in) (Glorot and Bengio 2010, in Caffe's form);
    msra: normal, standard deviation sqrt(2 / fan_in) (He et al. 2015).
    """

    type: str = "constant"
    value: float = 0.0


ZERO_FILLER = Filler()
ONE_FILLER = Filler("constant", 1.0)


@dataclass(frozen=True)
class Parameter:
    """A trained or tracked tensor of a layer: its shape, filler and solver multipliers.

    `lr_mult` and `decay_mult` multiply the solver's learning rate and weight decay.
    A parameter that is not `learned` (a running average) has no gradient.
    """

    shape: Shape
    filler: Filler
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    learned: bool = True


@dataclass(frozen=True)
class Convolution:
    """A two-dimensional cross-correlation with a square kernel and `groups` independent groups."""

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
        """Return the multiply-accumulates of one image's forward pass, without the bias."""
        per_output = inputs[0][0] // self.groups * self.kernel * self.kernel
        return prod(self.output_shape(inputs)) * per_output


@dataclass(frozen=True)
class InnerProduct:
    """A fully connected layer over its input flattened in C, H, W order."""

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
    """The base of layers without parameters or counted multiply-accumulates."""

    name: str
    inputs: Tuple[str, ...]

    def output_shape(self, inputs: list[Shape]) -> Shape:
        return inputs[0]

    def parameters(self, inputs: list[Shape]) -> dict[str, Parameter]:
        return {}

    def macs(self, inputs: list[Shape]) -> int:
        return 0


@dataclass(frozen=True)
class Pooling(_BaseLayer):
    """Pooling with `method` "max" or "average". The average counts padding in its divisor.

    The divisor is Caffe's: the size of the window clipped to the padded input. A window that
    extends past the padding is divided by the part inside it.
    """

    method: str = "max"
    kernel: int = 2
    stride: int = 2
    pad: int = 0

    def output_shape(self, inputs: list[Shape]) -> Shape:
        channels, height, width = inputs[0]
        return (channels, self.output_size(height), self.output_size(width))

    def output_size(self, size: int) -> int:
        """Return the number of windows along `size` pixels, rounded up.

        No window starts in the padding behind the last pixel.
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
    """Local response normalisation, x / (k + alpha / n * sum of squares) ** beta.

    `region` "across": n = size neighbouring channels; "within": n = size * size pixels
    of the same channel, zero padded; the padding counts (k is then 1).
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
    """Batch normalisation with scale (gamma) and shift (beta), per channel.

    The layer normalises by the batch's biased variance. The running averages are
    new = momentum * old + (1 - momentum) * batch, with the unbiased variance.
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
    """Layers in the order they run. Each names its inputs; "data" is the images.

    `input_shape` is (channels, height, width). A layer's name is also the name of its output.
    """

    name: str
    input_shape: Tuple[int, int, int]
    classes: int
    layers: Tuple[Layer, ...]

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The output shape per image of "data" and of every layer, by name."""
        shapes: dict[str, Shape] = {"data": self.input_shape}
        for layer in self.layers:
            shapes[layer.name] = layer.output_shape([shapes[name] for name in layer.inputs])
        return shapes

    def input_shapes(self, layer: Layer) -> list[Shape]:
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
        """The multiply-accumulates per image of the forward pass."""
        return sum(layer.macs(self.input_shapes(layer)) for layer in self.layers)

    @property
    def train_macs(self) -> int:
        """The multiply-accumulates per image of a training step.

        The forward pass, the weight gradient and the input gradient each cost the same. A layer
        that reads the images computes no input gradient.
        """
        return sum(
            layer.macs(self.input_shapes(layer)) * (2 if layer.inputs == ("data",) else 3)
            for layer in self.layers
        )

    @property
    def losses(self) -> list[SoftmaxLoss]:
        return [layer for layer in self.layers if isinstance(layer, SoftmaxLoss)]

    @property
    def scores_layer(self) -> str:
        """The layer whose output is the class scores, the input of the last loss."""
        return self.losses[-1].inputs[0]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "input_shape": list(self.input_shape),
            "classes": self.classes,
            "layers": [
                {"type": type(layer).__name__, **_fields_as_json(layer)} for layer in self.layers
            ],
        }


def layer_from_json(document: dict[str, Any]) -> Layer:
    """Return a layer from its JSON object. Raises KeyError for a type, TypeError for a field."""
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


def _fields_as_json(layer: Layer) -> dict[str, Any]:
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
