"""``npudump demo`` as a user runs it, and what it says where it cannot run."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import load_file

from pytest_npudump import demo
from pytest_npudump.cli import main
from pytest_npudump.demo import MODEL, change_weights
from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def shown(demonstration: tuple[Path, str]) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """What the demonstration left in its folder, and what it printed, under CI and without its colours."""
    folder, text = demonstration
    return folder, subprocess.CompletedProcess([], 0, re.sub(r"\x1b\[[0-9;]*m", "", text), "")


def test_the_demonstration_records_passes_and_fails_in_this_order(
    shown: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, done = shown
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    totals = re.findall(r"^npudump: (\d of 1 tests passed.*)$", done.stdout, re.MULTILINE)
    assert [re.split("; first|; this run updates", total)[0] for total in totals] == [
        "1 of 1 tests passed, 1 recorded (emulator)",
        "1 of 1 tests passed; 259 of 259 tensors compared (emulator)",
        "0 of 1 tests passed, 1 failed; 259 of 259 tensors compared",
    ]
    assert re.findall(r"^=+ (1 \w+) in ", done.stdout, re.MULTILINE) == ["1 passed", "1 passed", "1 failed"]


@pytest.mark.parametrize("limit", [100, 2000], ids=["in the test file", "in the model"])
def test_folder_that_could_not_be_filled_is_left_empty(tmp_path: Path, limit: int, warm: Any) -> None:
    command = (
        "import resource, sys; sys.dont_write_bytecode = True\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "from pytest_npudump.cli import main; sys.exit(main(['demo', 'new']))"
    )
    done = subprocess.run(
        [*warm.client, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "new cannot be written (File too large)" in done.stderr
    assert not [*(tmp_path / "new").iterdir()]


def test_what_the_demonstration_prints_itself_fits_80_columns(
    shown: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, done = shown
    own = re.split(
        r"^=+ test session starts =+$.*?^=+ 1 \w+ in .*?$", done.stdout, flags=re.MULTILINE | re.DOTALL
    )
    assert len(own) == 4
    assert [line for text in own for line in text.splitlines() if len(line) > 80] == []


def test_the_test_is_shown_line_by_line_on_a_terminal(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_npudump.cli.demo._pytest", lambda *words: int(len(words) > 2))
    monkeypatch.setattr("pytest_npudump.cli.common.output.screen", lambda _stream=None: 80)
    assert demo.TEST in run("demo", tmp_path / "new").out


def test_the_folder_holds_golden_tensors_report_and_little_else(
    shown: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = shown
    golden = folder / "golden" / "test_angle_classifier" / "test_angle_classifier.yaml"
    assert "  Conv@21 float32 " in golden.read_text(encoding="utf-8")
    assert list(load_file(golden.with_suffix(".safetensors"))) == ["Conv@21:output.0"]
    (report,) = (folder / "output" / "dumps").glob("*/report.txt")
    assert "Conv@21" in report.read_text(encoding="utf-8")
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 4 << 20


def test_the_last_line_puts_the_model_back_and_the_test_passes(
    shown: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    warm: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, done = shown
    assert done.stdout.endswith(
        "The test fails now. Put the unchanged model back, and it passes:\n"
        "$ cd npudump-demo\n$ cp angle_classifier.original.onnx angle_classifier.onnx && pytest\n"
    )
    copy = tmp_path / "npudump-demo"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("output"))
    assert (copy / "angle_classifier.original.onnx").read_bytes() == MODEL.read_bytes()
    shutil.copyfile(copy / "angle_classifier.original.onnx", copy / "angle_classifier.onnx")
    monkeypatch.chdir(copy)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    code, printed, _ = warm.run("-mpytest", "-p", "npudump", "-p", "no:cacheprovider")
    assert code == 0, printed
    assert "259 of 259 tensors compared" in printed


def _refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["demo", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("npudump: ")
    assert err.count("\n") == 1
    return err


def test_a_folder_that_holds_something_or_a_file_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("keep")
    assert f"{tmp_path} is not empty" in _refused([str(tmp_path)], capsys)
    assert f"{path} cannot be written" in _refused([str(path)], capsys)
    assert ([*tmp_path.iterdir()], path.read_text()) == ([path], "keep")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_one_line_that_names_the_extra(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find(name: str) -> Any:
        return None if name == package else importlib.util.find_spec(name)

    monkeypatch.setattr(demo, "find_spec", find)
    err = _refused([str(tmp_path / "new")], capsys)
    assert repr(package) in err
    assert "pip install 'pytest-npudump[demo]'" in err
    assert not (tmp_path / "new").exists()


def test_the_model_is_the_one_whose_licence_lies_beside_it() -> None:
    licence = MODEL.with_suffix(".LICENSE").read_text(encoding="utf-8")
    assert hashlib.sha256(MODEL.read_bytes()).hexdigest() in licence
    assert "Apache License" in licence


def test_only_an_operator_with_constant_weights_can_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    shutil.copyfile(MODEL, path)
    before = path.read_bytes()
    with pytest.raises(RequestError, match="no operator named 'Conv@999'"):
        change_weights(path, "Conv@999", 0.01)
    with pytest.raises(RequestError, match="has no constant weights"):
        change_weights(path, "Relu@0", 0.01)
    assert path.read_bytes() == before
