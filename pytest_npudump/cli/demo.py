"""``npudump demo``: record a golden, pass, change one weight, and see which layer is named."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from pytest_npudump.cli.common.output import emit, end_output, to_stderr
from pytest_npudump.demo import CHANGED, LAYER, ORIGINAL, break_model, write_project
from pytest_npudump.language import CHINESE, ENGLISH
from pytest_npudump.language.text import byte_size, cut, typed
from pytest_npudump.language.translation import is_english
from pytest_npudump.settings import CI_VARIABLES

_AMOUNT = 0.01
_OUTPUT = "output"
_LIMIT = "128KiB"
"""Tensors that the second run dumps: the layer that was changed, and what feeds it."""

_WIDTH = 78
_GOLDEN_LINES = 10

_LEGEND = (
    'In its table "tolerance" is the greatest difference that passes, "x tol" how',
    "many times that difference it is: hundreds of times is a fault, not noise.",
    "The second run dumps whole tensors, up to {limit} here, to show where.",
)


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration; 0 where each step came out as it should."""
    folder: Path = arguments.folder.absolute()
    write_project(folder)
    _say("1. A test project: a model, and a test with the marker npu_dump")
    _print(*(folder / "test_angle_classifier.py").read_text(encoding="utf-8").splitlines())
    _say("2. Record the golden, the statistics of every layer, for the repository")
    recorded = _pytest(folder, "--npudump-update-golden")
    _show_golden(folder)
    _say("3. The same model again: every layer is compared with the golden")
    passed = _pytest(folder)
    _say(f"4. A regression: {_AMOUNT} is added to the weights of {LAYER}")
    legend = (line.format(limit=_LIMIT) for line in _LEGEND)
    _print("The test fails and names the first layer that differs.", *legend, "")
    break_model(folder, _AMOUNT)
    failed = _pytest(folder, f"--npudump-output={_OUTPUT}", "-o", f"npudump_dump_limit={_LIMIT}")
    _say(f"5. The project is in {arguments.folder}")
    held = sum(path.stat().st_size for path in (folder / _OUTPUT).rglob("*") if path.is_file())
    _print(
        f"{_OUTPUT}/ has the report in full and the dumps of both runs ({byte_size(held)}).",
        "The test fails now. Put the unchanged model back, and it passes:",
        f"$ {typed('cd', arguments.folder)}",
        f"$ {typed('cp', ORIGINAL, CHANGED)} && pytest",
    )
    if (recorded, passed, failed) != (0, 0, 1):
        to_stderr(f"unexpected exit codes {recorded}, {passed}, {failed} instead of 0, 0, 1")
        return 1
    return 0


def _say(text: str) -> None:
    _print("", f"=== {text}", "")


def _print(*lines: str) -> None:
    """Print lines ahead of what the next child process prints."""
    emit(lines)
    end_output()


def _pytest(folder: Path, *options: str) -> int:
    _print(f"$ {typed('pytest', *options)}")
    # The golden of this very project is being recorded, wherever the demonstration runs; and whatever other
    # plugins are installed here has no part in it.
    environment = {name: value for name, value in os.environ.items() if name not in CI_VARIABLES}
    environment |= {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": f"-o npudump_lang={ENGLISH if is_english() else CHINESE}",
    }
    command = [sys.executable, "-m", "pytest", "-p", "npudump", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode  # noqa: S603 - ourselves


def _show_golden(folder: Path) -> None:
    for path in sorted((folder / "golden").rglob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        left = len(lines) - _GOLDEN_LINES
        _print("", f"The golden, {path.relative_to(folder)}, begins:", "")
        shown = [cut(line, _WIDTH) for line in lines[:_GOLDEN_LINES]]
        _print(*shown, f"... and {left} lines more: one for each tensor, then what each layer reads")
