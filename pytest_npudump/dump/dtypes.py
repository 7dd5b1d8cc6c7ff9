"""The data types and layouts of a dump: CANN's numbers and names, and how many bits an element has.

Numbers of types: ``OutputDataType`` of CANN's ``dump_data.proto`` (in dump files) and ``ge::DataType`` (in
TLV containers and in ``original_op``). The two enumerate the same types in different orders. Numbers of
layouts are the same in dump headers and in GE (``OutputFormat``, ``ge::Format``); 50 and 51 are GE's alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np


UNKNOWN = "-"
"""Name of a type that the producer did not tell (ACL's statistics print ``-`` above proto number 25)."""


@dataclass(frozen=True, slots=True)
class DType:
    """One data type.

    Attributes:
        name: as this package and its golden files write it: numpy's or ml_dtypes' name where one exists.
        proto: number in ``OutputDataType``.
        ge: number in ``ge::DataType``, or None where GE has none.
        cann: name without prefix, as in ``DT_FLOAT16``.
        bits: size of one element; 0 where the size varies or is not known.
        kind: ``float``, ``int``, ``bool``, ``complex`` or ``opaque`` (bytes without a numeric meaning).
    """

    name: str
    proto: int
    ge: int | None
    cann: str
    bits: int
    kind: str

    @property
    def exact(self) -> bool:
        """Return whether two runs must match bit for bit: integers, bools and bytes without a meaning."""
        return self.kind not in {"float", "complex"}


ALL: tuple[DType, ...] = (
    DType("undefined", 0, 28, "UNDEFINED", 8, "opaque"),
    DType("float32", 1, 0, "FLOAT", 32, "float"),
    DType("float16", 2, 1, "FLOAT16", 16, "float"),
    DType("int8", 3, 2, "INT8", 8, "int"),
    DType("uint8", 4, 4, "UINT8", 8, "int"),
    DType("int16", 5, 6, "INT16", 16, "int"),
    DType("uint16", 6, 7, "UINT16", 16, "int"),
    DType("int32", 7, 3, "INT32", 32, "int"),
    DType("int64", 8, 9, "INT64", 64, "int"),
    DType("uint32", 9, 8, "UINT32", 32, "int"),
    DType("uint64", 10, 10, "UINT64", 64, "int"),
    DType("bool", 11, 12, "BOOL", 8, "bool"),
    DType("float64", 12, 11, "DOUBLE", 64, "float"),
    DType("string", 13, 13, "STRING", 0, "opaque"),
    DType("dual_sub_int8", 14, 14, "DUAL_SUB_INT8", 8, "opaque"),
    DType("dual_sub_uint8", 15, 15, "DUAL_SUB_UINT8", 8, "opaque"),
    DType("complex64", 16, 16, "COMPLEX64", 64, "complex"),
    DType("complex128", 17, 17, "COMPLEX128", 128, "complex"),
    DType("qint8", 18, 18, "QINT8", 8, "opaque"),
    DType("qint16", 19, 19, "QINT16", 16, "opaque"),
    DType("qint32", 20, 20, "QINT32", 32, "opaque"),
    DType("quint8", 21, 21, "QUINT8", 8, "opaque"),
    DType("quint16", 22, 22, "QUINT16", 16, "opaque"),
    DType("resource", 23, 23, "RESOURCE", 64, "opaque"),
    DType("string_ref", 24, 24, "STRING_REF", 0, "opaque"),
    DType("dual", 25, 25, "DUAL", 40, "opaque"),
    DType("variant", 26, 26, "VARIANT", 64, "opaque"),
    DType("bfloat16", 27, 27, "BF16", 16, "float"),
    DType("int4", 28, 29, "INT4", 4, "int"),
    DType("uint1", 29, 30, "UINT1", 1, "int"),
    DType("int2", 30, 31, "INT2", 2, "int"),
    DType("uint2", 31, 32, "UINT2", 2, "int"),
    DType("complex32", 32, 33, "COMPLEX32", 32, "complex"),
    DType("hifloat8", 33, 34, "HIFLOAT8", 8, "float"),
    DType("float8_e5m2", 34, 35, "FLOAT8_E5M2", 8, "float"),
    DType("float8_e4m3fn", 35, 36, "FLOAT8_E4M3FN", 8, "float"),
    DType("float8_e8m0fnu", 36, 37, "FLOAT8_E8M0", 8, "float"),
    DType("float6_e3m2fn", 37, 38, "FLOAT6_E3M2", 6, "float"),
    DType("float6_e2m3fn", 38, 39, "FLOAT6_E2M3", 6, "float"),
    DType("float4_e2m1fn", 39, 40, "FLOAT4_E2M1", 4, "float"),
    DType("float4_e1m2fn", 40, 41, "FLOAT4_E1M2", 4, "float"),
    DType("hifloat4", 41, 42, "HIFLOAT4", 4, "float"),
    DType("hifloat4_scale", 42, 43, "HIFLOAT4_SCALE", 0, "opaque"),
)

BY_NAME: Mapping[str, DType] = MappingProxyType({d.name: d for d in ALL})
BY_PROTO: Mapping[int, DType] = MappingProxyType({d.proto: d for d in ALL})
BY_GE: Mapping[int, DType] = MappingProxyType({d.ge: d for d in ALL if d.ge is not None})


_INEXACT = frozenset(d.name for d in ALL if not d.exact)


def is_exact(name: str) -> bool:
    """Return whether values of the type called ``name`` are compared exactly, those of unknown types too."""
    return name not in _INEXACT


_ALIASES = {"bf16": "bfloat16", "float": "float32", "double": "float64", "half": "float16", "unknow": UNKNOWN}
_SPELLINGS = (
    {UNKNOWN: UNKNOWN}
    | {found.name: found.name for found in ALL}
    | {found.cann.lower(): found.name for found in ALL}
    | _ALIASES
)


@lru_cache(maxsize=1024)
def dtype_name(text: str) -> str:
    """Return this package's name of the type a producer calls ``text``.

    CANN writes ``DT_FLOAT16`` (``-`` or ``UNKNOW`` where it has no name), MindSpore ``float16`` on
    Ascend and ``Float16`` on CPU, msprobe ``FLOAT16`` and ``BF16``.
    """
    lower = text.lower().removeprefix("dt_")
    return _SPELLINGS.get(lower, lower)


_NAMES = (
    "NCHW NHWC ND NC1HWC0 FRACTAL_Z NC1C0HWPAD NHWC1C0 FSR_NCHW FRACTAL_DECONV C1HWNC0 "
    "FRACTAL_DECONV_TRANSPOSE FRACTAL_DECONV_SP_STRIDE_TRANS NC1HWC0_C04 FRACTAL_Z_C04 CHWN "
    "FRACTAL_DECONV_SP_STRIDE8_TRANS HWCN NC1KHKWHWC0 BN_WEIGHT FILTER_HWCK HASHTABLE_LOOKUP_LOOKUPS "
    "HASHTABLE_LOOKUP_KEYS HASHTABLE_LOOKUP_VALUE HASHTABLE_LOOKUP_OUTPUT HASHTABLE_LOOKUP_HITS C1HWNCoC0 "
    "MD NDHWC FRACTAL_ZZ FRACTAL_NZ NCDHW DHWCN NDC1HWC0 FRACTAL_Z_3D CN NC DHWNC "
    "FRACTAL_Z_3D_TRANSPOSE FRACTAL_ZN_LSTM FRACTAL_Z_G RESERVED ALL NULL ND_RNN_BIAS FRACTAL_ZN_RNN YUV "
    "YUV_A NCL FRACTAL_Z_WINO C1HWC0 FRACTAL_NZ_C0_16 FRACTAL_NZ_C0_32"
)

FORMATS: Mapping[int, str] = MappingProxyType({**dict(enumerate(_NAMES.split())), 255: "MAX"})
"""Name of each primary layout number."""

_PRIMARY_BITS, _SUB_BITS = 0xFF, 0xFFFF


def format_name(value: int) -> str:
    """Name of the primary layout in ``value``, or ``format:N`` for a number no table has.

    ``value`` may be GE's packed 32-bit form, which exception dumps carry unchanged.
    """
    primary = value & _PRIMARY_BITS
    return FORMATS.get(primary, f"format:{primary}")


def sub_format(value: int) -> int:
    """Sub-format (the group count of FRACTAL_Z) packed into bits 8 to 23 of ``value``."""
    return value >> 8 & _SUB_BITS


def is_of_numpy(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is numpy's own, and not one that ml_dtypes has registered.

    A type that was unpickled or got its byte order anew is numpy's as well, though ``isbuiltin`` is 0, not 1.
    """
    return dtype.isbuiltin != 2  # noqa: PLR2004 - numpy's own code
