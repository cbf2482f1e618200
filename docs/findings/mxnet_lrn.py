"""MXNet 1.9.1 with oneDNN: the gradient of LRN is wrong if it comes from a convolution.

Run with MXNet's interpreter, with MXNET_MKLDNN_ENABLED=1 and then 0. Prints the distance of the
gradient through MXNet's LRN from that through an LRN composed from squares, slices and a power.
"""

import mxnet as mx
import numpy as np

SIZE, ALPHA, BETA = 5, 1e-4, 0.75


def builtin_lrn(x):
    """Apply MXNet's LRN layer."""
    return mx.nd.LRN(x, nsize=SIZE, alpha=ALPHA, beta=BETA, knorm=1)


def composed_lrn(x):
    """Compute LRN with basic operations."""
    channels = x.shape[1]
    flat = mx.nd.square(x).reshape((x.shape[0], 1, channels, -1))
    border = (0, 0, 0, 0, SIZE // 2, SIZE // 2, 0, 0)
    padded = mx.nd.pad(flat, mode="constant", pad_width=border, constant_value=0)
    parts = [mx.nd.slice_axis(padded, axis=2, begin=n, end=n + channels) for n in range(SIZE)]
    mean = mx.nd.add_n(*parts).reshape(x.shape) / SIZE
    return x * (1 + ALPHA * mean) ** -BETA


def input_gradient(lrn, groups, pooled):
    """Return the input's gradient of a weighted sum of the convolution's output."""
    random = np.random.RandomState(0)
    x = mx.nd.array(random.randn(2, 96, 27, 27) * 50)
    weight = mx.nd.array(random.randn(256, 96 // groups, 5, 5))
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Pooling(x, kernel=(3, 3), stride=(2, 2), pool_type="max") if pooled else x
        y = mx.nd.Convolution(
            lrn(y),
            weight,
            kernel=(5, 5),
            pad=(2, 2),
            num_filter=256,
            num_group=groups,
            no_bias=True,
        )
        loss = (y * mx.nd.array(random.randn(*y.shape))).sum()
    loss.backward()
    return x.grad.asnumpy()


print("mxnet", mx.__version__, "oneDNN", mx.runtime.Features().is_enabled("MKLDNN"))
for groups in (1, 2):
    for pooled in (False, True):
        expected, actual = (
            input_gradient(lrn, groups, pooled) for lrn in (composed_lrn, builtin_lrn)
        )
        error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
        print(f"groups {groups}, after pooling: {pooled!s:5}  relative distance {error:.1e}")
