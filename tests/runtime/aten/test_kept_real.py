"""Calls on the real torch_npu are kept, over a ``libascendcl.so`` that computes nothing and notes its calls.

``NPUDUMP_TORCHAIR`` names a folder with torch and torch_npu.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    not os.environ.get("NPUDUMP_TORCHAIR"), reason="NPUDUMP_TORCHAIR names no folder with torch_npu"
)


@pytest.fixture(scope="module")
def found(real_client: Callable[[str], Any]) -> Any:
    return real_client("real_kept.py")


@pytest.mark.parametrize(
    ("way", "name"),
    [("add", "aten.add.Tensor"), ("in place", "aten.mul_.Tensor"), ("strided", "aten.add.Tensor")],
)
def test_what_calls_on_the_device_were_given_is_kept(found: Any, way: str, name: str) -> None:
    assert found[way]["names"] == [name]
    assert found[way]["why not"] == [""]
    assert found[way]["as on the CPU"] == [True]


@pytest.mark.parametrize("way", ["add", "in place", "strided"])
def test_keeping_waits_for_the_device_and_runs_no_operator_there(found: Any, way: str) -> None:
    assert set(found[way]["more"]) == {"aclrtSynchronizeStreamWithTimeout"}
    assert found[way]["fewer"] == {}
