"""ResNet-50 and ResNet-101, version 1 (He et al. 2016), in the Caffe definition.

In a block with a stride, the first 1×1 convolution and the shortcut have this stride. As published,
the first convolution has a bias in ResNet-50 and none in ResNet-101.
"""

from __future__ import annotations

from functools import partial

from xfbench.workloads import IMAGENET, Pixels, Workload
from xfbench.workloads.layers import (
    BatchNorm,
    Convolution,
    Eltwise,
    Filler,
    InnerProduct,
    Layer,
    Network,
    Pooling,
    ReLU,
    SoftmaxLoss,
)
from xfbench.workloads.solver import Solver

_convolution = partial(Convolution, bias=False, weight_filler=Filler("msra"))


def _conv_batch_norm(
    name: str, source: str, channels: int, *, kernel: int = 1, stride: int = 1, relu: bool = True
) -> tuple[Layer, ...]:
    """Return a convolution "res<name>", its batch norm "bn<name>" and its ReLU "res<name>_relu".

    If `relu` is false, there is no ReLU. `source` is the name of the convolution's input.
    """
    layers: tuple[Layer, ...] = (
        _convolution(
            f"res{name}", (source,), channels, kernel=kernel, stride=stride, pad=kernel // 2
        ),
        BatchNorm(f"bn{name}", (f"res{name}",)),
    )
    return (*layers, ReLU(f"res{name}_relu", (f"bn{name}",))) if relu else layers


def _block(name: str, source: str, width: int, *, stride: int, project: bool) -> tuple[Layer, ...]:
    """Return a bottleneck block: three convolutions, whose result is added to the block's input.

    The convolutions are, in order:

    1. 1×1 with `width` channels.
    2. 3×3 with `width` channels.
    3. 1×1 with 4 * `width` channels.

    The block's input is the output of the layer `source`. If `project` is true, another 1×1
    convolution projects the input before the addition.
    """
    first, second, third = (f"{name}_branch2{part}" for part in "abc")
    shortcut: tuple[Layer, ...] = ()
    if project:
        shortcut = _conv_batch_norm(f"{name}_branch1", source, 4 * width, stride=stride, relu=False)
    return (
        *shortcut,
        *_conv_batch_norm(first, source, width, stride=stride),
        *_conv_batch_norm(second, f"res{first}_relu", width, kernel=3),
        *_conv_batch_norm(third, f"res{second}_relu", 4 * width, relu=False),
        Eltwise(f"res{name}", (f"bn{name}_branch1" if project else source, f"bn{third}")),
        ReLU(f"res{name}_relu", (f"res{name}",)),
    )


def _network(name: str, stages: tuple[tuple[str, ...], ...], *, first_bias: bool) -> Network:
    layers: list[Layer] = [
        _convolution("conv1", ("data",), 64, kernel=7, stride=2, pad=3, bias=first_bias),
        BatchNorm("bn_conv1", ("conv1",)),
        ReLU("conv1_relu", ("bn_conv1",)),
        Pooling("pool1", ("conv1_relu",), "max", kernel=3, stride=2),
    ]
    source = "pool1"
    for stage, blocks in enumerate(stages):
        for position, block in enumerate(blocks):
            layers += _block(
                block,
                source,
                64 * 2**stage,
                stride=2 if position == 0 and stage > 0 else 1,
                project=position == 0,
            )
            source = f"res{block}_relu"
    layers += [
        Pooling("pool5", (source,), "average", kernel=7, stride=1),
        # The published definition has no filler here. This filler is from Goyal et al. 2017.
        InnerProduct("fc1000", ("pool5",), 1000, weight_filler=Filler("gaussian", 0.01)),
        SoftmaxLoss("loss", ("fc1000",)),
    ]
    return Network(name, (3, 224, 224), 1000, tuple(layers))


def _lettered_blocks(stage: int, count: int) -> tuple[str, ...]:
    return tuple(f"{stage}{letter}" for letter in "abcdef"[:count])


def _numbered_blocks(stage: int, count: int) -> tuple[str, ...]:
    return (f"{stage}a", *(f"{stage}b{number}" for number in range(1, count)))


_IMAGENET_UPDATES_PER_EPOCH = -(-IMAGENET // 32)


def _workload(network: Network) -> Workload:
    return Workload(
        network=network,
        solver=Solver(
            base_lr=0.0125,
            policy="step",
            gamma=0.1,
            stepsize=30 * _IMAGENET_UPDATES_PER_EPOCH,
            max_iter=90 * _IMAGENET_UPDATES_PER_EPOCH,
            weight_decay=1e-4,
        ),
        pixels=Pixels("BGR", (104.0, 117.0, 123.0), mirror=True),
        batch_size=32,
        data="synthetic",
        source="He et al. 2016, v1 in its Caffe definition: the first 1×1 convolution of a stage "
        "has the stride (v1.5: the 3×3 convolution); solver 0.1 at batch 256, scaled linearly",
        epoch_images=IMAGENET,
    )


WORKLOADS = (
    _workload(
        _network(
            "resnet50",
            (
                _lettered_blocks(2, 3),
                _lettered_blocks(3, 4),
                _lettered_blocks(4, 6),
                _lettered_blocks(5, 3),
            ),
            first_bias=True,
        )
    ),
    _workload(
        _network(
            "resnet101",
            (
                _lettered_blocks(2, 3),
                _numbered_blocks(3, 4),
                _numbered_blocks(4, 23),
                _lettered_blocks(5, 3),
            ),
            first_bias=False,
        )
    ),
)
