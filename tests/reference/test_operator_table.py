"""Healthy operators with hostile arguments; ``NPUDUMP_TORCHAIR`` names a folder with the real torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def found(on_real_torch: Callable[[str], Any]) -> Any:
    return on_real_torch("aten/operator_table.py")


def test_the_table_is_wide(found: Any) -> None:
    assert len(found["operators"]) >= 60
    for dtype in ("float32", "float16", "bfloat16"):
        counts = {k: v for k, v in found["healthy"].items() if k.startswith(f"torch.{dtype} ")}
        assert sum(counts.values()) > 4000
        assert counts[f"torch.{dtype} acquitted"] > 0.9 * sum(counts.values())


def test_healthy_operators_are_not_convicted(found: Any) -> None:
    assert len(found["convicted"]) < 0.005 * sum(found["healthy"].values()), found["convicted"]


def test_a_fault_of_a_thousandth_is_convicted_in_float32(found: Any) -> None:
    """Those that jump where a quotient is almost an integer are left out: any fault may be theirs."""
    jumps = ("remainder", "floor_divide", "fmod", "Tensor_mode")
    missed = [one for one in found["missed"] if not any(jump in one[1] for jump in jumps)]
    assert len(missed) <= 0.01 * sum(found["faulty"].values()), missed
    assert found["faulty"]["convicted"] > 250
