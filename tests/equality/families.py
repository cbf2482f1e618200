"""Generated small networks with random sizes, strides, pads, groups and layer order."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from xfbench.equality.blocks import NOISE
from xfbench.workloads import Workload
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

FILLERS = {"weight_filler": xl.Filler("msra"), "bias_filler": xl.Filler("gaussian", 0.1)}
SOLVER = Solver(0.05, "fixed", momentum=0.9, weight_decay=1e-3)


def generate_workloads(count: int) -> list[Workload]:
    """Return the same networks on every call, named net0 and so on.

    No two have the same sequence of layer types. A longer list begins with the shorter one.
    """
    random = Random(20261127)
    workloads_by_kinds: dict[tuple[type, ...], Workload] = {}
    while len(workloads_by_kinds) < count:
        network = draw_network(random)
        layer_types = tuple(type(layer) for layer in network.layers)
        if layer_types not in workloads_by_kinds:
            pixels = replace(NOISE, mean=NOISE.mean * network.input_shape[0])
            named_network = replace(network, name=f"net{len(workloads_by_kinds)}")
            workloads_by_kinds[layer_types] = Workload(
                named_network, SOLVER, pixels, 4, "synthetic", "generated"
            )
    return list(workloads_by_kinds.values())


def draw_network(random: Random) -> xl.Network:
    """Draw a convolution, one to five layers of any type, an inner product and a loss."""
    shape = (random.randint(1, 6), random.randint(5, 14), random.randint(5, 14))
    # The layer that reads the images has no gradient for its input.
    first_layer = _draw_convolution(random, "l0", "data", shape)
    layers: list[xl.Layer] = [first_layer]
    last_name, last_shape = "l0", first_layer.output_shape([shape])
    for _ in range(random.randint(1, 5)):
        new_layers = _draw_layers(random, last_name, last_shape, len(layers))
        layers += new_layers
        last_name = layers[-1].name
        last_shape = xl.Network("", shape, 2, tuple(layers)).shapes[last_name]  # type: ignore[assignment]
    classes = random.randint(2, 9)
    layers += [
        xl.InnerProduct("ip", (last_name,), classes, **FILLERS),
        xl.SoftmaxLoss("loss", ("ip",)),
    ]
    return xl.Network("", shape, classes, tuple(layers))


def _draw_layers(
    random: Random, last_name: str, shape: tuple[int, int, int], number: int
) -> list[xl.Layer]:
    name, min_side = f"l{number}", min(shape[1:])
    kinds = ["convolution", "convolution", "relu", "lrn", "max", "average", "batch norm"]
    if min_side > 1:
        kinds += ["concat", "sum"]
    kind = random.choice(kinds)
    if kind == "relu":
        return [xl.ReLU(name, (last_name,))]
    if kind == "batch norm":
        return [xl.BatchNorm(name, (last_name,), eps=random.choice([1e-5, 1e-3]))]
    if kind == "lrn":
        size, k = random.choice([3, 5]), random.choice([1.0, 2.0])
        if random.random() < 0.5:
            return [xl.LRN(name, (last_name,), "within", 3, alpha=0.1)]
        return [xl.LRN(name, (last_name,), "across", size, alpha=0.1, k=k)]
    if kind in ("max", "average"):
        kernel = random.randint(1, min(4, min_side))
        stride, pad = random.randint(1, kernel), random.randint(0, kernel // 2)
        return [xl.Pooling(name, (last_name,), kind, kernel, stride, pad)]
    if kind == "convolution":
        return [_draw_convolution(random, name, last_name, shape)]
    channels = random.randint(1, 5)
    kernels = [1, 3]
    branches: list[xl.Layer] = [
        xl.Convolution(
            f"{name}{side}", (last_name,), channels + extra, kernel, 1, kernel // 2, **FILLERS
        )
        for side, extra, kernel in zip("ab", (0, kind == "concat"), kernels, strict=True)
    ]
    join = xl.Concat if kind == "concat" else xl.Eltwise
    return [*branches, join(name, tuple(branch.name for branch in branches))]


def _draw_convolution(
    random: Random, name: str, last_name: str, shape: tuple[int, int, int]
) -> xl.Convolution:
    kernel = random.randint(1, min(5, *shape[1:]))
    groups = random.choice([count for count in (1, 2, 3) if shape[0] % count == 0])
    return xl.Convolution(
        name,
        (last_name,),
        groups * random.randint(1, 4),
        kernel,
        random.randint(1, 3),
        random.randint(0, kernel - 1),
        groups,
        bias=random.random() < 0.5,
        **FILLERS,
    )
