"""MXNet 1.9.1 with oneDNN: errors in average pooling's gradient and in log-softmax.

Run with MXNet's interpreter. Prints the distance of each operation in float32, which oneDNN
computes, from float64, which MXNet computes. MXNET_MKLDNN_ENABLED=0 shows MXNet's own float32.
"""

import mxnet as mx
import numpy as np


def pooling_gradient(dtype, size, kernel, stride, pad):
    """Return the input's gradient of a weighted sum of an average pooling that rounds up."""
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
    """Return the log-softmax of scores like those of a trained network."""
    return mx.nd.log_softmax(
        mx.nd.array(np.random.RandomState(0).randn(64, 1000), dtype=dtype)
    ).asnumpy()


def relative_distance(function, *arguments):
    """Return the relative distance of float32 from float64."""
    actual, expected = (function(dtype, *arguments) for dtype in ("float32", "float64"))
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


print("mxnet", mx.__version__)
for geometry in ((8, 3, 2, 1), (8, 3, 2, 0), (7, 3, 2, 1), (14, 5, 3, 0), (14, 5, 3, 1)):
    size, kernel, stride, pad = geometry
    print(
        f"average pooling, size {size}, kernel {kernel}, stride {stride}, pad {pad}: "
        f"gradient {relative_distance(pooling_gradient, *geometry):.1e}"
    )
print(f"log_softmax: {relative_distance(log_softmax):.1e}")
