"""LeNet (LeCun et al. 1998) as Caffe's MNIST example defines it, with ReLU."""

from __future__ import annotations

from functools import partial

from xfbench.workloads import MNIST, Pixels, Workload
from xfbench.workloads.layers import (
    Convolution,
    Filler,
    InnerProduct,
    Network,
    Pooling,
    ReLU,
    SoftmaxLoss,
)
from xfbench.workloads.solver import Solver

_convolution = partial(Convolution, weight_filler=Filler("xavier"), lr_mult=(1.0, 2.0))
_inner_product = partial(InnerProduct, weight_filler=Filler("xavier"), lr_mult=(1.0, 2.0))

WORKLOADS = (
    Workload(
        network=Network(
            "lenet",
            (1, 28, 28),
            10,
            (
                _convolution("conv1", ("data",), 20, kernel=5),
                Pooling("pool1", ("conv1",), "max", kernel=2, stride=2),
                _convolution("conv2", ("pool1",), 50, kernel=5),
                Pooling("pool2", ("conv2",), "max", kernel=2, stride=2),
                _inner_product("ip1", ("pool2",), 500),
                ReLU("relu1", ("ip1",)),
                _inner_product("ip2", ("relu1",), 10),
                SoftmaxLoss("loss", ("ip2",)),
            ),
        ),
        solver=Solver(
            base_lr=0.01, policy="inv", gamma=1e-4, power=0.75, max_iter=10_000, weight_decay=5e-4
        ),
        pixels=Pixels("gray", (0.0,), 1 / 256),
        batch_size=64,
        data="digits",
        source="Caffe 1.0, examples/mnist/lenet_train_test.prototxt",
        epoch_images=MNIST,
        target_loss=0.2,
    ),
)
