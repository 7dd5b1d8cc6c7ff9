"""A failing test of torch_npu says of each call whether it gives the same on the CPU.

Real is torch (``NPUDUMP_TORCHAIR`` names a folder with it); the device is its CPU, with wrong kernels.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.cli import main
from tests.plugin.conftest import Project

FOLDER = os.environ.get("NPUDUMP_TORCHAIR", "")
DATA = Path(__file__).parents[1] / "data"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not FOLDER, reason="NPUDUMP_TORCHAIR names no folder with torch"),
]
TEST = """
import pytest
import torch
import torch_npu
from npu_on_cpu import npu

@pytest.mark.npu_dump(scene="op")
def test_block(npu_dump):
    made = torch.Generator().manual_seed(0)
    x, w = torch.randn(16, 33, generator=made), torch.randn(33, 8, generator=made)
    with npu():
        y = torch.relu(x @ w) + 0.1
        y.mul_(torch.tensor(1.5))
        y[:, 2:5].mul_(torch.tensor(0.5))
        torch.nn.functional.layer_norm(y, (8,))
"""


@pytest.fixture
def block(project: Project, warm_torch: Any) -> Block:
    folder = project.path / "client"
    folder.mkdir()
    (folder / "torch_npu").symlink_to(DATA / "torch_client" / "torch_npu")
    (folder / "npu_on_cpu.py").symlink_to(DATA / "aten" / "npu_on_cpu.py")
    (project.path / "test_block.py").write_text(TEST, encoding="utf-8")
    return Block(project, warm_torch)


class Block:
    """A project with one test that runs a block of operators."""

    def __init__(self, project: Project, warm: Any) -> None:
        self._project = project
        self._warm = warm

    def run(self, *options: str, faults: str = "") -> str:
        """Run it in a process of its own; return what the terminal shows."""
        paths = [str(self._project.path / "client"), FOLDER, str(DATA.parents[1])]
        command = ["-mpytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
        command += ["--npudump-runtime=torch_npu", "--npudump-output=.", *options]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self._project.path)
            patch.setenv("PYTHONPATH", os.pathsep.join(paths))
            patch.setenv("FAULTS", faults)
            code, shown, errors = self._warm.run(*command)
        assert code == bool(faults), shown + errors
        return shown

    @property
    def path(self) -> Path:
        """The folder."""
        return self._project.path

    def report(self) -> Path:
        """Return the last run's."""
        return max(self.path.glob("dumps/*/report.json"), key=lambda path: path.stat().st_mtime)

    def isolated(self) -> Any:
        """Return what the last report says of each output that was judged."""
        return json.loads(self.report().read_text(encoding="utf-8"))["escalation"]["isolated"]

    def verdicts(self) -> dict[str, tuple[str, str]]:
        """Return verdict and call of each output that was judged, by the last report."""
        return {one["key"]: (one["verdict"], one["call"]) for one in self.isolated()}


def test_wrong_kernels_are_convicted_and_handed_over_and_right_ones_acquitted(
    block: Block, tmp_path: Path
) -> None:
    block.run("--npudump-update-golden")
    shown = block.run("-onpudump_escalate=on,float64", faults="mm relu mul_.Tensor")
    assert block.verdicts() == {
        "aclnnMm:output.0": ("convicted", "aten.mm.default"),  # HF32 is as far off, but not the golden
        "aclnnRelu:output.0": ("convicted", "aten.relu.default"),
        "aclnnAdd:output.0": ("acquitted", "aten.add.Tensor"),
        "aclnnInplaceMul:output.0": ("convicted", "aten.mul_.Tensor"),
        "aclnnInplaceMul#turn=1:output.0": ("convicted", "aten.mul_.Tensor"),
        **{f"aclnnLayerNorm:output.{n}": ("acquitted", "aten.native_layer_norm.default") for n in range(3)},
    }
    assert (
        "recomputed: aclnnRelu:output.0 differs from aten.relu.default on the CPU on the same inputs "
        "(relative L2 error 0.001, limit 0): a kernel of this call must be wrong" in shown
    )
    report = block.report()
    assert f"hand over:  npudump repro {report.parent.relative_to(block.path)} -o DIR" in shown
    saved = [one["saved"] for one in block.isolated() if one["verdict"] == "convicted"]
    assert [path.name for path in sorted(report.parent.glob("run2/calls/*"))] == ["0", "1", "2", "3"]
    assert {*map(Path, saved)} == {*report.parent.glob("run2/calls/*")}
    assert {one["saved"] for one in block.isolated() if one["verdict"] != "convicted"} == {None}
    assert main(["repro", str(report), "-o", str(tmp_path / "made"), "--no-run"]) == 0
    with np.load(tmp_path / "made" / "outputs.npz") as outputs:
        np.testing.assert_allclose(outputs["device"], outputs["cpu"] * 1.001, rtol=1e-6, atol=1e-6)  # sums
    shown = block.run("-onpudump_escalate=on,no-recompute", faults="mm")
    assert block.verdicts() == {}
    assert "recomputed:" not in shown
