"""``npudump doctor`` on the machine that runs the tests, and on one that cannot dump."""

from __future__ import annotations

import itertools
import json
from argparse import Namespace
from pathlib import Path

import pytest

from pytest_npudump.cli import doctor, main
from pytest_npudump.config.cann import ROOTS
from pytest_npudump.doctor.checks import System
from pytest_npudump.runtime.registry import Probe


@pytest.fixture(autouse=True)
def _no_cann(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ROOTS, "NPU_COLLECT_PATH", "NPU_COLLECT_PATH_EXE"):
        monkeypatch.delenv(name, raising=False)


def test_this_machine_can_dump_with_the_emulator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table says below each line that is not good what to do; JSON goes to a file beside it."""
    target = tmp_path / "doctor.json"
    assert main(["doctor", "--dump-dir", str(tmp_path), "--json", str(target)]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert printed.startswith("software\n")
    assert [line for line in lines if line[:1].strip()][:3] == ["software", "devices", "runtimes"]
    assert [line for line in lines if line.startswith("  ok       emulator: ")]
    assert lines[-1].startswith("Runtimes that work: ")
    assert lines[-1].endswith("; a dump can be written.")
    for line, following in itertools.pairwise(lines):
        state = line[2:].split(" ")[0]
        if state in {"absent", "warning", "problem"}:
            assert following.strip().startswith("-> "), line
    data = json.loads(target.read_text())
    assert data["good"] is True
    assert set(data["findings"][0]) == {"area", "name", "state", "text", "remedy"}


@pytest.mark.each(
    ("works", "folder", "words"),
    [(False, "", "No runtime works here"), (True, "with blank", "but a dump cannot be written")],
)
def test_without_a_runtime_or_a_place_that_cann_takes_the_exit_code_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str, words: str, *, works: bool
) -> None:
    system = System(probe=lambda _: Probe(works=works, why="told"), npu_smi=lambda: None)
    assert doctor.run(Namespace(dump_dir=tmp_path / folder, json=None), system) == 1
    assert words in capsys.readouterr().out.splitlines()[-1]


def test_json_to_standard_output_is_alone_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--dump-dir", str(tmp_path), "--json", "-"])
    assert "emulator" in json.loads(capsys.readouterr().out)["runtimes"]
