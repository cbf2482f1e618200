"""AlexNet (Krizhevsky et al. 2012) and CaffeNet, Caffe's variant of it.

CaffeNet pools before it normalises, and AlexNet normalises before it pools. CaffeNet starts some
biases at 1 instead of 0.1. Everything else is the same, including the multiply-accumulates. If
somebody measured the wrong one of the two, nobody would notice.
"""

from __future__ import annotations

from functools import partial

from xfbench.workloads import IMAGENET, Pixels, Workload
from xfbench.workloads.layers import (
    LRN,
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

_convolution = partial(
    Convolution,
    weight_filler=Filler("gaussian", 0.01),
    lr_mult=(1.0, 2.0),
    decay_mult=(1.0, 0.0),
)
_inner_product = partial(InnerProduct, lr_mult=(1.0, 2.0), decay_mult=(1.0, 0.0))
_max_pooling = partial(Pooling, method="max", kernel=3, stride=2)
_lrn = partial(LRN, region="across", size=5, alpha=1e-4, beta=0.75)


def _network(name: str, *, pool_first: bool, bias_value: float) -> Network:
    bias_filler = Filler("constant", bias_value)

    def pool_norm_or_norm_pool(number: int, source: str) -> tuple[Layer, Layer]:
        norm, pool = f"norm{number}", f"pool{number}"
        if pool_first:
            return _max_pooling(pool, (source,)), _lrn(norm, (pool,))
        return _lrn(norm, (source,)), _max_pooling(pool, (norm,))

    last_of_pair = "norm" if pool_first else "pool"
    return Network(
        name,
        (3, 227, 227),
        1000,
        (
            _convolution("conv1", ("data",), 96, kernel=11, stride=4),
            ReLU("relu1", ("conv1",)),
            *pool_norm_or_norm_pool(1, "relu1"),
            _convolution(
                "conv2",
                (f"{last_of_pair}1",),
                256,
                kernel=5,
                pad=2,
                groups=2,
                bias_filler=bias_filler,
            ),
            ReLU("relu2", ("conv2",)),
            *pool_norm_or_norm_pool(2, "relu2"),
            _convolution("conv3", (f"{last_of_pair}2",), 384, kernel=3, pad=1),
            ReLU("relu3", ("conv3",)),
            _convolution(
                "conv4", ("relu3",), 384, kernel=3, pad=1, groups=2, bias_filler=bias_filler
            ),
            ReLU("relu4", ("conv4",)),
            _convolution(
                "conv5", ("relu4",), 256, kernel=3, pad=1, groups=2, bias_filler=bias_filler
            ),
            ReLU("relu5", ("conv5",)),
            _max_pooling("pool5", ("relu5",)),
            _inner_product(
                "fc6",
                ("pool5",),
                4096,
                weight_filler=Filler("gaussian", 0.005),
                bias_filler=bias_filler,
            ),
            ReLU("relu6", ("fc6",)),
            Dropout("drop6", ("relu6",), 0.5),
            _inner_product(
                "fc7",
                ("drop6",),
                4096,
                weight_filler=Filler("gaussian", 0.005),
                bias_filler=bias_filler,
            ),
            ReLU("relu7", ("fc7",)),
            Dropout("drop7", ("relu7",), 0.5),
            _inner_product("fc8", ("drop7",), 1000, weight_filler=Filler("gaussian", 0.01)),
            SoftmaxLoss("loss", ("fc8",)),
        ),
    )


def _workload(network: Network, source: str) -> Workload:
    return Workload(
        network=network,
        solver=Solver(
            base_lr=0.01,
            policy="step",
            gamma=0.1,
            stepsize=100_000,
            max_iter=450_000,
            weight_decay=5e-4,
        ),
        # The published input subtracts ImageNet's mean image. This is that image's channel mean.
        pixels=Pixels("BGR", (104.0, 117.0, 123.0), mirror=True),
        batch_size=256,
        data="synthetic",
        source=source,
        epoch_images=IMAGENET,
    )


WORKLOADS = (
    _workload(
        _network("caffenet", pool_first=True, bias_value=1.0),
        "Caffe 1.0, models/bvlc_reference_caffenet/train_val.prototxt",
    ),
    _workload(
        _network("alexnet", pool_first=False, bias_value=0.1),
        "Caffe 1.0, models/bvlc_alexnet/train_val.prototxt",
    ),
)
