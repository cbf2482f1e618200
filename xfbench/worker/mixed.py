"""Mixed precision for frameworks without a suitable one: the input types of each layer.

The types follow automatic mixed precision and the reference's `precision.py`. Layers that multiply
get 16-bit numbers, and so do layers that only select, pass or join values. Other layers get
float32. Parameters stay in float32.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from xfbench.workloads import layers as xl

PRECISIONS = ("bfloat16", "float16")
_PRODUCTS = (xl.Convolution, xl.InnerProduct)
_SHORT = (*_PRODUCTS, xl.ReLU, xl.Dropout, xl.Concat, xl.Eltwise)


def cast_inputs(
    layer: xl.Layer,
    inputs: List[Any],
    parts: Dict[str, Any],
    short: Callable[[Any], Any],
    long: Callable[[Any], Any],
) -> Tuple[List[Any], Dict[str, Any]]:
    """Return the layer's inputs and parameters, cast to 16 bits by `short` or float32 by `long`."""
    cast = short if isinstance(layer, _SHORT) else long
    if isinstance(layer, _PRODUCTS):
        parts = {kind: cast(part) for kind, part in parts.items()}
    return [cast(x) for x in inputs], parts
