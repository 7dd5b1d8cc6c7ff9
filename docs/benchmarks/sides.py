"""Checkouts that are measured in turn: a process for each, which is asked and answers by lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Side:
    """A process that runs a script with ``--work`` for one checkout."""

    def __init__(self, script: str, tree: Path) -> None:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(tree)}
        self._process = subprocess.Popen(
            [sys.executable, script, "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, *question: object) -> Any:
        """What :func:`answer_all` of that process answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def answer_all(answer: Callable[..., Any]) -> None:
    """Answer each question of the other side of a :class:`Side`."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(*json.loads(line))) + "\n")
        sys.stdout.flush()
