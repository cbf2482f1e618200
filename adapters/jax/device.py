"""The device of JAX and its precision of float32 products.

The device must be chosen before JAX creates any array in the process.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax import lax

from xfbench.worker import gpus, nvml, rounding
from xfbench.worker.protocol import Unavailable

# JAX's names for the precision of products. JAX's default is None, which is TF32 on a GPU.
PRODUCTS = {"float32": "highest", "tf32": "tensorfloat32"}


@lru_cache(maxsize=None)
def choose_device(device: str, rank: int) -> Any:
    """Make JAX compute on `device`, "cpu" or "cuda". Return JAX's device.

    For "cuda", JAX uses the GPU whose index is `rank` modulo the number of GPUs. Raises Unavailable
    if `device` is "cuda" and JAX finds no NVIDIA device.
    """
    jax.config.update("jax_platforms", device)
    visible = nvml.list_visible_devices() if device == "cuda" else None
    if visible:  # JAX would take memory of every visible GPU
        jax.config.update("jax_cuda_visible_devices", str(rank % len(visible)))
    try:
        devices = jax.local_devices()
    except (RuntimeError, AssertionError) as error:  # AssertionError has no message
        first_line = str(error).partition("\n")[0]
        message = f"JAX {jax.__version__} finds no NVIDIA device"
        raise Unavailable(f"{message}: {first_line}" if first_line else message) from error
    chosen = devices[rank % len(devices)]
    jax.config.update("jax_default_device", chosen)
    return chosen


def require_precision(chosen: Any, precision: str) -> None:
    """Raise Unsupported if the device `chosen` is a GPU that does not compute in `precision`."""
    if capability := getattr(chosen, "compute_capability", None):  # such as "7.0"
        major, minor = map(int, capability.split("."))
        gpus.require_precision(precision, (major, minor), chosen.device_kind)


def measure_product_precision() -> str:
    """Measure the precision of float32 products and return its name, such as "tf32".

    A matrix product and a convolution are measured. The lower of their precisions is returned.
    """
    return rounding.lowest_measured_precision(_product, _product_by_convolution)


def peak_memory_bytes(array: Any) -> int | None:
    """Return the most memory that JAX's data took on the GPU of `array` since JAX was loaded.

    JAX cannot forget an earlier peak. Returns None without a GPU, or if JAX does not know the peak.
    """
    [used] = array.devices()
    statistics = used.memory_stats() if used.platform == "gpu" else None
    peak = (statistics or {}).get("peak_bytes_in_use")
    return None if peak is None else int(peak)


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.asarray(jax.jit(lax.dot)(left, right))


def _product_by_convolution(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    words = {"window_strides": (1, 1), "padding": "VALID"}
    layout = ("NHWC", "HWIO", "NHWC")
    images, kernels = rounding.fill_images_with_rows(left), right[np.newaxis, np.newaxis]
    output = lax.conv_general_dilated(images, kernels, **words, dimension_numbers=layout)
    return np.asarray(output)[:, 0, 0]
