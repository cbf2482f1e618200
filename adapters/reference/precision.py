"""The precisions that frameworks offer: which values are rounded, and to how many bits.

TF32 rounds the operands of convolutions and inner products, and accumulates in float32.
Training in bfloat16 or float16 keeps parameters and sums in float32. It rounds the operands
of these products, and every value and gradient that one layer passes to another. In float16
the loss is scaled in the backward pass, because small gradients would underflow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xfbench.worker.protocol import LOSS_SCALE


@dataclass(frozen=True)
class Precision:
    """The dtype of arrays, and significands in bits with the leading bit; None means all bits.

    `operands` applies to the operands of products, `values` to what passes between layers.
    `half` means that the exponent is float16's too, with its overflow and subnormal numbers.
    Gradients are multiplied by `loss_scale` in the backward pass.
    """

    dtype: str
    operands: int | None = None
    values: int | None = None
    half: bool = False
    loss_scale: float = 1.0

    def round_operand(self, x: np.ndarray) -> np.ndarray:
        return self._round(x, self.operands)

    def round_value(self, x: np.ndarray) -> np.ndarray:
        return self._round(x, self.values)

    def _round(self, x: np.ndarray, bits: int | None) -> np.ndarray:
        if bits is None:
            return x
        if self.half:
            with np.errstate(over="ignore"):
                return x.astype(np.float16).astype(x.dtype)
        return round_to_nearest(x, bits)


def round_to_nearest(x: np.ndarray, bits: int) -> np.ndarray:
    """Return float32 values rounded to `bits` of significand: to nearest, ties to even."""
    dropped = 24 - bits
    pattern = np.ascontiguousarray(x, np.float32).view(np.uint32)
    odd = (pattern >> np.uint32(dropped)) & np.uint32(1)
    pattern = pattern + odd + np.uint32((1 << (dropped - 1)) - 1)
    mask = np.uint32(0xFFFFFFFF >> dropped << dropped)
    rounded: np.ndarray = (pattern & mask).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


PRECISIONS = {
    "float64": Precision("float64"),
    "float32": Precision("float32"),
    "tf32": Precision("float32", operands=11),
    "bfloat16": Precision("float32", operands=8, values=8),
    "float16": Precision("float32", operands=11, values=11, half=True, loss_scale=LOSS_SCALE),
}
