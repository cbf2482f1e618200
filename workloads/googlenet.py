"""GoogLeNet (Szegedy et al. 2015) as Caffe defines it, with both auxiliary classifiers."""

from __future__ import annotations

from functools import partial

from xfbench.workloads import IMAGENET, Pixels, Workload
from xfbench.workloads.layers import (
    LRN,
    Concat,
    Convolution,
    Dropout,
    Filler,
    InnerProduct,
    Layer,
    Network,
    Pooling,
    ReLU,
    SoftmaxLoss,
)
from xfbench.workloads.solver import Solver

_BIAS_FILLER = Filler("constant", 0.2)
_convolution = partial(
    Convolution,
    weight_filler=Filler("xavier"),
    bias_filler=_BIAS_FILLER,
    lr_mult=(1.0, 2.0),
    decay_mult=(1.0, 0.0),
)
_inner_product = partial(
    InnerProduct, weight_filler=Filler("xavier"), lr_mult=(1.0, 2.0), decay_mult=(1.0, 0.0)
)
_max_pooling = partial(Pooling, method="max", kernel=3, stride=2)
_lrn = partial(LRN, region="across", size=5, alpha=1e-4, beta=0.75)


def _inception(name: str, source: str, channels: tuple[int, ...]) -> tuple[Layer, ...]:
    """Return an inception block, which concatenates the outputs of four branches.

    1. A 1×1 convolution.
    2. A 1×1 convolution ("reduce"), then a 3×3 convolution.
    3. A 1×1 convolution ("reduce"), then a 5×5 convolution.
    4. Max pooling, then a 1×1 convolution.

    `channels` has the output channels of these six convolutions, in this order.
    """
    channels_1x1, reduce_3x3, channels_3x3, reduce_5x5, channels_5x5, projection = channels

    def relu(part: str) -> ReLU:
        return ReLU(f"{name}/relu_{part}", (f"{name}/{part}",))

    return (
        _convolution(f"{name}/1x1", (source,), channels_1x1, kernel=1),
        relu("1x1"),
        _convolution(f"{name}/3x3_reduce", (source,), reduce_3x3, kernel=1),
        relu("3x3_reduce"),
        _convolution(f"{name}/3x3", (f"{name}/relu_3x3_reduce",), channels_3x3, kernel=3, pad=1),
        relu("3x3"),
        _convolution(f"{name}/5x5_reduce", (source,), reduce_5x5, kernel=1),
        relu("5x5_reduce"),
        _convolution(f"{name}/5x5", (f"{name}/relu_5x5_reduce",), channels_5x5, kernel=5, pad=2),
        relu("5x5"),
        _max_pooling(f"{name}/pool", (source,), stride=1, pad=1),
        _convolution(f"{name}/pool_proj", (f"{name}/pool",), projection, kernel=1),
        relu("pool_proj"),
        Concat(
            f"{name}/output",
            tuple(f"{name}/relu_{part}" for part in ("1x1", "3x3", "5x5", "pool_proj")),
        ),
    )


def _auxiliary_head(name: str, source: str) -> tuple[Layer, ...]:
    """Return an auxiliary classifier. Its loss has 0.3 times the weight of the main loss."""
    return (
        Pooling(f"{name}/ave_pool", (source,), "average", kernel=5, stride=3),
        _convolution(f"{name}/conv", (f"{name}/ave_pool",), 128, kernel=1),
        ReLU(f"{name}/relu_conv", (f"{name}/conv",)),
        _inner_product(f"{name}/fc", (f"{name}/relu_conv",), 1024, bias_filler=_BIAS_FILLER),
        ReLU(f"{name}/relu_fc", (f"{name}/fc",)),
        Dropout(f"{name}/drop_fc", (f"{name}/relu_fc",), 0.7),
        _inner_product(f"{name}/classifier", (f"{name}/drop_fc",), 1000),
        SoftmaxLoss(f"{name}/loss", (f"{name}/classifier",), 0.3),
    )


_NETWORK = Network(
    "googlenet",
    (3, 224, 224),
    1000,
    (
        _convolution("conv1/7x7_s2", ("data",), 64, kernel=7, stride=2, pad=3),
        ReLU("conv1/relu_7x7", ("conv1/7x7_s2",)),
        _max_pooling("pool1/3x3_s2", ("conv1/relu_7x7",)),
        _lrn("pool1/norm1", ("pool1/3x3_s2",)),
        _convolution("conv2/3x3_reduce", ("pool1/norm1",), 64, kernel=1),
        ReLU("conv2/relu_3x3_reduce", ("conv2/3x3_reduce",)),
        _convolution("conv2/3x3", ("conv2/relu_3x3_reduce",), 192, kernel=3, pad=1),
        ReLU("conv2/relu_3x3", ("conv2/3x3",)),
        _lrn("conv2/norm2", ("conv2/relu_3x3",)),
        _max_pooling("pool2/3x3_s2", ("conv2/norm2",)),
        *_inception("inception_3a", "pool2/3x3_s2", (64, 96, 128, 16, 32, 32)),
        *_inception("inception_3b", "inception_3a/output", (128, 128, 192, 32, 96, 64)),
        _max_pooling("pool3/3x3_s2", ("inception_3b/output",)),
        *_inception("inception_4a", "pool3/3x3_s2", (192, 96, 208, 16, 48, 64)),
        *_auxiliary_head("loss1", "inception_4a/output"),
        *_inception("inception_4b", "inception_4a/output", (160, 112, 224, 24, 64, 64)),
        *_inception("inception_4c", "inception_4b/output", (128, 128, 256, 24, 64, 64)),
        *_inception("inception_4d", "inception_4c/output", (112, 144, 288, 32, 64, 64)),
        *_auxiliary_head("loss2", "inception_4d/output"),
        *_inception("inception_4e", "inception_4d/output", (256, 160, 320, 32, 128, 128)),
        _max_pooling("pool4/3x3_s2", ("inception_4e/output",)),
        *_inception("inception_5a", "pool4/3x3_s2", (256, 160, 320, 32, 128, 128)),
        *_inception("inception_5b", "inception_5a/output", (384, 192, 384, 48, 128, 128)),
        Pooling("pool5/7x7_s1", ("inception_5b/output",), "average", kernel=7, stride=1),
        Dropout("pool5/drop_7x7_s1", ("pool5/7x7_s1",), 0.4),
        _inner_product("loss3/classifier", ("pool5/drop_7x7_s1",), 1000),
        SoftmaxLoss("loss3/loss3", ("loss3/classifier",)),
    ),
)

WORKLOADS = (
    Workload(
        network=_NETWORK,
        solver=Solver(
            base_lr=0.01, policy="poly", power=0.5, max_iter=2_400_000, weight_decay=2e-4
        ),
        pixels=Pixels("BGR", (104.0, 117.0, 123.0), mirror=True),
        batch_size=32,
        data="synthetic",
        source="Caffe 1.0, models/bvlc_googlenet/train_val.prototxt and quick_solver.prototxt",
        epoch_images=IMAGENET,
    ),
)
