"""The device of MXNet and its precision of float32 products."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mxnet as mx
import numpy as np

from xfbench.worker import rounding
from xfbench.worker.protocol import Unavailable


def context(device: str, rank: int) -> Any:
    """Return MXNet's context for `device`, "cpu" or "cuda".

    For "cuda", the context is the GPU whose index is `rank` modulo the number of GPUs. Raises
    Unavailable if `device` is "cuda" and MXNet finds no NVIDIA device.
    """
    if device == "cpu":
        return mx.cpu()
    # A build without CUDA counts 0 GPUs. A build with CUDA raises an error if there is no driver.
    try:
        count = mx.context.num_gpus()
    except mx.MXNetError:
        count = 0
    if not count:
        built = "for CUDA" if mx.runtime.Features().is_enabled("CUDA") else "without CUDA"
        message = f"MXNet {mx.__version__}, built {built}"
        raise Unavailable(f"{message}, finds no NVIDIA device")
    return mx.gpu(rank % count)


@lru_cache(maxsize=None)
def stores_unbiased_variance(mx_context: Any, dtype: str, eps: float) -> bool:
    """Return whether a batch norm stores the unbiased variance of a batch, as cuDNN's does.

    MXNet's own kernels store the biased variance. This function measures what runs.
    """
    images = mx.nd.array([0.0, 1.0], mx_context, dtype).reshape((2, 1, 1, 1))
    gamma, beta, mean, variance = (mx.nd.zeros(1, mx_context, dtype) for _ in range(4))
    gamma.attach_grad()
    with mx.autograd.record():
        output = mx.nd.BatchNorm(
            images, gamma, beta, mean, variance, eps=eps, momentum=0, fix_gamma=False
        )
    output.backward()
    gamma.grad.wait_to_read()  # the backward pass may write the variance
    return float(variance.asscalar()) > 0.375  # biased: 0.25; unbiased: 0.5


def measure_product_precision(mx_context: Any) -> str:
    """Measure the precision of float32 products and return its name, such as "tf32".

    A matrix product and a convolution are measured. The lower of their precisions is returned.
    """

    def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.asarray(mx.nd.dot(_to_context(left), _to_context(right)).asnumpy())

    def product_by_convolution(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        images = rounding.fill_images_with_rows(left).transpose(0, 3, 1, 2)
        kernels = right.T[:, :, np.newaxis, np.newaxis]
        words = {"kernel": (1, 1), "num_filter": len(kernels), "no_bias": True}
        output = mx.nd.Convolution(_to_context(images), _to_context(kernels), **words)
        return np.asarray(output.asnumpy()[:, :, 0, 0])

    def _to_context(array: np.ndarray) -> Any:
        return mx.nd.array(array, ctx=mx_context)

    return rounding.lowest_measured_precision(product, product_by_convolution)
