"""Calls of the real torch are kept and recomputed; ``NPUDUMP_TORCHAIR`` names a folder with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="module")
def found(on_real_torch: Callable[[str], Any]) -> Any:
    return on_real_torch("aten/kept.py")


def test_every_kind_of_call_is_acquitted_as_it_is_and_convicted_with_a_fault(found: Any) -> None:
    assert len(found["cases"]) >= 20
    assert {name: wrong for name, wrong in found["cases"].items() if wrong} == {}


def test_random_operators_are_unknown(found: Any) -> None:
    assert found["random"] == ["aten.bernoulli.default draws random numbers"]


def test_a_call_beyond_the_limit_is_known_and_not_kept(found: Any) -> None:
    (why,) = found["limit"]
    assert "(96 bytes) are beyond what is left of npudump_dump_limit (50)" in why


def test_memory_in_a_private_format_is_not_read(found: Any) -> None:
    (why,) = found["private"]
    assert why.endswith("in a private format")


def test_what_is_recorded_into_a_graph_and_views_are_no_calls(found: Any) -> None:
    assert found["recorded"] == []
    assert "captured into a graph" in found["why none"]
    assert found["views"] == []


def test_sparse_tensors_are_said_to_be_unknown(found: Any) -> None:
    assert all("no plain tensor" in why for why in found["sparse"])


def test_recomputing_changes_neither_what_was_kept_nor_random_numbers(found: Any) -> None:
    assert found["untouched"]


def test_an_operator_that_the_cpu_has_not_is_said_so(found: Any) -> None:
    assert found["without kernel"] == (
        "the CPU does not compute npu_test.only_there.default for these arguments: no such kernel"
    )


def test_only_calls_with_the_extremes_of_the_first_run_are_kept(found: Any) -> None:
    assert found["extremes"] == [1, 0]


pytestmark = pytest.mark.skipif(
    not os.environ.get("NPUDUMP_TORCHAIR"), reason="NPUDUMP_TORCHAIR names no folder with torch_npu"
)


@pytest.fixture(scope="module")
def on_device(real_client: dict[str, Any]) -> Any:
    return real_client["real_kept.py"]


@pytest.mark.parametrize(
    ("way", "name"),
    [("add", "aten.add.Tensor"), ("in place", "aten.mul_.Tensor"), ("strided", "aten.add.Tensor")],
)
def test_what_calls_on_the_device_were_given_is_kept(on_device: Any, way: str, name: str) -> None:
    assert on_device[way]["names"] == [name]
    assert on_device[way]["why not"] == [""]
    assert on_device[way]["as on the CPU"] == [True]


@pytest.mark.parametrize("way", ["add", "in place", "strided"])
def test_keeping_waits_for_the_device_and_runs_no_operator_there(on_device: Any, way: str) -> None:
    assert set(on_device[way]["more"]) == {"aclrtSynchronizeStreamWithTimeout"}
    assert on_device[way]["fewer"] == {}
