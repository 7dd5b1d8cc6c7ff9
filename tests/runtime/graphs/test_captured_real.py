"""The real torch_npu and its TorchAir, over a ``libascendcl.so`` that computes nothing and notes its calls.

Real are torch, torch_npu with its C++, ``torch.npu.graph``, ``make_graphed_callables`` and the backend
``npugraph_ex``; CANN is not. ``NPUDUMP_TORCHAIR`` names a folder with torch and torch_npu.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = os.environ.get("NPUDUMP_TORCHAIR", "")
COMPILER = shutil.which("cc")
TESTS = Path(__file__).parents[2]
DATA = TESTS / "data" / "torch_graphs"
LIBRARIES = ("ascendcl", "hccl", "acl_op_compiler", "ge_runner", "graph", "acl_tdt_channel", "opapi")

pytestmark = [
    pytest.mark.skipif(not FOLDER, reason="NPUDUMP_TORCHAIR names no folder with torch_npu"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("cann")
    for name in LIBRARIES[1:]:
        folder.joinpath(f"lib{name}.so").symlink_to("libascendcl.so")
    build = [str(COMPILER), "-w", "-shared", "-fPIC", "-Wl,-soname,libascendcl.so", "-o"]
    subprocess.run([*build, folder / "libascendcl.so", DATA / "libascendcl.c"], check=True)
    calls = folder / "calls"
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([FOLDER, str(TESTS.parent)]),
        "LD_LIBRARY_PATH": os.pathsep.join([str(folder), os.environ.get("LD_LIBRARY_PATH", "")]),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "ACL_CALLS": str(calls),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(DATA / "real_graphs.py"), str(folder), str(calls)],
        capture_output=True,
        text=True,
        env=environ,
        cwd=DATA,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


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
