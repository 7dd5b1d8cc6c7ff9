"""What a command imports before it does its work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from pytest_npudump.cli import COMMANDS, main
from pytest_npudump.cli.arguments import LAYOUTS
from pytest_npudump.dump.arrays.layouts import HOST_AXES

CODE = """
import json, os, sys
from pytest_npudump.cli import main
sys.stdout = open(os.devnull, "w")
for words in sys.argv[1:]:
    try:
        main(words.split())
    except SystemExit:
        pass
print(json.dumps(sorted(sys.modules)), file=sys.__stdout__)
"""
HEAVY = {
    "pytest",
    "_pytest",
    "rich",
    "yaml",
    "google.protobuf",
    "ml_dtypes",
    "safetensors",
    "onnx",
    "filelock",
}


def imported(*commands: str) -> set[str]:
    """Names of what is imported in a process that runs these commands."""
    done = subprocess.run([sys.executable, "-c", CODE, *commands], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


def test_no_command_imports_pytest_or_what_only_some_of_its_work_needs() -> None:
    assert not imported(*(f"{command} --help" for command in COMMANDS)) & HEAVY
    assert ("ND", *HOST_AXES) == LAYOUTS  # choices of options, which are what the work knows


def test_doctor_looks_at_pytest_s_configuration_without_pytest() -> None:
    assert not imported("doctor") & {"pytest", "_pytest"}


def test_help_imports_no_writer_of_files() -> None:
    own = {"dataclasses"} if sys.version_info < (3, 14) else set()  # argparse's since then, for its colours
    assert not imported("--help") & {"hashlib", "numpy", "pytest_npudump.report.files", *own}


def test_two_dumps_without_a_file_of_rules_are_compared_without_yaml(tmp_path: Path) -> None:
    dump = tmp_path / "a.npy"
    np.save(dump, np.ones(3, np.float32))

    assert not imported(f"compare {dump} {dump}") & {"yaml", "pytest_npudump.storage.safeyaml"}


@pytest.mark.each(
    ("words", "given", "seen"),
    [("ls .", None, "1"), ("ls .", "3", "3"), ("doctor", None, None), ("ls --stats missing", None, None)],
    ids=["a reader starts no threads of BLAS", "the user's stays", "programs do not inherit it", "an error"],
)
def test_commands_that_read_have_numpy_start_no_threads(
    monkeypatch: pytest.MonkeyPatch, words: str, given: str | None, seen: str | None
) -> None:
    name, found = "OPENBLAS_NUM_THREADS", list[str | None]()

    def run(_: object) -> int:
        found.append(os.environ.get(name))
        return 0

    monkeypatch.delenv(name, raising=False)
    if given:
        monkeypatch.setenv(name, given)
    if "missing" not in words:
        for verb in ("ls", "doctor"):
            monkeypatch.setattr(import_module(f"pytest_npudump.cli.{verb}"), "run", run)
    assert main(words.split()) == (2 if "missing" in words else 0)
    assert found == ([] if "missing" in words else [seen])
    assert os.environ.get(name) == given
