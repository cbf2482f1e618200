"""ConvNet: Caffe's two CIFAR-10 networks, "full" (`convnet`) and "quick" (`convnet-quick`).

As published, the weights of the first convolution start almost at zero (standard deviation 1e-4).
The first training steps therefore change the weights little.
"""

from __future__ import annotations

from functools import partial

from xfbench.workloads import CIFAR10, Pixels, Workload
from xfbench.workloads.layers import (
    LRN,
    Convolution,
    Filler,
    InnerProduct,
    Network,
    Pooling,
    ReLU,
    SoftmaxLoss,
)
from xfbench.workloads.solver import Solver


def _gaussian(std: float) -> Filler:
    return Filler("gaussian", std)


_convolution = partial(Convolution, kernel=5, pad=2, lr_mult=(1.0, 2.0))
_inner_product = partial(InnerProduct, lr_mult=(1.0, 2.0))
_max_pooling = partial(Pooling, method="max", kernel=3, stride=2)
_average_pooling = partial(Pooling, method="average", kernel=3, stride=2)
_lrn = partial(LRN, region="within", size=3, alpha=5e-5, beta=0.75)

# The published input subtracts the data set's mean image. Here the middle of the pixel range
# replaces that image, so that the data set is not needed.
_PIXELS = Pixels("BGR", (127.5, 127.5, 127.5))

_FULL = Network(
    "convnet",
    (3, 32, 32),
    10,
    (
        _convolution("conv1", ("data",), 32, weight_filler=_gaussian(1e-4)),
        _max_pooling("pool1", ("conv1",)),
        ReLU("relu1", ("pool1",)),
        _lrn("norm1", ("relu1",)),
        _convolution("conv2", ("norm1",), 32, weight_filler=_gaussian(0.01)),
        ReLU("relu2", ("conv2",)),
        _average_pooling("pool2", ("relu2",)),
        _lrn("norm2", ("pool2",)),
        _convolution("conv3", ("norm2",), 64, weight_filler=_gaussian(0.01), lr_mult=(1.0, 1.0)),
        ReLU("relu3", ("conv3",)),
        _average_pooling("pool3", ("relu3",)),
        _inner_product(
            "ip1", ("pool3",), 10, weight_filler=_gaussian(0.01), decay_mult=(250.0, 0.0)
        ),
        SoftmaxLoss("loss", ("ip1",)),
    ),
)

_QUICK = Network(
    "convnet-quick",
    (3, 32, 32),
    10,
    (
        _convolution("conv1", ("data",), 32, weight_filler=_gaussian(1e-4)),
        _max_pooling("pool1", ("conv1",)),
        ReLU("relu1", ("pool1",)),
        _convolution("conv2", ("relu1",), 32, weight_filler=_gaussian(0.01)),
        ReLU("relu2", ("conv2",)),
        _average_pooling("pool2", ("relu2",)),
        _convolution("conv3", ("pool2",), 64, weight_filler=_gaussian(0.01)),
        ReLU("relu3", ("conv3",)),
        _average_pooling("pool3", ("relu3",)),
        _inner_product("ip1", ("pool3",), 64, weight_filler=_gaussian(0.1)),
        _inner_product("ip2", ("ip1",), 10, weight_filler=_gaussian(0.1)),
        SoftmaxLoss("loss", ("ip2",)),
    ),
)

WORKLOADS = (
    Workload(
        network=_FULL,
        solver=Solver(base_lr=0.001, weight_decay=0.004, max_iter=60_000),
        pixels=_PIXELS,
        batch_size=100,
        data="synthetic",
        source="Caffe 1.0, examples/cifar10/cifar10_full_train_test.prototxt",
        epoch_images=CIFAR10,
        target_loss=1.0,
    ),
    Workload(
        network=_QUICK,
        solver=Solver(base_lr=0.001, weight_decay=0.004, max_iter=4_000),
        pixels=_PIXELS,
        batch_size=100,
        data="synthetic",
        source="Caffe 1.0, examples/cifar10/cifar10_quick_train_test.prototxt",
        epoch_images=CIFAR10,
        target_loss=1.0,
    ),
)
