"""Our runtimes keep the protocol: over the emulator, and over stand-ins that record what clients do."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import helper

from pytest_npudump.emulator import install
from pytest_npudump.request import DumpRequest
from pytest_npudump.runtime.base import Runtime
from pytest_npudump.runtime.registry import Choice, load
from pytest_npudump.testing import RuntimeConformance
from tests.onnxmodels.models import onnx_file

DATA = Path(__file__).parents[1] / "data"
ARRAY = np.array([[-1.5, 2.0, 0.0]], np.float32)


def relu_model(folder: Path) -> Path:
    """A model of one layer, whose values numpy computes as well."""
    relu = helper.make_node("Relu", ["x"], ["y"], name="relu1")
    return onnx_file(folder / "relu.onnx", [relu], {"x": [1, 3]}, {"y": [1, 3]})


@pytest.fixture
def _emulator() -> Iterator[None]:
    known = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "acl"}
    install.install()
    install.reset()
    yield
    install.uninstall()
    install.reset()
    sys.modules.update(known)


@pytest.mark.usefixtures("_emulator")
class TestEmulator(RuntimeConformance):
    provider = "pytest_npudump.runtime.emulator"
    clients = ("onnx", "onnxruntime")
    arrays = (ARRAY,)

    @pytest.fixture
    def runtime(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
        type(self).model = relu_model(tmp_path_factory.mktemp("model"))
        runtime = load(Choice("emulator", ""), 0)
        yield runtime
        runtime.close()

    def execute(self, runtime: Runtime) -> Mapping[str, np.ndarray | None]:
        assert self.model is not None
        with runtime.load_model(self.model) as session:
            session.run(ARRAY)
        return {"x:output.0": ARRAY, "relu1:output.0": np.maximum(ARRAY, 0)}


class TestEmulatorStatistics(TestEmulator):
    request = DumpRequest(dump_data="stats")


@pytest.fixture
def _client(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Import the stand-in of the class's data folder, which is gone afterwards."""
    folder, names = request.cls.client
    monkeypatch.syspath_prepend(str(DATA / folder))
    known = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] in names}
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[name]
    sys.modules.update(known)


@pytest.mark.usefixtures("_client")
class TestTorchNpu(RuntimeConformance):
    client = ("torch_client", {"torch", "torch_npu"})
    provider = "pytest_npudump.runtime.torch_npu"
    clients = ("torch", "torch_npu")
    request = DumpRequest(scene="op", dump_data="tensor")

    @pytest.fixture
    def runtime(self, _client: None) -> Iterator[Runtime]:
        runtime = load(Choice("torch_npu", ""), 0)
        yield runtime
        runtime.close()

    def execute(self, runtime: Runtime) -> Mapping[str, np.ndarray | None]:
        client: Any = runtime
        client.torch_npu._device.operator("aclnnAdd", 1.25)
        return {"aclnnAdd:output.0": np.array([1.25, 1.25], np.float32)}


class TestTorchNpuStatistics(TestTorchNpu):
    request = DumpRequest(scene="op", dump_data="stats")


@pytest.mark.usefixtures("_client")
class TestMindSpore(RuntimeConformance):
    client = ("mindspore_client", {"mindspore"})
    provider = "pytest_npudump.runtime.mindspore"
    clients = ("mindspore",)
    one_dump_a_process = True

    @pytest.fixture
    def runtime(self, _client: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
        from pytest_npudump.runtime.mindspore.adapter import MindSporeRuntime

        monkeypatch.setattr(MindSporeRuntime, "_read", [])
        runtime = load(Choice("mindspore", ""), 0)
        yield runtime
        runtime.close()

    def execute(self, runtime: Runtime) -> Mapping[str, np.ndarray | None]:
        client: Any = runtime
        client.mindspore.run(0, {"Default/Add-op0": 2.5})
        compiled: Any = ModuleType("mindspore.common.api")
        compiled.ms_compile_cache = {"graph 0"}  # as the real one notes it
        sys.modules["mindspore.common.api"] = compiled
        return {"Default/Add-op0:output.0": np.linspace(0, 2.5, 6, dtype=np.float32)}


@pytest.mark.e2e
def test_a_suite_that_runs_nothing_says_what_it_lacks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_npudump.testing import RuntimeConformance

        class TestBare(RuntimeConformance):
            def test_it_runs(self):
                self.execute(None)
        """
    )
    ended = pytester.runpytest_subprocess("-k", "test_it_runs or all_parts", "--tb=line")
    ended.assert_outcomes(failed=1, errors=1)
    ended.stdout.fnmatch_lines(
        [
            "*TestBare.runtime: expected a fixture that returns the runtime to test",
            "*TestBare.execute(runtime): expected a method that runs operators and returns*",
        ]
    )
