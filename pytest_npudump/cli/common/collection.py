"""Tests of a folder, as a pytest of its own collects them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence


_PLUGIN = "pytest_npudump.plugin.collected"


def collect(option: str, words: Sequence[str], test: str | None = None) -> dict[str, Any]:
    """Collect in the current folder, and return what the plugin has written.

    Args:
        option: the plugin's option that names the file to write.
        words: further options of pytest.
        test: what is collected; None for what pytest collects by itself.

    Raises:
        RequestError: something cannot be collected.
    """
    with tempfile.TemporaryDirectory(prefix="npudump-") as folder:
        file = Path(folder) / "collected.json"
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", _PLUGIN, f"{option}={file}"]
        command += [*words, *([test] if test else [])]
        done = subprocess.run(  # noqa: S603 - pytest, of this interpreter
            command, check=False, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL
        )
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if problems := found.get("problems"):
        where, text = problems[0]
        raise RequestError(f"{test or where or 'the tests'} cannot be collected: {_cause(text, test or '')}")
    usage = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    if usage:
        raise RequestError(f"pytest collects nothing: {usage[0].removeprefix('ERROR: ')}")
    if not found:
        last = _last_words(done.stdout + done.stderr)
        raise RequestError(f"pytest ended with {done.returncode} before it collected anything: {last}")
    return found


def _last_words(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    internal = [line for line in lines if line.startswith("INTERNALERROR> ")]
    return (internal or lines or ["no output"])[-1]


def _cause(text: str, test: str) -> str:
    """Return the line of a failed collection that has the reason: the exception's, or the one on ``test``."""
    lines = [line for line in text.splitlines() if line.strip()]
    raised = [line[1:].strip() for line in lines if line.startswith("E ")]
    named = [line for line in lines if f"{test}:" in line]
    return (raised or named or lines or ["no reason given"])[0]
