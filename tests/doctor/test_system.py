"""The machine itself, asked through child processes that may fail in any way."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pytest_npudump.doctor.checks import System, free_space, installed_version, probe_runtime
from pytest_npudump.runtime.registry import Probe

ACL = """
def get_soc_name():
    return "Ascend910B3"

class rt:
    get_device_count = staticmethod(lambda: (8, 0))
"""
TORCH_NPU = """
__version__ = "2.5.1"

class npu:
    is_available = staticmethod(lambda: {there})
    get_device_name = staticmethod(lambda device=None: "Ascend910B3")
"""


@pytest.fixture
def acl_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module ``acl`` that a child process imports, to be written by the test."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "acl.py"


def test_acl_that_answers_tells_devices_and_chip(acl_module: Path) -> None:
    acl_module.write_text(f"print('a banner')\n{ACL}")
    assert probe_runtime("acl") == Probe(works=True, why="8 devices answer", devices=8, soc="Ascend910B3")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise ImportError('libascendcl.so: cannot open shared object file')", "libascendcl.so"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
        ("import os; os._exit(3)", "ended with 3"),
        ("import os; os._exit(0)", "it printed nothing"),
        ("x = 1", "acl.py"),
        (ACL.replace("(8, 0)", "(0, 507033)"), "no device answers"),
    ],
)
def test_acl_that_is_broken_in_any_way_is_a_reason(acl_module: Path, source: str, words: str) -> None:
    acl_module.write_text(source)
    probe = probe_runtime("acl")
    assert not probe.works
    assert words in probe.why


def test_acl_that_hangs_is_given_up(acl_module: Path) -> None:
    acl_module.write_text("import time; time.sleep(600)")
    assert probe_runtime("acl", seconds=1) == Probe(works=False, why="no answer within 1 seconds")


@pytest.mark.parametrize("there", [True, False])
def test_torch_npu_is_asked_for_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    (tmp_path / "torch_npu.py").write_text(TORCH_NPU.format(there=there))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    probe = probe_runtime("torch_npu")
    assert probe.works is there
    assert probe.soc == ("Ascend910B3" if there else "")
    assert there or "finds no NPU" in probe.why


def test_emulator_works_with_the_versions_that_are_installed() -> None:
    version = metadata.version("onnxruntime")
    probe = probe_runtime("emulator")
    assert probe.works
    assert probe.why.startswith(f"onnxruntime {version}, onnx ")


def test_emulator_without_onnx_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "onnx.py").write_text("raise ImportError('No module named onnx')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    probe = probe_runtime("emulator")
    assert not probe.works
    assert "pip install 'pytest-npudump[emulator]'" in probe.why


def test_an_interpreter_that_cannot_be_started_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nothing/python")
    assert "no process could be started" in probe_runtime("acl").why


def test_files_that_cannot_be_read_are_empty(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "long").write_bytes(b"x" * 100_000)
    os.mkfifo(tmp_path / "fifo")
    system = System(root=tmp_path)
    assert [system.read(f"/{name}") for name in ("gone", "folder", "fifo")] == ["", "", ""]
    assert len(system.read("/long")) == 64 * 1024


def test_versions_come_from_the_metadata() -> None:
    assert installed_version("numpy") == metadata.version("numpy")
    assert installed_version("no-such-distribution") is None


def test_free_space_is_the_file_system_s(tmp_path: Path) -> None:
    nbytes, files = free_space(tmp_path)
    assert nbytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.05)
    assert files is None or files > 0


def test_mindspore_is_asked_for_the_device_it_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Path(__file__).parents[1] / "data" / "mindspore_client"
    monkeypatch.setenv("PYTHONPATH", str(client))
    assert probe_runtime("mindspore") == Probe(works=True, why="MindSpore 2.10.0 runs on CPU")
