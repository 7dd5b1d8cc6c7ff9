"""The real torch, in a process of its own: it dispatches to the device "meta" where no NPU is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = os.environ.get("NPUDUMP_TORCHAIR", "")
TESTS = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not FOLDER, reason="NPUDUMP_TORCHAIR names no folder with torch")


@pytest.fixture(scope="module")
def found() -> Any:
    paths = os.pathsep.join([FOLDER, str(TESTS.parent)])
    environ = {**os.environ, "PYTHONPATH": paths, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    script = TESTS / "data" / "torchair" / "real_dispatch.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


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
