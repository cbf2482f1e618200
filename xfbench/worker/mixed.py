"""Mixed precision where a framework's own would not do: what each layer reads, and how exactly.

As automatic casting has it, and the reference's `precision.py`: products read and pass on numbers
of few bits, and so does what only picks, passes or joins them; what adds up in other ways is given
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
    """What `layer` reads of its inputs and parameters, cast by `short` or by `long`."""
    cast = short if isinstance(layer, _SHORT) else long
    if isinstance(layer, _PRODUCTS):
        parts = {kind: cast(part) for kind, part in parts.items()}
    return [cast(x) for x in inputs], parts
