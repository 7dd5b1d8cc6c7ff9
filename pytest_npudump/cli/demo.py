"""``npudump demo``: record a golden, pass, change one weight, and see which layer is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.demo.model import change_weights
from pytest_npudump.demo.project import LAYER, write_project

if TYPE_CHECKING:
    import argparse

_AMOUNT = 0.01


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("npudump-demo"),
        metavar="DIR",
        help="folder for the project, new or empty; default npudump-demo",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration; 0 where each step came out as it should."""
    folder: Path = arguments.folder.absolute()
    model = write_project(folder)
    _say(f"1. A test project in {arguments.folder}: a model, and a test with the marker npu_dump.")
    print((folder / "test_angle_classifier.py").read_text(encoding="utf-8"))
    _say("2. Record the golden: what every layer says now. It goes into the repository.")
    recorded = _pytest(folder, "--npudump-update-golden")
    _show_golden(folder)
    _say("3. The same model again: every layer is compared with the golden.")
    passed = _pytest(folder)
    _say(f"4. A regression: {_AMOUNT} is added to the weights of {LAYER}. The test fails and explains.")
    change_weights(model, LAYER, _AMOUNT)
    failed = _pytest(folder, "--npudump-dump-dir=dumps")
    good = (recorded, passed, failed) == (0, 0, 1)
    _say(f"The project is in {arguments.folder}; try it: cd {arguments.folder} && pytest")
    if not good:
        print(f"unexpected exit codes {recorded}, {passed}, {failed} instead of 0, 0, 1", file=sys.stderr)
    return 0 if good else 1


def _say(text: str) -> None:
    print(f"\n=== {text}\n", flush=True)


def _pytest(folder: Path, *options: str) -> int:
    print(f"$ pytest {' '.join(options)}".rstrip(), flush=True)
    # The golden of this very project is being recorded, wherever the demonstration runs.
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_ADDOPTS"}}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode  # noqa: S603 - ourselves


def _show_golden(folder: Path) -> None:
    for path in sorted((folder / "golden").rglob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        print(f"\n$ head -9 {path.relative_to(folder)}", *(line[:100] for line in lines[:9]), sep="\n")
