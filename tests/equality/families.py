"""Generated small networks with random sizes, strides, pads, groups and layer order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from xfbench.equality.blocks import NOISE
from xfbench.workloads import Workload
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

FILLERS = {"weight_filler": xl.Filler("msra"), "bias_filler": xl.Filler("gaussian", 0.1)}
SOLVER = Solver(0.05, "fixed", momentum=0.9, weight_decay=1e-3)


def generate_workloads(count: int) -> list[Workload]:
    """Return the same networks on every call, named net0 and so on.

    No two have the same sequence of layer types.
    """
    workloads_by_kinds: dict[tuple[type, ...], Workload] = {}

    # Not derandomize: that seed would depend on the text of this function.
    @seed(20261127)
    @settings(
        database=None,
        max_examples=20 * count,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(draw_networks())
    def collect(network: xl.Network) -> None:
        layer_types = tuple(type(layer) for layer in network.layers)
        if len(workloads_by_kinds) < count and layer_types not in workloads_by_kinds:
            pixels = replace(NOISE, mean=NOISE.mean * network.input_shape[0])
            named_network = replace(network, name=f"net{len(workloads_by_kinds)}")
            workloads_by_kinds[layer_types] = Workload(
                named_network, SOLVER, pixels, 4, "synthetic", "generated"
            )

    collect()
    return list(workloads_by_kinds.values())


@st.composite
def draw_networks(draw: st.DrawFn) -> xl.Network:
    """Draw a convolution, one to five layers of any type, an inner product and a loss."""
    shape = (draw(st.integers(1, 6)), draw(st.integers(5, 14)), draw(st.integers(5, 14)))
    # The layer that reads the images has no gradient for its input.
    first_layer = draw(_draw_convolution("l0", "data", shape))
    layers: list[xl.Layer] = [first_layer]
    last_name, last_shape = "l0", first_layer.output_shape([shape])
    for _ in range(draw(st.integers(1, 5))):
        new_layers = draw(_draw_layers(last_name, last_shape, len(layers)))
        layers += new_layers
        last_name = layers[-1].name
        last_shape = xl.Network("", shape, 2, tuple(layers)).shapes[last_name]  # type: ignore[assignment]
    classes = draw(st.integers(2, 9))
    layers += [
        xl.InnerProduct("ip", (last_name,), classes, **FILLERS),
        xl.SoftmaxLoss("loss", ("ip",)),
    ]
    return xl.Network("", shape, classes, tuple(layers))


@st.composite
def _draw_layers(
    draw: st.DrawFn, last_name: str, shape: tuple[int, int, int], number: int
) -> list[xl.Layer]:
    name, min_side = f"l{number}", min(shape[1:])
    kinds = ["convolution", "convolution", "relu", "lrn", "max", "average", "batch norm"]
    if min_side > 1:
        kinds += ["concat", "sum"]
    kind = draw(st.sampled_from(kinds))
    if kind == "relu":
        return [xl.ReLU(name, (last_name,))]
    if kind == "batch norm":
        return [xl.BatchNorm(name, (last_name,), eps=draw(st.sampled_from([1e-5, 1e-3])))]
    if kind == "lrn":
        size, k = draw(st.sampled_from([3, 5])), draw(st.sampled_from([1.0, 2.0]))
        if draw(st.booleans()):
            return [xl.LRN(name, (last_name,), "within", 3, alpha=0.1)]
        return [xl.LRN(name, (last_name,), "across", size, alpha=0.1, k=k)]
    if kind in ("max", "average"):
        kernel = draw(st.integers(1, min(4, min_side)))
        stride, pad = draw(st.integers(1, kernel)), draw(st.integers(0, kernel // 2))
        return [xl.Pooling(name, (last_name,), kind, kernel, stride, pad)]
    if kind == "convolution":
        return [draw(_draw_convolution(name, last_name, shape))]
    channels = draw(st.integers(1, 5))
    kernels = [1, 3]
    branches: list[xl.Layer] = [
        xl.Convolution(
            f"{name}{side}", (last_name,), channels + extra, kernel, 1, kernel // 2, **FILLERS
        )
        for side, extra, kernel in zip("ab", (0, kind == "concat"), kernels, strict=True)
    ]
    join = xl.Concat if kind == "concat" else xl.Eltwise
    return [*branches, join(name, tuple(branch.name for branch in branches))]


@st.composite
def _draw_convolution(
    draw: st.DrawFn, name: str, last_name: str, shape: tuple[int, int, int]
) -> xl.Convolution:
    kernel = draw(st.integers(1, min(5, *shape[1:])))
    groups = draw(
        st.sampled_from([group_count for group_count in (1, 2, 3) if shape[0] % group_count == 0])
    )
    return xl.Convolution(
        name,
        (last_name,),
        groups * draw(st.integers(1, 4)),
        kernel,
        draw(st.integers(1, 3)),
        draw(st.integers(0, kernel - 1)),
        groups,
        bias=draw(st.booleans()),
        **FILLERS,
    )
