"""Reports of tests that failed, made by the plugin itself on a small model of known operators."""

from __future__ import annotations

import os
import runpy
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

from pytest_npudump.settings import CI_VARIABLES
from tests.onnxmodels.models import onnx_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOOLS = Path(__file__).parent
"""The folder of a plugin that has the emulator compute wrongly, as the variable FAULT says."""

TEST = """
import numpy as np
import pytest


@pytest.mark.npu_dump({marker})
def test_net(npu_dump):
    with npu_dump.load_model("net.onnx") as model:
        model.run(np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16))
"""


def net(path: Path, scale: float = 1.0) -> Path:
    """A product, a bias, a rectifier and a second product, whose weights are ``scale`` times as large."""
    rng = np.random.default_rng(5)
    weights = {
        "w1": rng.normal(size=(16, 16)).astype(np.float32),
        "b1": rng.normal(size=16).astype(np.float32),
        "w2": (rng.normal(size=(16, 4)) * scale).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Add", ["a", "b1"], ["b"], name="bias"),
        helper.make_node("Relu", ["b"], ["c"], name="relu"),
        helper.make_node("MatMul", ["c", "w2"], ["y"], name="second"),
    ]
    return onnx_file(path, nodes, {"x": [8, 16]}, {"y": [8, 4]}, weights, name="net")


_COMMAND: list[str] = []
"""Words that run pytest in a process forked from a warm one."""


@pytest.fixture(scope="session", autouse=True)
def _forked(warm: Any) -> Iterator[None]:
    """Have sessions, those of reproductions too, begin in a process that has imported what they need."""

    _COMMAND[:] = warm.client
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in runpy.run_path(str(TOOLS.parents[1] / "data/warm.py"))["forking"](
            warm.client
        ):
            patch.setattr(module, name, value)
        yield


def run_pytest(folder: Path, *options: str, fault: str = "") -> int:
    """Run pytest in a process of its own, in whose emulator the operator of ``layer=factor`` is wrong."""
    environment = {name: value for name, value in os.environ.items() if name not in CI_VARIABLES}
    environment |= {"FAULT": fault, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(TOOLS)}
    words = ["-mpytest", "-q", "-pnpudump", "-pplanted", "-pno:cacheprovider", *options]
    return subprocess.run(
        [*_COMMAND, *words], cwd=folder, env=environment, check=False, capture_output=True
    ).returncode


@dataclass(frozen=True)
class Failed:
    """A test that failed: its project, and the report beside its dumps."""

    project: Path
    report: Path


def fail(project: Path, fault: str = "", *, scale: float = 1.0, marker: str = "", after: str = "") -> Failed:
    """Record a golden of the model, break it, and fail; ``after`` are further lines of the test."""
    project.joinpath("test_net.py").write_text(TEST.format(marker=marker) + after, encoding="utf-8")
    net(project / "net.onnx")
    net(project / "right.onnx")
    assert run_pytest(project, "--npudump-update-golden") == 0
    net(project / "net.onnx", scale)
    assert run_pytest(project, "--npudump-output=.", fault=fault) == 1
    [report] = (project / "dumps").glob("*/report.json")
    return Failed(project, report)


@pytest.fixture(scope="session")
def wrong_kernel(tmp_path_factory: pytest.TempPathFactory) -> Failed:
    """The second product is one in a hundred too large."""
    return fail(tmp_path_factory.mktemp("kernel"), "second=1.01")


@pytest.fixture(scope="session")
def wrong_weights(tmp_path_factory: pytest.TempPathFactory) -> Failed:
    """The second product's weights are."""
    return fail(tmp_path_factory.mktemp("weights"), scale=1.01)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have the operator of ``layer=factor`` compute wrongly in each pytest that a reproduction runs."""
    monkeypatch.setenv("PYTHONPATH", str(TOOLS))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p planted")
    return lambda fault: monkeypatch.setenv("FAULT", fault)
