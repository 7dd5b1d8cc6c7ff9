"""What ``npudump repro`` writes fails by itself, and passes with the fault taken out."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from pytest_npudump.cli import main
from tests.explain.reproduction.conftest import Failed, fail, net, run_pytest

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.e2e

KERNEL = "second=1.01"


def run_alone(folder: Path, away: Path, fault: str = "") -> int:
    """Run a reproduction's test where nothing else lies, and return pytest's exit code."""
    shutil.copytree(folder, away)
    return run_pytest(away, fault=fault)


class Repro:
    """The command, whose folder is ``made`` below that of the test unless words say another."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.made, self.capsys = folder, folder / "made", capsys
        self.out = self.err = ""

    def __call__(self, failed: Failed | Path, *words: str) -> int:
        """Run it on a report; return its exit code."""
        report = failed.report if isinstance(failed, Failed) else failed
        code = main(["repro", str(report), *([] if "-o" in words else ["-o", str(self.made)]), *words])
        self.out, self.err = self.capsys.readouterr()
        assert "Traceback" not in self.err
        return code


@pytest.fixture
def repro(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Repro:
    return Repro(tmp_path, capsys)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_a_wrong_kernel_fails_alone_and_a_right_one_passes(
    wrong_kernel: Failed, plant: Callable[[str], None], repro: Repro, tmp_path: Path
) -> None:
    plant(KERNEL)
    assert repro(wrong_kernel) == 0
    told = f"second: failure reproduced against its reference: cd {repro.made} && pytest\n"
    assert repro.out == told
    model = onnx.load(repro.made / "net.onnx")
    assert [node.name for node in model.graph.node] == ["second"]
    onnx.checker.check_model(model, full_check=True)
    assert run_alone(repro.made, tmp_path / "right") == 0
    # Inside of a project it is none of its tests, unless it is named.
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n", encoding="utf-8")
    assert run_pytest(tmp_path, fault=KERNEL) == 0
    assert run_pytest(tmp_path, "made/test_repro.py", fault=KERNEL) == 1


def test_changed_weights_fail_alone_against_the_golden_and_the_old_ones_pass(
    wrong_weights: Failed, repro: Repro, tmp_path: Path
) -> None:
    made = repro.made
    assert repro(wrong_weights.report.parent, "--no-run") == 0
    assert repro.out == f"second: written to {made}, not run: cd {made} && pytest\n"
    assert run_alone(made, tmp_path / "wrong") == 1
    piece, whole = onnx.load(made / "net.onnx"), onnx.load(net(tmp_path / "whole.onnx"))
    right = {tensor.name: tensor for tensor in whole.graph.initializer}
    piece.graph.initializer[0].CopyFrom(right["w2"])
    onnx.save(piece, made / "net.onnx")
    assert run_alone(made, tmp_path / "right") == 0


AGAIN = "\n    from pathlib import Path; p = Path('net.onnx'); p.write_bytes(p.read_bytes() + b'{extra}')"


def test_a_kernel_that_is_wrong_by_little_more_than_rounding_fails_alone_against_the_golden(
    project: Path, plant: Callable[[str], None], repro: Repro, tmp_path: Path
) -> None:
    """Also of a model that the failing run wrote again, as it was."""
    plant("second=1.000004")
    failed = fail(project, "second=1.000004", after=AGAIN.format(extra=""))
    assert repro(failed) == 0
    assert repro.out.startswith("second: failure reproduced against its golden: ")
    assert run_alone(repro.made, tmp_path / "right") == 0


def test_a_model_that_was_written_again_within_the_failing_run_is_refused(
    project: Path, repro: Repro
) -> None:
    found = fail(project, KERNEL, after=AGAIN.format(extra="\\x72\\x00"))  # with an empty name of a producer
    assert repro(found, "--no-run") == 2
    assert "net.onnx was written again in test_net.py::test_net, after it was loaded" in repro.err


def test_changed_weights_fail_alone_against_a_reference_that_has_the_right_ones(
    project: Path, repro: Repro, tmp_path: Path
) -> None:
    """Unless a model was written again since the failing run."""
    found = fail(project, scale=1.01, marker='reference="right.onnx"')
    other = net(tmp_path / "other.onnx", scale=1.3)
    assert repro(found, "--model", str(other)) == 2
    assert f"{other} is not the model of the failing run of test_net.py::test_net" in repro.err
    for changed in ("net.onnx", "right.onnx"):
        path = project / changed
        content = path.read_bytes()
        net(path, scale=1.5)
        for options in (["--model", str(path)], []) if changed == "net.onnx" else ([],):
            assert repro(found, *options) == 2
            told = f"{path} is not the model of the failing run of test_net.py::test_net: its SHA-256"
            assert told in repro.err
            assert (repro.out, repro.made.exists()) == ("", False)
        path.write_bytes(content)
    assert repro(found) == 0
    shutil.rmtree(project)
    assert run_alone(repro.made, tmp_path / "wrong") == 1
    shutil.copy(repro.made / "net.reference.onnx", repro.made / "net.onnx")
    assert run_alone(repro.made, tmp_path / "right") == 0


def test_the_arrays_are_those_that_the_operator_had(wrong_kernel: Failed, repro: Repro) -> None:
    assert repro(wrong_kernel, "--no-run") == 0
    rng = np.random.default_rng(5)
    w1, b1, w2 = (rng.normal(size=size).astype(np.float32) for size in ((16, 16), 16, (16, 4)))
    x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16).astype(np.float64)
    given = np.maximum(x @ w1 + b1, 0)
    inputs, outputs = np.load(repro.made / "inputs.npz"), np.load(repro.made / "outputs.npz")
    np.testing.assert_allclose(inputs["input_0"], given, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs["onnxruntime y"], given @ w2, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outputs["device y"], given @ w2 * 1.01, rtol=1e-5, atol=1e-5)


