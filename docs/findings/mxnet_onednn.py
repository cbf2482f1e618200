"""MXNet 1.9.1 with oneDNN: average pooling's gradient, and the logarithm of a softmax.

Run with MXNet's interpreter: each operation in float32, which oneDNN computes, against the same
in float64, which it does not. MXNET_MKLDNN_ENABLED=0 shows MXNet's own float32 beside it.
"""

import mxnet as mx
import numpy as np


def pooling_gradient(dtype, size, kernel, stride, pad):
    """Of a weighted sum over an average pooling that rounds up, by its input."""
    random = np.random.RandomState(0)
    x = mx.nd.array(random.randn(2, 16, size, size), dtype=dtype)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Pooling(
            x,
            kernel=(kernel, kernel),
            stride=(stride, stride),
            pad=(pad, pad),
            pool_type="avg",
            pooling_convention="full",
            count_include_pad=True,
        )
        loss = (y * mx.nd.array(random.randn(*y.shape), dtype=dtype)).sum()
    loss.backward()
    return x.grad.asnumpy()


def log_softmax(dtype):
    """Of scores as a trained network gives them."""
    return mx.nd.log_softmax(
        mx.nd.array(np.random.RandomState(0).randn(64, 1000), dtype=dtype)
    ).asnumpy()


def distance(function, *arguments):
    """Relative, of float32 from float64."""
    found, right = (function(dtype, *arguments) for dtype in ("float32", "float64"))
    return np.linalg.norm(found - right) / np.linalg.norm(right)


print("mxnet", mx.__version__)
for geometry in ((8, 3, 2, 1), (8, 3, 2, 0), (7, 3, 2, 1), (14, 5, 3, 0), (14, 5, 3, 1)):
    size, kernel, stride, pad = geometry
    print(
        f"average pooling, size {size}, kernel {kernel}, stride {stride}, pad {pad}: "
        f"gradient {distance(pooling_gradient, *geometry):.1e}"
    )
print(f"log_softmax: {distance(log_softmax):.1e}")
