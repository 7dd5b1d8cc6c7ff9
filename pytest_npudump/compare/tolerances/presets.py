"""Named tolerances by data type, with the source of each number.

A tolerance is ``(rtol, atol)``: ``|actual - golden| <= atol + rtol * scale``, scale being the golden
tensor's own magnitude. Every preset covers every float type: what its source does not list comes from
``default``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_npudump.dump.values.dtypes import ALL

if TYPE_CHECKING:
    from collections.abc import Mapping

Bound = tuple[float, float]

_COARSE = 2.0**-7
"""Formats with a coarser step than bfloat16's have tighter bounds for mean and norm than for extremes."""

_STEPS: dict[str, Bound] = {
    "float8_e4m3fn": (2.0**-3, 0.0),
    "float8_e5m2": (2.0**-2, 0.0),
    "float6_e2m3fn": (2.0**-3, 0.0),
    "float6_e3m2fn": (2.0**-2, 0.0),
    "float4_e2m1fn": (2.0**-1, 0.0),
    "float4_e1m2fn": (2.0**-2, 0.0),
    # HiFloat8 has 3 to 1 bits of mantissa, fewer the further from 1; extremes of 16 to 128 have 2.
    "hifloat8": (2.0**-2, 0.0),
    "hifloat4": (2.0**-2, 0.0),
    # A shared exponent: one step doubles the whole block, so there is no small difference to forgive.
    "float8_e8m0fnu": (0.0, 0.0),
}

_DEFAULT: dict[str, Bound] = {
    # torch's and numpy's rtol for float64; nothing on an NPU computes in it, AI CPU does.
    "float64": (1e-7, 2.0**-60),
    "complex128": (1e-7, 2.0**-60),
    # Some hundred steps of float32, for HF32 and reductions in another order; atol as in msprobe.
    "float32": (1e-4, 2.0**-30),
    "complex64": (1e-4, 2.0**-30),
    # One step of the format. msprobe's atol of 2**-16 would be 15 % of a tensor of magnitude 1e-4.
    "float16": (1e-3, 2.0**-20),
    "complex32": (1e-3, 2.0**-20),
    "bfloat16": (8e-3, 2.0**-20),
    **_STEPS,
}

_SOURCES: dict[str, tuple[str, dict[str, Bound]]] = {
    "default": ("one step of the format, float32 1e-4", _DEFAULT),
    "exact": ("no difference at all", {d.name: (0.0, 0.0) for d in ALL if not d.exact}),
    "torch": (
        "torch.testing.assert_close",
        {
            "float64": (1e-7, 1e-7),
            "complex128": (1e-7, 1e-7),
            "float32": (1.3e-6, 1e-5),
            "complex64": (1.3e-6, 1e-5),
            "float16": (1e-3, 1e-5),
            "complex32": (1e-3, 1e-5),
            "bfloat16": (1.6e-2, 1e-5),
        },
    ),
    "ascend-abs": (
        "msprobe, absolute standard for elementwise operators",
        {
            "float32": (2.0**-20, 2.0**-30),
            "float16": (2.0**-10, 2.0**-16),
            "bfloat16": (2.0**-8, 2.0**-16),
        },
    ),
    "ascend-accum": (
        "msprobe, bound for long reductions",
        {"float32": (2.0**-11, 0.0), "float16": (2.0**-8, 0.0), "bfloat16": (2.0**-7, 0.0)},
    ),
    "atb-opcheck": (
        "msit opcheck, error tolerance by type",
        {"float32": (2.0**-20, 0.0), "float16": (2.0**-10, 0.0), "bfloat16": (2.0**-8, 0.0)},
    ),
    "torch-npu": (
        "torch_npu, assertRtolEqual",
        {"float32": (1e-4, 1e-4), "float16": (1e-3, 1e-3), "bfloat16": (1e-3, 1e-3)},
    ),
    # One bound of network comparison for both 16-bit types: the errors of all layers before add up. Tensors
    # of float32 take msprobe's bound of one part in a thousand, which HF32 and convolutions keep.
    "om-net": (
        "msit and msprobe, a model on the device against its ONNX model",
        {
            "float32": (1e-3, 2.0**-30),
            "complex64": (1e-3, 2.0**-30),
            "float16": (0.05, 2.0**-20),
            "complex32": (0.05, 2.0**-20),
            "bfloat16": (0.05, 2.0**-20),
        },
    ),
    "polygraphy": (
        "polygraphy's defaults",
        {"float32": (1e-5, 1e-5), "float16": (1e-5, 1e-5), "bfloat16": (1e-5, 1e-5)},
    ),
}

PRESETS: Mapping[str, Mapping[str, Bound]] = MappingProxyType(
    {name: MappingProxyType({**_DEFAULT, **bounds}) for name, (_, bounds) in _SOURCES.items()}
)
"""Bounds by preset and data type. Integers, bools and types without a meaning are exact in all of them."""

DESCRIPTIONS: Mapping[str, str] = MappingProxyType({name: text for name, (text, _) in _SOURCES.items()})


def bound(preset: str, dtype: str, statistic: str) -> Bound:
    """``(rtol, atol)`` of one statistic; ``(0, 0)`` for types that are exact and for counts.

    Rounding averages out in a mean and a norm: where a format's step is coarser than bfloat16's, a
    quarter of it is allowed there.
    """
    if statistic not in {"max", "min", "avg", "l2norm"}:
        return (0.0, 0.0)
    rtol, atol = PRESETS[preset].get(dtype, (0.0, 0.0))
    if dtype in _STEPS and statistic in {"avg", "l2norm"} and rtol > _COARSE:
        return (rtol / 4, atol)
    return (rtol, atol)
