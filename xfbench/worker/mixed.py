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


def cast_inputs_and_parameters(
    layer: xl.Layer,
    inputs: List[Any],
    parameters: Dict[str, Any],
    to_16_bits: Callable[[Any], Any],
    to_float32: Callable[[Any], Any],
) -> Tuple[List[Any], Dict[str, Any]]:
    """Return the layer's inputs and parameters, cast to 16 bits by `short` or float32 by `long`."""
    cast = to_16_bits if isinstance(layer, _SHORT) else to_float32
    if isinstance(layer, _PRODUCTS):
        parameters = {kind: cast(part) for kind, part in parameters.items()}
    return [cast(x) for x in inputs], parameters
