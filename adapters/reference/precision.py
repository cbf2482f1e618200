"""The precisions that frameworks offer: which values are rounded, and to how many bits.

- TF32 rounds the operands of convolutions and inner products. It adds the products in float32.
- bfloat16 and float16 also round every value and gradient that one layer passes to another. They
  keep parameters and sums in float32.
- float16 also scales the loss in the backward pass, because small gradients would underflow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xfbench.worker.protocol import LOSS_SCALE


@dataclass(frozen=True)
class Precision:
    """A precision of training: which values are rounded, and to how many bits.

    - `dtype`: the dtype of all arrays.
    - `operands`: number of significand bits of the operands of convolutions and inner products,
      including the leading bit. None: operands are not rounded.
    - `values`: number of significand bits of the values and gradients that one layer passes to
      another. None: they are not rounded.
    - `half`: if true, operands and values are rounded to float16, so they may overflow or become
      subnormal.
    - `loss_scale`: factor of the loss during the backward pass. Returned gradients do not include
      this factor.
    """

    dtype: str
    operands: int | None = None
    values: int | None = None
    half: bool = False
    loss_scale: float = 1.0

    def round_operand(self, x: np.ndarray) -> np.ndarray:
        """Return `x`, an operand of a convolution or inner product, rounded as `operands` says."""
        return self._round(x, self.operands)

    def round_value(self, x: np.ndarray) -> np.ndarray:
        """Return `x`, which one layer passes to another, rounded as `values` says."""
        return self._round(x, self.values)

    def _round(self, x: np.ndarray, bits: int | None) -> np.ndarray:
        if bits is None:
            return x
        if self.half:
            with np.errstate(over="ignore"):
                return x.astype(np.float16).astype(x.dtype)
        return round_to_nearest(x, bits)


def round_to_nearest(x: np.ndarray, bits: int) -> np.ndarray:
    """Return `x` in float32, rounded to a significand of `bits` bits (to nearest, ties to even)."""
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
