"""The types of each layer's inputs in mixed precision, for adapters that cast the inputs.

The types follow automatic mixed precision and `precision.py` of the reference adapter. Convolutions
and inner products get 16-bit inputs, and so do layers that only select, pass or join values. Other
layers get float32 inputs. The trainer's parameters stay in float32.
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
    """Return (inputs, parameters), cast to the types that `layer` computes with.

    - `to_16_bits`: casts one array to the 16-bit type.
    - `to_float32`: casts one array to float32.

    Only parameters of convolutions and inner products are cast.
    """
    cast = to_16_bits if isinstance(layer, _SHORT) else to_float32
    if isinstance(layer, _PRODUCTS):
        parameters = {kind: cast(part) for kind, part in parameters.items()}
    return [cast(x) for x in inputs], parameters
