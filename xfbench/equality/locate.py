"""Find the first place where a network is wrong, and a likely cause, from the violations.

A violation is a deviation that is not within tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xfbench.equality.judge import Deviation
from xfbench.workloads import Workload
from xfbench.workloads import layers as xl

SOLVER = "solver"
# Takes names of layers and a set of weights ("own" or "scaled"). Runs each layer alone and returns
# the names of the wrong layers.
CheckLayers = Callable[[Sequence[str], str], set[str]]


@dataclass(frozen=True)
class Place:
    """The place where a network is wrong.

    - `layer`: the name of the wrong layer, or "data", "solver" or "ranks"
    - `cause`: a likely cause; None if it is unknown
    """

    layer: str
    cause: str | None


def find_first_wrong_place(
    workload: Workload, violations: Sequence[Deviation], check_layers: CheckLayers
) -> Place | None:
    """Return the first place that explains `violations`. None if no place does.

    The first of these steps that finds violations gives the place:

    1. Outputs of layers.
    2. Gradients of layers.
    3. Updates of layers.
    4. Tests of single layers with `check_layers`: the loss layers, batch norms and dropouts. Batch
       norm and dropout act differently in test mode.
    """
    order = {"data": 0, **{la.name: n + 1 for n, la in enumerate(workload.network.layers)}}
    in_network = [d for d in violations if d.layer in order]
    outputs = [d for d in in_network if d.kind == "output"]
    if outputs:
        first = min(outputs, key=lambda d: order[d.layer])
        return Place(first.layer, _forward_cause(workload, first))
    gradients = [d for d in in_network if d.kind == "gradient"]
    if gradients:
        last = max(gradients, key=lambda d: order[d.layer])
        return _locate_backward(workload, last, check_layers)
    steps = [d for d in in_network if d.kind == "step"]
    if steps:
        return _locate_update(workload, steps)
    losses = [layer.name for layer in workload.network.losses]
    test_mode_layers = [
        layer.name
        for layer in workload.network.layers
        if isinstance(layer, xl.BatchNorm | xl.Dropout)
    ]
    failing = check_layers([*losses, *test_mode_layers], "scaled") or check_layers(
        [*losses, *test_mode_layers], "own"
    )
    return next(
        (Place(name, None) for name in [*losses, *test_mode_layers] if name in failing), None
    )


def _locate_backward(
    workload: Workload, last_gradient_violation: Deviation, check_layers: CheckLayers
) -> Place:
    """Return the layer whose backward pass is wrong, and a likely cause.

    `last_gradient_violation` is the violation of a gradient that is closest to the network's end.
    The wrong layer is the layer of this gradient, or one of the layers that follow it, up to the
    next layers with weights.
    """
    network = workload.network
    by_name = {layer.name: layer for layer in network.layers}
    candidates = [last_gradient_violation.layer]
    for name in candidates:  # the loop appends to this list
        if name != last_gradient_violation.layer and by_name[name].parameters(
            network.input_shapes(by_name[name])
        ):
            continue  # the gradients of this layer are right
        candidates += [
            layer.name
            for layer in network.layers
            if name in layer.inputs and layer.name not in candidates
        ]
    # The last failing layer is the cause, because all layers after it are right.
    failing = check_layers(candidates, last_gradient_violation.case.weights)
    layer = next(
        (name for name in reversed(candidates) if name in failing), last_gradient_violation.layer
    )
    return Place(layer, _backward_cause(by_name[layer], last_gradient_violation))


def _locate_update(workload: Workload, update_violations: Sequence[Deviation]) -> Place:
    parameters = workload.network.parameters
    averages = [d for d in update_violations if not parameters[d.name].learned]
    learned = [d for d in update_violations if parameters[d.name].learned]
    first_step = min(d.step or 0 for d in update_violations)
    if averages and not [d for d in learned if d.step == first_step]:
        kinds = {d.name.rpartition("/")[2] for d in averages if d.step == first_step}
        cause = "the running averages are computed wrongly"
        if kinds == {"variance"}:
            cause = "the running variance is not the unbiased one"
        names = [layer.name for layer in workload.network.layers]
        return Place(min((d.layer for d in averages), key=names.index), cause)
    first_violations = [d for d in learned if d.step == first_step]
    layers = list(dict.fromkeys(d.layer for d in first_violations))
    biases = all(d.name.endswith(("/bias", "/beta")) for d in first_violations)
    if first_step > 1:
        cause = "the first update is right, later ones are not: earlier gradients are used, or the "
        cause += "velocity is stored or reset wrongly, which shows when the learning rate changes"
    elif biases:
        cause = (
            "only biases move wrongly: check their multipliers of learning rate and weight decay"
        )
    else:
        cause = "the first update is wrong though the gradients are right: check weight decay, "
        cause += "its multipliers and the learning rate"
    return Place(layers[0] if len(layers) == 1 else SOLVER, cause)


def _forward_cause(workload: Workload, first: Deviation) -> str | None:
    if first.layer == "data":
        return "the input differs: channel order (BGR), mean or scale"
    layer = next(la for la in workload.network.layers if la.name == first.layer)
    shapes = workload.network.input_shapes(layer)
    if isinstance(layer, xl.Pooling):
        return "pooling method, padding, whether padding is counted, or rounding of the output size"
    if isinstance(layer, xl.LRN):
        return "LRN's alpha (divided by the size or not), k, size or region"
    if isinstance(layer, xl.BatchNorm):
        return "batch norm's eps, or gamma is fixed"
    if isinstance(layer, xl.Convolution):
        return "the convolution's groups, stride or padding"
    if isinstance(layer, xl.InnerProduct) and len(shapes[0]) == 3:
        return "the order in which channels, rows and columns are flattened"
    return None


def _backward_cause(layer: xl.Layer, last: Deviation) -> str | None:
    if isinstance(layer, xl.SoftmaxLoss):
        return (
            "the loss is weighted or normalised differently (not the batch mean times its weight)"
        )
    if isinstance(layer, xl.BatchNorm) and last.name.endswith("/gamma"):
        return "gamma is fixed"
    return "the output is right but the gradient is wrong: a kernel defect (docs/findings.md)"