def test_a_fault_that_is_not_in_the_folder_is_said_to_pass(wrong_kernel: Failed, repro: Repro) -> None:
    assert repro(wrong_kernel) == 1
    assert repro.err == (
        "npudump: second: passes here, so its inputs and weights are not the cause; run "
        f"{repro.made} where it failed: its README.md has the versions of both runs\n"
    )
    assert (repro.made / "test_repro.py").exists()
    readme = (repro.made / "README.md").read_text(encoding="utf-8")
    assert "`test_repro.py` fails if its output is wrong." in readme
    assert "Relative L2 error on the emulator: 0.01" in readme
    assert "device" not in readme, "no device took part"


_WRONG_ONCE = """
import pathlib
import numpy as np
import pytest
from pytest_npudump.emulator import faults


@pytest.mark.npu_dump
def test_net(npu_dump):
    faults.end()
    wrong = pathlib.Path("wrong")
    if wrong.exists():
        wrong.unlink()
        faults.distort("net", "second", factor=1.01)
    with npu_dump.load_model("net.onnx") as model:
        model.run(np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16))
"""


def test_a_failure_that_did_not_reproduce_is_said_to_be_none_of_the_folder(
    project: Path, repro: Repro
) -> None:
    net(project / "net.onnx")
    project.joinpath("test_net.py").write_text(_WRONG_ONCE, encoding="utf-8")
    assert run_pytest(project, "--npudump-update-golden") == 0
    project.joinpath("wrong").touch()
    assert run_pytest(project, "--npudump-output=.") == 1
    [report] = (project / "dumps").glob("*/report.json")
    assert repro(report) == 1
    said = "passes here; the second run of test_net.py::test_net, whose inputs these"
    assert said in repro.err
    words = (repro.made / "README.md").read_text(encoding="utf-8")
    second = "of the second run, in which `second:output.0` is identical to the golden as printed."
    assert f"The failure did not reproduce: what is here is {second}" in words
    assert "fails as that test did" not in words


def test_drawn_values_share_none_with_the_private_ones_and_fail_too(
    wrong_kernel: Failed, plant: Callable[[str], None], repro: Repro, tmp_path: Path
) -> None:
    plant(KERNEL)
    assert repro(wrong_kernel, "-o", str(tmp_path / "true"), "--no-run") == 0
    assert repro(wrong_kernel, "-o", str(tmp_path / "drawn"), "--synthetic") == 0
    true, drawn = (np.load(tmp_path / name / "inputs.npz")["input_0"] for name in ("true", "drawn"))
    assert true.shape == drawn.shape
    assert (drawn == 0).sum() == (true == 0).sum()
    limits = {0.0, float(true.max()), float(true[true > 0].min())}
    assert {*true.ravel().tolist()} & {*drawn.ravel().tolist()} <= limits
    kept = [onnx.load(tmp_path / name / "net.onnx").graph.initializer[0] for name in ("true", "drawn")]
    assert kept[0].dims == kept[1].dims
    first, second = (onnx.numpy_helper.to_array(tensor) for tensor in kept)
    assert {*first.ravel().tolist()} & {*second.ravel().tolist()} <= {float(first.max()), float(first.min())}
    assert np.load(tmp_path / "drawn" / "outputs.npz").files == ["onnxruntime y"]
    assert run_alone(tmp_path / "drawn", tmp_path / "right") == 0


