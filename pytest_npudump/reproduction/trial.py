"""The reproduction's test, run in a process of its own: does it fail as it is to?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FAILED = "failed"
_LAST = 20


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a reproduction's test.

    Attributes:
        fails: whether its layers differ; a test that cannot run does not fail so.
        first: the first layer that differs; "" for none.
        error: why nothing could be judged, in words; "" where something was.
    """

    fails: bool
    first: str = ""
    error: str = ""


def run_trial(folder: Path, test: str, runtime: str = "") -> Trial:
    """Run the test in ``folder`` and say what became of it.

    What other plugins the environment has pytest load (``PYTEST_ADDOPTS``, ``PYTEST_PLUGINS``) is loaded.

    Args:
        folder: of the reproduction.
        test: the file of the test.
        runtime: as in ``--npudump-runtime``; "" for what is found.
    """
    with tempfile.TemporaryDirectory(prefix="npudump-") as dumps:
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
        command += [f"--npudump-dump-dir={dumps}", "--npudump-keep-dumps=failed", test]
        command += [f"--npudump-runtime={runtime}"] if runtime else []
        done = _run(folder, command)
        reports = [*Path(dumps).glob("*/report.json")]
        report: dict[str, Any] = json.loads(reports[0].read_text(encoding="utf-8")) if reports else {}
    if done.returncode == 0:
        return Trial(fails=False)
    if done.returncode == 1 and report.get("status") == _FAILED:
        return Trial(fails=True, first=_first(report))
    return Trial(fails=False, error=_last_words(done) or f"pytest ended with {done.returncode}")


def run_script(folder: Path, script: str, runtime: str, *, fails: str) -> Trial:
    """Run the script of a call and say what became of it.

    Args:
        folder: of the reproduction.
        script: the file.
        runtime: ``torch_npu``, or "" for what is found.
        fails: what it prints where the call is wrong.
    """
    done = _run(folder, [script, *(["--device=npu"] if runtime else [])])
    if done.returncode == 0:
        return Trial(fails=False)
    if done.returncode == 1 and fails in done.stdout:
        return Trial(fails=True)
    return Trial(fails=False, error=_last_words(done) or f"{script} ended with {done.returncode}")


def _run(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return subprocess.run(  # noqa: S603 - pytest or a script of ours, of this interpreter
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return "\n".join(lines[-_LAST:])


def _first(report: dict[str, Any]) -> str:
    compared = (report.get("comparison") or {}, (report.get("reference") or {}).get("comparison") or {})
    found = (one.get("first_divergence") for one in compared)
    return next((str(one["layer"]) for one in found if one), "")
