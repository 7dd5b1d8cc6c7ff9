"""The smallest piece of a model that still fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx

from pytest_npudump.cli import main
from tests.explain.reproduction.conftest import Failed, run_pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def reduced(found: Failed, folder: Path, *words: str) -> tuple[int, dict[str, object]]:
    np.savez(folder / "x.npz", x=np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16))
    told = folder / "told.json"
    command = ["repro", str(found.report), "-o", str(folder / "made"), "--reduce"]
    code = main([*command, "--inputs", str(folder / "x.npz"), "--json", str(told), *words])
    return code, json.loads(told.read_text()) if told.exists() else {}


def test_a_late_layer_is_reduced_to_the_operator_whose_fault_it_shows(
    wrong_bias: Failed, plant: Callable[[str], None], tmp_path: Path
) -> None:
    plant("bias=1.02")
    code, told = reduced(wrong_bias, tmp_path, "--layer", "second")
    assert (code, told["layers"], told["checks"]) == (0, ["bias"], ["the piece fails again: yes"])
    model = onnx.load(tmp_path / "made" / "net.onnx")
    assert [node.name for node in model.graph.node] == ["bias"]
    onnx.checker.check_model(model, full_check=True)
    assert run_pytest(tmp_path / "made", fault="bias=1.02") == 1
    assert run_pytest(tmp_path / "made") == 0


def test_what_does_not_fail_on_inputs_of_the_cpu_is_told(
    wrong_kernel: Failed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = reduced(wrong_kernel, tmp_path)
    assert code == 2
    assert "follows from: all agree with the reference" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_inputs_that_the_second_run_dumped_need_not_be_named(
    wrong_bias: Failed, plant: Callable[[str], None], tmp_path: Path
) -> None:
    plant("bias=1.02")
    assert main(["repro", str(wrong_bias.report), "-o", str(tmp_path / "made"), "--reduce"]) == 0
    model = onnx.load(tmp_path / "made" / "net.onnx")
    assert [node.name for node in model.graph.node] == ["bias"]


def test_inputs_of_the_whole_model_have_to_be_known(
    wrong_kernel: Failed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [dumped] = wrong_kernel.report.parent.glob("run2/dump/**/Data.x.*")
    away = dumped.rename(tmp_path / dumped.name)
    try:
        command = ["repro", str(wrong_kernel.report), "-o", str(tmp_path / "made"), "--reduce"]
        assert main(command) == 2
    finally:
        away.rename(dumped)
    assert "its input 'x' is not known: name an npz" in capsys.readouterr().err
