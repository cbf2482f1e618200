"""A network's forward pass, backward pass and update, on dictionaries of arrays.

A layer's output has the name of the layer, the images are "data", and a parameter has its
canonical name. `operators` and `windows` define what a layer computes. The caller (`train`) draws
the dropout masks and keeps the state between steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, Mapping

import numpy as np

from xfbench.adapters.reference import operators, windows
from xfbench.adapters.reference.precision import PRECISIONS, Precision
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

Arrays = Dict[str, np.ndarray]
_PRODUCTS = (xl.Convolution, xl.InnerProduct)
_EXACT = PRECISIONS["float64"]


@dataclass(frozen=True)
class Forward:
    """The results of a forward pass.

    - `outputs`: "data" and the output of every layer, by name. The output of a loss layer is the
      loss without its weight, shape ().
    - `loss`: the weighted sum of all losses.
    - `averages`: the running means and variances after a training step, by parameter name. Empty
      in test mode.
    - `labels`, `masks`, `precision`: the arguments of the pass. `masks` is empty in test mode.
    """

    outputs: Arrays
    loss: float
    averages: Arrays
    labels: np.ndarray
    masks: Mapping[str, np.ndarray]
    precision: Precision


@dataclass(frozen=True)
class Gradients:
    """The gradients of the total loss.

    - `parameters`: one array per learned parameter, by canonical name.
    - `outputs`: one array per output that the caller of `backward` requests, by layer name or
      "data".
    """

    parameters: Arrays
    outputs: Arrays


def forward(
    network: xl.Network,
    parameters: Mapping[str, np.ndarray],
    images: np.ndarray,
    labels: np.ndarray,
    *,
    training: bool,
    masks: Mapping[str, np.ndarray] | None = None,
    precision: Precision = _EXACT,
) -> Forward:
    """Run a forward pass on `images` (N, C, H, W) and `labels` (N,). No argument is changed.

    - `images` have the dtype of `parameters`.
    - `training`: if true, batch norm uses the statistics of the batch. If false, it uses the
      running averages, and dropout layers are the identity.
    - `masks`: one array per dropout layer, by layer name. It multiplies the layer's input by 0 or
      by 1/(1 - ratio). A dropout layer without a mask is the identity.
    - `precision`: which values are rounded. By default, no value is rounded.

    Raises ValueError if a layer's geometry is invalid.
    """
    masks = masks if masks is not None and training else {}
    outputs: Arrays = {"data": images}
    averages: Arrays = {}
    loss = 0.0
    for layer in network.layers:
        inputs = _inputs(layer, outputs, precision)
        layer_parameters = _layer_parameters(network, layer, parameters, precision)
        if isinstance(layer, xl.SoftmaxLoss):
            output = operators.mean_softmax_loss(inputs[0], labels)
            loss += layer.weight * float(output)
        elif isinstance(layer, xl.BatchNorm):
            statistics = layer_parameters["mean"], layer_parameters["variance"]
            if training:
                statistics = operators.batch_statistics(inputs[0])
                mean, variance = operators.running_averages(
                    layer,
                    inputs[0],
                    statistics,
                    layer_parameters["mean"],
                    layer_parameters["variance"],
                )
                averages[f"{layer.name}/mean"] = mean
                averages[f"{layer.name}/variance"] = variance
            output = operators.batch_norm(
                layer, inputs[0], layer_parameters["gamma"], layer_parameters["beta"], statistics
            )
        elif isinstance(layer, xl.Dropout):
            output = inputs[0] * masks[layer.name] if layer.name in masks else inputs[0]
        else:
            output = _output(layer, inputs, layer_parameters)
        is_loss = isinstance(layer, xl.SoftmaxLoss)
        outputs[layer.name] = output if is_loss else precision.round_value(output)
    return Forward(outputs, loss, averages, labels, masks, precision)


def backward(
    network: xl.Network,
    parameters: Mapping[str, np.ndarray],
    done: Forward,
    requested_outputs: Iterable[str] = (),
) -> Gradients:
    """Run the backward pass and return the gradients of the total loss.

    - `parameters`: the parameters that the forward pass used.
    - `done`: the results of the forward pass, in training mode.
    - `requested_outputs`: layer names or "data". The gradients of these outputs are also returned.

    If several layers read an output, its gradient is the sum over these layers. The gradient of an
    output that is not requested is freed after use. The gradient of the images is computed only if
    "data" is requested.
    """
    output_names, precision = set(requested_outputs), done.precision
    flowing = {
        layer.name: np.full_like(done.outputs[layer.name], layer.weight * precision.loss_scale)
        for layer in network.losses
    }
    of_parameters: Arrays = {}
    of_outputs: Arrays = {}
    for layer in reversed(network.layers):
        dy = flowing.pop(layer.name, None)
        if dy is None:  # no loss depends on this layer
            dy = np.zeros_like(done.outputs[layer.name])
        if not isinstance(layer, xl.SoftmaxLoss):
            dy = precision.round_value(dy)
        if layer.name in output_names:
            of_outputs[layer.name] = dy
        if isinstance(layer, _PRODUCTS):
            dy = precision.round_operand(dy)
        inputs = _inputs(layer, done.outputs, precision)
        for kind, gradient in _parameter_gradients(layer, inputs[0], dy).items():
            of_parameters[f"{layer.name}/{kind}"] = gradient
            if isinstance(layer, _PRODUCTS):
                of_parameters[f"{layer.name}/{kind}"] = precision.round_value(gradient)
        if set(layer.inputs) == {"data"} and "data" not in output_names:
            continue
        layer_parameters = _layer_parameters(network, layer, parameters, precision)
        for name, gradient in zip(
            layer.inputs, _input_gradients(layer, inputs, layer_parameters, dy, done)
        ):
            flowing[name] = flowing[name] + gradient if name in flowing else gradient
    if "data" in output_names:
        of_outputs["data"] = flowing["data"]
    return Gradients(
        *(_divide_by_loss_scale(arrays, precision) for arrays in (of_parameters, of_outputs))
    )


def _divide_by_loss_scale(arrays: Arrays, precision: Precision) -> Arrays:
    if precision.loss_scale == 1:
        return arrays
    return {name: array / array.dtype.type(precision.loss_scale) for name, array in arrays.items()}


def update(
    network: xl.Network,
    solver: Solver,
    iteration: int,
    *,
    parameters: Arrays,
    velocities: Arrays,
    gradients: Mapping[str, np.ndarray],
) -> None:
    """Update every parameter that has a gradient in `gradients`, as `workloads.solver` defines it.

    - `iteration`: number of the update, counted from 0. It determines the learning rate.
    - `parameters`, `velocities`: arrays by parameter name, which are changed in place.
    """
    rate = solver.learning_rate(iteration)
    for name, gradient in gradients.items():
        weight, velocity, how = parameters[name], velocities[name], network.parameters[name]
        decayed = gradient + weight * (solver.weight_decay * how.decay_mult)
        trusted = _trust_ratio(solver, how, weight, gradient) if solver.lars else 1.0
        velocity *= solver.momentum
        velocity += decayed * (rate * how.lr_mult * trusted)
        weight -= velocity


def _trust_ratio(
    solver: Solver, how: xl.Parameter, weight: np.ndarray, gradient: np.ndarray
) -> float:
    """Return the trust ratio of LARS. It is 1 if the weight or the gradient has the norm 0."""
    size, slope = float(np.linalg.norm(weight)), float(np.linalg.norm(gradient))
    if not size or not slope:
        return 1.0
    return solver.lars * size / (slope + solver.weight_decay * how.decay_mult * size)


def _layer_parameters(
    network: xl.Network,
    layer: xl.Layer,
    parameters: Mapping[str, np.ndarray],
    precision: Precision,
) -> Arrays:
    """Return the layer's parameters by kind ("weight", "bias", …).

    The parameters of a convolution or inner product are rounded by `precision.round_operand`.
    """
    kinds = layer.parameters(network.input_shapes(layer))
    layer_parameters = {kind: parameters[f"{layer.name}/{kind}"] for kind in kinds}
    if isinstance(layer, _PRODUCTS):
        layer_parameters = {
            kind: precision.round_operand(value) for kind, value in layer_parameters.items()
        }
    return layer_parameters


def _inputs(layer: xl.Layer, outputs: Arrays, precision: Precision) -> list[np.ndarray]:
    """Return the inputs of `layer`.

    The inputs of a convolution or inner product are rounded by `precision.round_operand`.
    """
    inputs = [outputs[name] for name in layer.inputs]
    if isinstance(layer, _PRODUCTS):
        inputs = [precision.round_operand(value) for value in inputs]
    return inputs


def _output(layer: xl.Layer, inputs: list[np.ndarray], layer_parameters: Arrays) -> np.ndarray:
    x = inputs[0]
    if isinstance(layer, xl.Convolution):
        return windows.convolution(
            layer, x, layer_parameters["weight"], layer_parameters.get("bias")
        )
    if isinstance(layer, xl.InnerProduct):
        return operators.inner_product(x, layer_parameters["weight"], layer_parameters.get("bias"))
    if isinstance(layer, xl.Pooling) and layer.method == "max":
        return windows.max_pooling(layer, x)
    if isinstance(layer, xl.Pooling):
        return windows.average_pooling(layer, x)
    if isinstance(layer, xl.ReLU):
        return operators.relu(x)
    if isinstance(layer, xl.LRN):
        return operators.lrn(layer, x)
    if isinstance(layer, xl.Concat):
        return np.concatenate(inputs, axis=1)
    if isinstance(layer, xl.Eltwise):
        return sum(inputs[1:], x)
    raise TypeError(f"{layer.name}: no operator for a {type(layer).__name__}")


def _parameter_gradients(layer: xl.Layer, x: np.ndarray, dy: np.ndarray) -> Arrays:
    """Return the gradients of the layer's parameters by kind ("weight", "bias", "gamma", "beta").

    A layer without parameters has none.
    """
    if isinstance(layer, xl.BatchNorm):
        gamma, beta = operators.batch_norm_parameter_gradients(layer, x, dy)
        return {"gamma": gamma, "beta": beta}
    if isinstance(layer, xl.Convolution):
        weight = windows.convolution_weight_gradient(layer, x, dy)
    elif isinstance(layer, xl.InnerProduct):
        weight = operators.inner_product_weight_gradient(x, dy)
    else:
        return {}
    gradients = {"weight": weight}
    if layer.bias:
        gradients["bias"] = operators.shift_gradient(dy)
    return gradients


def _input_gradients(
    layer: xl.Layer,
    inputs: list[np.ndarray],
    layer_parameters: Arrays,
    dy: np.ndarray,
    done: Forward,
) -> list[np.ndarray]:
    if isinstance(layer, xl.Concat):
        split_points = np.cumsum([value.shape[1] for value in inputs])[:-1]
        return np.split(dy, split_points, axis=1)
    if isinstance(layer, xl.Eltwise):
        return [dy] * len(inputs)
    return [_input_gradient(layer, inputs[0], layer_parameters, dy, done)]


def _input_gradient(
    layer: xl.Layer, x: np.ndarray, layer_parameters: Arrays, dy: np.ndarray, done: Forward
) -> np.ndarray:
    if isinstance(layer, xl.Convolution):
        return windows.convolution_input_gradient(layer, x, layer_parameters["weight"], dy)
    if isinstance(layer, xl.InnerProduct):
        return operators.inner_product_input_gradient(x, layer_parameters["weight"], dy)
    if isinstance(layer, xl.Pooling) and layer.method == "max":
        return windows.max_pooling_gradient(layer, x, done.outputs[layer.name], dy)
    if isinstance(layer, xl.Pooling):
        return windows.average_pooling_gradient(layer, x, dy)
    if isinstance(layer, xl.ReLU):
        return operators.relu_gradient(done.outputs[layer.name], dy)
    if isinstance(layer, xl.LRN):
        return operators.lrn_gradient(layer, x, dy)
    if isinstance(layer, xl.BatchNorm):
        return operators.batch_norm_input_gradient(layer, x, layer_parameters["gamma"], dy)
    if isinstance(layer, xl.Dropout):
        return dy * done.masks[layer.name] if layer.name in done.masks else dy
    if isinstance(layer, xl.SoftmaxLoss):
        return operators.mean_softmax_loss_gradient(x, done.labels, dy)
    raise TypeError(f"{layer.name}: no gradient for a {type(layer).__name__}")
