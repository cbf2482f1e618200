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
    gpus = tf.config.list_physical_devices("GPU")
    if device == "cuda" and not gpus:
        built = "for CUDA" if tf.test.is_built_with_cuda() else "without CUDA"
        message = f"TensorFlow {tf.__version__}, built {built}"
        raise Unavailable(f"{message}, finds no NVIDIA device")
    # What may be computed on a GPU that can be seen, is.
    rank_gpus = [gpus[rank % len(gpus)]] if device == "cuda" else []
    tf.config.set_visible_devices(rank_gpus, "GPU")


def multiply(precision: str) -> None:
    """Let a GPU multiply numbers of float32 as exactly as `precision` says; unasked it is TF32."""
    if precision != "float64":  # which is multiplied as it is
        tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")


def precision(options: Options) -> str:
    """How exactly it multiplies numbers of float32: seen in a product and in a convolution."""
    multiply(options.precision)
    xla = options.kernel == "xla"

    @tf.function(autograph=False, jit_compile=xla)  # type: ignore[untyped-decorator]
    def product(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return tf.matmul(left, right)

    @tf.function(autograph=False, jit_compile=xla)  # type: ignore[untyped-decorator]
    def convolved(images: tf.Tensor, kernels: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv2d(images, kernels, 1, "VALID")[:, 0, 0]

    return rounding.seen(
        lambda left, right: np.asarray(product(left, right)),
        lambda left, right: np.asarray(
            convolved(rounding.images(left), right[np.newaxis, np.newaxis])
        ),
    )
