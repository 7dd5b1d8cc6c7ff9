"""The real torch, in a process of its own: it dispatches to the device "meta" where no NPU is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def found(on_real_torch: Callable[[str], Any]) -> Any:
    return on_real_torch("torchair/real_dispatch.py")


def test_operators_on_the_device_are_seen(found: Any) -> None:
    assert [name for name, operator in found["counted"].items() if not operator] == []
    assert found["counted"]["add"] == "aten.add.Tensor"
    assert found["counted"]["in place"] == "aten.add_.Tensor"


def test_what_only_moves_views_or_fills_is_not(found: Any) -> None:
    assert {name: operator for name, operator in found["not counted"].items() if operator} == {}


def test_what_is_recorded_into_a_graph_does_not_run(found: Any) -> None:
    assert found["recorded"] == ""


def test_modes_of_the_test_are_left_as_they_are(found: Any) -> None:
    """Each takes the uppermost mode off when it ends, so that ours has to lie beneath."""
    assert found["stacks"] == [["NpudumpOperators", "Users"], ["NpudumpOperators"], ["Users"], []]


def test_functions_are_compiled_as_ever(found: Any) -> None:
    assert found["compiled"] == {"graphs": 1, "same": True}