def test_drawn_values_that_do_not_fail_or_that_only_a_golden_can_tell_leave_nothing(
    wrong_kernel: Failed, wrong_weights: Failed, repro: Repro, tmp_path: Path
) -> None:
    assert repro(wrong_kernel, "--synthetic") == 1
    assert "passes on drawn values, so nothing was written" in repro.err
    assert repro(wrong_weights, "--synthetic") == 2
    assert "compared with its golden, which is for the recorded inputs only" in repro.err
    assert [*tmp_path.iterdir()] == []


def test_what_cannot_be_is_refused_with_a_line(wrong_kernel: Failed, repro: Repro, tmp_path: Path) -> None:
    refused = {
        "--layer first": "no output of it failed",
        "--synthetic --no-run": "seen to fail",
        "--model gone.onnx": "gone.onnx",
    }
    for words, said in refused.items():
        assert repro(wrong_kernel, *words.split()) == 2, words
        assert said in repro.err
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "kept.txt").write_text("mine")
    assert repro(wrong_kernel, "-o", str(tmp_path), "--no-run") == 2
    assert "not empty" in repro.err
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_reports_are_offered_of_the_last_session_and_those_left_out_are_counted(
    repro: Repro, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("results.jsonl").touch()
    every = ((session, f"{session}/{at}/report.txt") for session in "ab" for at in range(12))
    data = [{"details": details, "session": session} for session, details in every]
    entries = [SimpleNamespace(data=one, status="failed") for one in data]
    results = SimpleNamespace(read=lambda: SimpleNamespace(entries=entries, session="b"))
    monkeypatch.setattr("pytest_npudump.cli.repro.last_results", lambda _named: results)
    monkeypatch.setattr("pytest_npudump.cli.common.output.screen", lambda _stream: 60)
    assert repro(tmp_path) == 2
    first, *listed = repro.err.splitlines()
    assert first == "npudump: 12 tests have a report: name one as RESULT"
    assert listed == [*(f"  {Path('b', str(at))}" for at in range(10)), "  ... and 2 more"]
    entries[:] = [SimpleNamespace(data={"details": "", "session": "b"}, status="passed")]
    assert repro(tmp_path) == 2
    assert repro.err == "npudump: no test failed: there is nothing to reproduce\n"


def test_what_is_no_report_of_a_failure_or_has_lost_its_dump_is_refused(
    wrong_kernel: Failed, repro: Repro, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    for content in ("", "[]", "{}", '{"origin": {}, "escalation": null}'):
        path.write_text(content)
        assert repro(tmp_path) == 2
        assert str(path) in repro.err
    assert repro(tmp_path / "absent") == 2
    assert "absent: cannot be read: No such file or directory; expected the report.json" in repro.err
    report = json.loads(wrong_kernel.report.read_text())
    report["escalation"]["directory"] = str(tmp_path / "gone")
    path.write_text(json.dumps(report))
    assert repro(tmp_path) == 2
    assert "is not there any more: run test_net.py::test_net again" in repro.err
    report["escalation"] |= {"findings": [{"key": "x:output.0"}], "isolated": []}
    path.write_text(json.dumps(report | {"sources": None}))  # of a failure that begins at an input
    assert repro(tmp_path) == 2
    told = "x:output.0 is an input of net.onnx, which no operator computes: what the test feeds in"
    assert told in repro.err


@pytest.mark.parametrize(
    "name", ['m"+str(open("PWNED","w"))+"', "m'+str(open('PWNED','w'))+'", '"""\n```\n$ `touch PWNED` \\']
)
def test_a_model_s_name_is_a_literal_in_what_is_written_and_is_not_run(
    name: str, wrong_weights: Failed, repro: Repro, tmp_path: Path
) -> None:
    made, model = repro.made, tmp_path / f"{name}.onnx"
    shutil.copy(wrong_weights.project / "net.onnx", model)
    assert repro(wrong_weights, "--model", str(model)) == 0
    assert {path.name for path in made.glob("*.onnx")} == {model.name}
    lines = (made / "README.md").read_text(encoding="utf-8").splitlines()
    [command] = [line[2:] for line in lines if line.startswith("$ atc")]
    assert not any("touch PWNED" in line for line in lines if line[0:1] == "$" and line[2:] != command)
    printed = f"atc() {{ printf '%s\\0' \"$@\"; }}; {command}"
    echoed = subprocess.run(["bash", "-c", printed], cwd=made, capture_output=True, check=True)
    assert echoed.stdout.decode().split("\0")[0] == f"--model={model.name}"
    assert [*tmp_path.rglob("PWNED")] == []
