"""The device of TensorFlow and its precision of float32 products.

The device must be chosen before TensorFlow does anything else in the process.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf

from xfbench.worker import gpus, rounding
from xfbench.worker.protocol import Options, Unavailable


@lru_cache(maxsize=None)
def choose_device(device: str, rank: int) -> Any:
    """Make TensorFlow compute on `device`, "cpu" or "cuda". Return the GPU, or None on the CPU.

    For "cuda", TensorFlow uses the GPU whose index is `rank` modulo the number of GPUs. Raises
    Unavailable if `device` is "cuda" and TensorFlow finds no NVIDIA device.
    """
    node_gpus = tf.config.list_physical_devices("GPU")
    if device == "cuda" and not node_gpus:
        built = "for CUDA" if tf.test.is_built_with_cuda() else "without CUDA"
        message = f"TensorFlow {tf.__version__}, built {built}"
        raise Unavailable(f"{message}, finds no NVIDIA device")
    # TensorFlow would use every visible GPU.
    rank_gpus = [node_gpus[rank % len(node_gpus)]] if device == "cuda" else []
    tf.config.set_visible_devices(rank_gpus, "GPU")
    return next(iter(rank_gpus), None)


def require_precision(gpu: Any, precision: str) -> None:
    """Raise Unsupported if `gpu` does not compute in `precision`. None: nothing is checked."""
    details = tf.config.experimental.get_device_details(gpu) if gpu else {}
    name = details.get("device_name", "")
    gpus.require_precision(precision, details.get("compute_capability"), name)


def set_product_precision(precision: str) -> None:
    """Make a GPU compute float32 products in TF32 if `precision` is "tf32", else in float32.

    TensorFlow's default is TF32.
    """
    if precision != "float64":  # float64 products are never computed in TF32
        tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")


def measure_product_precision(options: Options) -> str:
    """Measure the precision of float32 products and return its name, such as "tf32".

    A matrix product and a convolution are measured. The lower of their precisions is returned.
    """
    set_product_precision(options.precision)
    product, product_by_convolution = _products(options.kernel == "xla", options.precision)
    return rounding.lowest_measured_precision(
        lambda left, right: np.asarray(product(left, right)),
        lambda left, right: np.asarray(
            product_by_convolution(
                rounding.fill_images_with_rows(left), right[np.newaxis, np.newaxis]
            )
        ),
    )


@lru_cache(maxsize=None)
def _products(xla: bool, precision: str) -> tuple[Any, Any]:
    """Return a matrix product and a 1x1 convolution, which are compiled once for each precision.

    `precision` is set before: XLA may choose its algorithms when it compiles.
    """

    @tf.function(autograph=False, jit_compile=xla)  # type: ignore[untyped-decorator]
    def product(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return tf.matmul(left, right)

    @tf.function(autograph=False, jit_compile=xla)  # type: ignore[untyped-decorator]
    def product_by_convolution(images: tf.Tensor, kernels: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv2d(images, kernels, 1, "VALID")[:, 0, 0]

    return product, product_by_convolution
