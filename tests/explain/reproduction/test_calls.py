"""A call of torch that was saved becomes a folder whose script says whether it is wrong by itself."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.cli import main
from pytest_npudump.errors import DumpError
from pytest_npudump.runtime.aten import CALL, INPUTS, OUTPUTS, call_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Repro = Callable[..., tuple[int, str, str]]

FOLDER = os.environ.get("NPUDUMP_TORCHAIR", "")
PLANTED = Path(__file__).parents[2] / "data" / "aten" / "first_call_wrong.py"
X = np.random.default_rng(3).normal(size=(16, 8)).astype(np.float32)

ISOLATED: dict[str, Any] = {"key": "aclnnRelu:output.0", "verdict": "convicted"}
REPORT: dict[str, Any] = {
    "test": "test_block.py::test_block",
    "golden": None,
    "origin": {
        "runtime": "torch_npu",
        "producer": {"torch_npu": "2.13.0", "hf32": "conv"},
        "models": [],
        "reference": None,
        "reference_map": None,
    },
}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Return the report of a wrong ``relu``, its call saved beside it."""
    calls = tmp_path / "run2" / "calls" / "0"
    calls.mkdir(parents=True)
    judged = {"place": 0, "dtype": "float32", "wide": "float32", "plain": False}
    judged |= {"apart": 0.001, "allowed": 4.8e-6, "why": ""}
    call = {
        "operator": "aten.relu.default",
        "arguments": [{"tensor": ["memory_0", [16, 8], [8, 1], 0]}],
        "named": {},
        "memory": {"memory_0": "float32"},
        "result": {"of": "returned", "at": 0},
        "judged": judged,
    }
    (calls / CALL).write_text(json.dumps(call), encoding="utf-8")
    np.savez(calls / INPUTS, memory_0=X.ravel())
    right = np.maximum(X, 0)
    np.savez(calls / OUTPUTS, device=right * np.float32(1.001), cpu=right)
    escalation = {"directory": str(tmp_path / "run2"), "findings": []}
    escalation["isolated"] = [{**ISOLATED, "saved": str(calls)}]
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**REPORT, "escalation": escalation}), encoding="utf-8")
    return path


def test_the_folder_tells_what_was_given_and_found(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    assert main(["repro", str(report), "-o", str(made), "--no-run"]) == 0
    told = capsys.readouterr().out
    assert told == f"aclnnRelu: written to {made}, not run: cd {made} && python repro.py\n"
    assert {path.name for path in made.iterdir()} == {CALL, INPUTS, OUTPUTS, "README.md", "repro.py"}
    assert json.loads((made / CALL).read_text(encoding="utf-8"))["hf32"] == "conv"
    with np.load(made / INPUTS) as inputs:
        np.testing.assert_array_equal(inputs["memory_0"].reshape(16, 8), X)
    words = (made / "README.md").read_text(encoding="utf-8")
    assert words.startswith("# Reproduction of `aten.relu.default`\n")
    assert "Relative L2 error on the device: 0.001." in words
    assert "| `0` | `float32 [16, 8] of memory_0, strides [8, 1]` |" in words
    assert "| the failing run | `torch_npu` | `2.13.0` |" in words


def test_what_a_call_cannot_be_is_refused(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["repro", str(report), "-o", str(tmp_path / "made")]
    assert main([*command, "--runtime=emulator"]) == 2
    assert "torch_npu runs it" in capsys.readouterr().err
    (tmp_path / "run2" / "calls" / "0" / INPUTS).unlink()
    assert main(command) == 2
    assert "run test_block.py::test_block again" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_a_machine_without_torch_says_that_it_cannot_run_and_keeps_the_folder(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "torch.py").write_text("raise ImportError('no torch here')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "none"))
    assert main(["repro", str(report), "-o", str(tmp_path / "made")]) == 2
    assert "no torch here" in capsys.readouterr().err
    assert (tmp_path / "made" / "repro.py").exists()


_SCRIPT = f"""
import os, runpy, sys
sys.argv = sys.argv[1:]
kept = runpy.run_path({str(PLANTED)!r})
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
_COMMAND = """
import subprocess, sys
from pytest_npudump.cli import main
from pytest_npudump.explain.reproduction import reproduction
how = {"capture_output": True, "text": True}
reproduction.ran = lambda folder, command: subprocess.run([*CLIENT, *command], cwd=folder, **how)
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def repro(report: Path, warm_torch: Any, monkeypatch: pytest.MonkeyPatch) -> Repro:
    """Run the command, or what it has written, with the real torch, in which one operator may be wrong."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([FOLDER, str(Path(__file__).parents[3])]))

    def run(*words: str, wrong: str = "", script: Path | None = None) -> tuple[int, str, str]:
        monkeypatch.setenv("FIRST_WRONG", wrong)
        if script:
            return warm_torch.run("-c", _SCRIPT, str(script))  # type: ignore[no-any-return]
        client = [*warm_torch.client, "-c", _SCRIPT]
        return warm_torch.run("-c", f"CLIENT = {client}{_COMMAND}", "repro", str(report), *words)  # type: ignore[no-any-return]

    return run


@pytest.mark.e2e
def test_a_wrong_kernel_fails_alone_and_a_right_one_passes(repro: Repro, tmp_path: Path) -> None:
    made = tmp_path / "made"
    told = f"aclnnRelu: failure reproduced against the CPU: cd {made} && python repro.py\n"
    assert repro("-o", str(made), wrong="relu") == (0, told, "")
    wrong, right = (repro(script=made / "repro.py", wrong=fault) for fault in ("relu", ""))
    assert (wrong[0], right[0]) == (1, 0)
    assert "relative L2 error 0.001 (limit 4.8e-06)" in wrong[1]
    assert "on cpu, compared with the CPU in float32" in right[1]


@pytest.mark.e2e
def test_drawn_inputs_fail_too_or_leave_nothing(repro: Repro, tmp_path: Path) -> None:
    assert repro("-o", str(tmp_path / "none"), "--synthetic")[0] == 1
    assert not (tmp_path / "none").exists()
    made = tmp_path / "made"
    assert repro("-o", str(made), "--synthetic", wrong="relu")[::2] == (0, "")
    with np.load(made / INPUTS) as inputs, np.load(made / OUTPUTS) as outputs:
        drawn = inputs["memory_0"]
        assert outputs.files == ["cpu"]
        np.testing.assert_array_equal(outputs["cpu"], np.maximum(drawn, 0).reshape(16, 8))
    assert {*drawn.tolist()} & {*X.ravel().tolist()} <= {float(X.max()), float(X.min())}
    assert repro(script=made / "repro.py")[0] == 0


@pytest.mark.each("name", ["load_library", "_os.path.join", "aten.relu", "aten.relu.__init__", "a.b.c.d"])
def test_a_call_names_nothing_but_an_operator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part = SimpleNamespace(path=os.path, relu=os.path, b=SimpleNamespace(c=SimpleNamespace(d=os)))
    ops = SimpleNamespace(load_library=os.system, _os=part, aten=part, a=part)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(ops=ops))
    given: dict[str, Any] = {"operator": name, "memory": {}, "arguments": [], "named": {}}
    with pytest.raises(DumpError, match=f"{name} is no operator"):
        call_of(given, {})
