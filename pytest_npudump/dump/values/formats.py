"""The layout numbers of a dump and their names; the same in dump headers and in GE.

Source: ``OutputFormat`` of CANN's ``dump_data.proto`` and ``ge::Format``; 50 and 51 are GE's alone.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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
