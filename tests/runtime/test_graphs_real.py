"""The real torch, torch_npu and its TorchAir, over a ``libascendcl.so`` that notes its calls.

Real are torch, torch_npu with its C++, ``torch.npu.graph``, ``make_graphed_callables`` and the backend
``npugraph_ex``; CANN is not. ``NPUDUMP_TORCHAIR`` names a folder with torch and torch_npu."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

FOLDER = os.environ.get("NPUDUMP_TORCHAIR", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="NPUDUMP_TORCHAIR names no folder with torch_npu")


@pytest.fixture(scope="module")
def found(real_client: dict[str, Any]) -> Any:
    return real_client["real_graphs.py"]


WAYS = ("plain", "callables", "torchair")


@pytest.mark.parametrize("way", WAYS)
def test_captures_and_replays_are_seen_whoever_makes_them(found: Any, way: str) -> None:
    told = found["stats"][way]["told"]
    assert [words for words in told if "NPUGraph captured at real_graphs.py:" in words] == told
    assert any("and replayed at real_graphs.py:" in words for words in told)
    assert all("CANN computes no statistics" in words for words in told)


@pytest.mark.parametrize("way", WAYS)
def test_one_replay_under_a_dump_of_tensors_is_good(found: Any, way: str) -> None:
    """TorchAir captures an empty graph too, to have a pool of memory, and never replays that."""
    seen = found["once"][way]
    assert (seen["told"], seen["raised"]) == ([], "")
    assert seen["calls"].count("aclmdlRICaptureBegin") == (2 if way == "torchair" else 1)
    dumped = [call for call in seen["calls"] if call.startswith("aclmdl")]
    assert (dumped[0], dumped[1], dumped[-1]) == ("aclmdlInitDump", "aclmdlSetDump", "aclmdlFinalizeDump")


@pytest.mark.parametrize("way", WAYS)
def test_a_second_replay_never_reaches_cann(found: Any, way: str) -> None:
    seen = found["twice"][way]
    assert "a second replay reads memory that the first has freed" in seen["raised"]
    assert len(seen["told"]) == 1
    assert seen["calls"].count("aclmdlRIExecuteAsync") == 1


def test_a_graph_from_before_the_dump_is_named(found: Any) -> None:
    (words,) = found["before"]["told"]
    assert words.startswith("NPUGraph replayed at real_graphs.py:")
    assert "captured before this dump was on" in words


def test_a_graph_that_is_never_replayed_is_named(found: Any) -> None:
    (words,) = found["never"]["told"]
    assert "never replayed" in words


def test_a_dump_that_is_left_to_the_test_is_ended_by_it_alone(found: Any) -> None:
    assert found["released"] == ["aclmdlInitDump", "aclmdlSetDump", "aclmdlFinalizeDump"]


def test_the_client_is_left_as_it_was(found: Any) -> None:
    assert found["restored"]


@pytest.fixture(scope="module")
def dispatched(on_real_torch: Callable[[str], Any]) -> Any:
    return on_real_torch("torchair/real_dispatch.py")


def test_operators_on_the_device_are_seen(dispatched: Any) -> None:
    assert [name for name, operator in dispatched["counted"].items() if not operator] == []
    assert dispatched["counted"]["add"] == "aten.add.Tensor"
    assert dispatched["counted"]["in place"] == "aten.add_.Tensor"


def test_what_only_moves_views_or_fills_is_not(dispatched: Any) -> None:
    assert {name: operator for name, operator in dispatched["not counted"].items() if operator} == {}


def test_what_is_recorded_into_a_graph_does_not_run(dispatched: Any) -> None:
    assert dispatched["recorded"] == ""


def test_modes_of_the_test_are_left_as_they_are(dispatched: Any) -> None:
    """Each takes the uppermost mode off when it ends, so that ours has to lie beneath."""
    assert dispatched["stacks"] == [["NpudumpOperators", "Users"], ["NpudumpOperators"], ["Users"], []]


def test_functions_are_compiled_as_ever(dispatched: Any) -> None:
    assert dispatched["compiled"] == {"graphs": 1, "same": True}


SCRIPT = """
import threading
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from pytest_npudump.runtime.base import Evidence
from pytest_npudump.runtime.graphs import ThreadsOfTest

tensor = torch.ones(3)

def work():
    (tensor + tensor).sum()

def told(body):
    threads, evidence = ThreadsOfTest("cpu"), Evidence()
    threads.watch()
    body()
    threads.stop(evidence)
    print([sorted(thread.name for thread in found) for dump in evidence.runners for found in dump.values()])

def together(*names, between=lambda: None):
    started = [threading.Thread(target=work, name=name) for name in names]
    for thread in started:
        thread.start()
    between()
    for thread in started:
        thread.join()

told(lambda: together("one", "two"))
told(lambda: (work(), together("one")))
told(lambda: together("one", between=work))
told(lambda: together("one", between=lambda: torch.zeros(2)))
print(_get_current_dispatch_mode_stack())
"""


def test_threads_without_an_order_are_told(warm_torch: Any) -> None:
    code, printed, errors = warm_torch.run("-c", SCRIPT)
    assert (code, errors) == (0, "")
    assert printed.splitlines() == ["[['one', 'two']]", "[]", "[['MainThread', 'one']]", "[]", "[]"]
