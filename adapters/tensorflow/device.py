"""Where TensorFlow computes, and how exactly: chosen once in a process, before all else."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import tensorflow as tf

from xfbench.worker import rounding
from xfbench.worker.protocol import Options, Unavailable


@lru_cache(maxsize=None)
def choose(device: str, rank: int) -> None:
    """Compute on `device`, "cpu" or "cuda": on the latter each rank has one of its own.

    Raises Unavailable where TensorFlow finds none.
    """
    found = tf.config.list_physical_devices("GPU")
    if device == "cuda" and not found:
        built = "for CUDA" if tf.test.is_built_with_cuda() else "without CUDA"
        told = f"TensorFlow {tf.__version__}, built {built}"
        raise Unavailable(f"{told}, finds no NVIDIA device")
    # What may be computed on a GPU that can be seen, is.
    own = [found[rank % len(found)]] if device == "cuda" else []
    tf.config.set_visible_devices(own, "GPU")


def multiply(precision: str) -> None:
    """Let a GPU multiply numbers of float32 as exactly as `precision` says; unasked it is TF32."""
    if precision != "float64":  # which is multiplied as it is
        tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")


def precision(options: Options) -> str:
    """How exactly it multiplies numbers of float32: seen in a product and in a convolution."""
    multiply(options.precision)
    xla = options.kernel == "xla"

    @tf.function(autograph=False, jit_compile=xla)  # type: ignore[untyped-decorator]
    def product(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        return tf.matmul(one, other)

    @tf.function(autograph=False, jit_compile=xla)  # type: ignore[untyped-decorator]
    def convolved(images: tf.Tensor, kernels: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv2d(images, kernels, 1, "VALID")[:, 0, 0]

    return rounding.measured_precision(
        lambda one, other: np.asarray(product(one, other)),
        lambda one, other: np.asarray(
            convolved(rounding.matrix_as_images(one), other[np.newaxis, np.newaxis])
        ),
    )
