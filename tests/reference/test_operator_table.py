"""Healthy operators with hostile arguments; ``NPUDUMP_TORCHAIR`` names a folder with the real torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = os.environ.get("NPUDUMP_TORCHAIR", "")
TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(not FOLDER, reason="NPUDUMP_TORCHAIR names no folder with torch")


@pytest.fixture(scope="module")
def found() -> Any:
    paths = os.pathsep.join([FOLDER, str(TESTS.parent)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(TESTS / "data" / "aten" / "operator_table.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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
