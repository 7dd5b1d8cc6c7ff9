"""Ways to compute the same: number formats, orders of addition, fused operators.

Sixteen-bit formats are float32 operators whose results are rounded, and so are weights: what an NPU with
float32 accumulators does, without its own approximations of functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

_STORED: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
_MANTISSA = 24
"""Bits of mantissa of float32, the hidden one counted."""


@dataclass(frozen=True)
class Numerics:
    """One way to compute.

    Attributes:
        dtype: what tensors are stored as: float32, float16 or bfloat16.
        operands: bits of mantissa that operands of products keep: 11 for HF32, 10 for TF32; None for all.
        order: seed of the order in which products are added; None for onnxruntime's.
        wide: whether operators that onnxruntime has for float64 are computed in it.
        fused: whether a chain of operators is rounded once, at its end.
        folded: whether batch normalisation is part of the weights before it.
    """

    dtype: str = "float32"
    operands: int | None = None
    order: int | None = None
    wide: bool = False
    fused: bool = False
    folded: bool = False

    def stored(self, array: np.ndarray) -> np.ndarray:
        """A tensor as it is stored, in its own type."""
        if array.dtype != np.float32 or self.dtype == "float32":
            return array
        with np.errstate(over="ignore"):
            return array.astype(_STORED[self.dtype])

    def rounded(self, array: np.ndarray) -> np.ndarray:
        """The same, back in float32."""
        return self.stored(array).astype(array.dtype, copy=False)

    def operand(self, array: np.ndarray) -> np.ndarray:
        """An operand of a product, rounded to nearest even."""
        if array.dtype != np.float32 or self.operands is None:
            return array
        spare = _MANTISSA - self.operands
        codes = array.view(np.uint32)
        half = np.uint32((1 << (spare - 1)) - 1) + (codes >> np.uint32(spare) & np.uint32(1))
        return ((codes + half) & ~np.uint32((1 << spare) - 1)).view(np.float32)


def noises(dtype: str, members: int) -> dict[str, list[Numerics]]:
    """Legitimate other numerics of a format, by their names in the tables."""
    plain = Numerics(dtype)
    found = {
        "sums in another order": [replace(plain, order=seed) for seed in range(members)],
        "operators in float64": [replace(plain, wide=True)],
        "batch normalisation folded": [replace(plain, folded=True)],
    }
    if dtype == "float32":
        return found | {
            "HF32 operands": [replace(plain, operands=11)],
            "TF32 operands": [replace(plain, operands=10)],
        }
    return found | {"fused": [replace(plain, fused=True), replace(plain, fused=True, folded=True)]}
