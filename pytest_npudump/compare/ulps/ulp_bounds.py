"""How many units in the last place an operator's output may be off, by its type.

They are meant for operators that work element by element. A sum of many products that cancels is off by
more, and wrong in nothing: such an operator is given bounds of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_npudump.dump.values.dtypes import is_exact
from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class UlpBound:
    """A default.

    Attributes:
        ulps: units in the last place.
        source: whose number it is.
    """

    ulps: int
    source: str


ULP_BOUNDS: Mapping[str, UlpBound] = MappingProxyType(
    {
        "float16": UlpBound(2, "OpenCL C 3.0, numerical compliance of half: most built-in functions"),
        "bfloat16": UlpBound(2, "torch.testing.assert_close: rtol 1.6e-2, where a unit is 7.8e-3"),
        "float32": UlpBound(4, "OpenCL C 3.0, single: exp and log 3, sin and cos 4"),
        "float64": UlpBound(4, "OpenCL C 3.0, double: the same"),
    }
)
"""Defaults; integers and bools are compared exactly (``binary`` of Huawei's ops-test-kit)."""


def ulps_allowed(dtype: str, ulps: int | None) -> int:
    """Return how far an output of a type may be off: what a test says, else the default.

    Raises:
        RequestError: there is no default for the type, or less than 0 is asked for.
    """
    if ulps is not None and ulps < 0:
        raise RequestError(f"ulps={ulps}: expected a number of units in the last place, at least 0")
    if ulps is not None or is_exact(dtype):
        return ulps or 0
    if dtype not in ULP_BOUNDS:
        known = ", ".join(ULP_BOUNDS)
        raise RequestError(f"ulps: there is no default for {dtype}, only for integers, {known}; say how many")
    return ULP_BOUNDS[dtype].ulps
