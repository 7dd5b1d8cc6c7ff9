"""What MindSpore itself knows of this process: graphs it has compiled, work it has not finished."""

from __future__ import annotations

import sys
from typing import Any

from pytest_npudump.errors import RuntimeUnavailableError

_COMPILERS = ("mindspore.graph.api", "mindspore.common.api")


def has_compiled() -> bool:
    """Whether a graph of this process is known to be compiled; graphs that are gone cannot be seen."""
    for name in _COMPILERS:
        compiler = sys.modules.get(name)
        functions = getattr(compiler, "ms_compile_cache", ())
        cells = getattr(compiler, "cells_compile_cache", {})
        if functions or any(cells.values()):
            return True
    return False


def synchronize(mindspore: Any) -> None:
    """Wait for the device; ``runtime.synchronize`` waits for nothing on CPU, and prints an error.

    Raises:
        RuntimeUnavailableError: an operator failed, or this MindSpore has no known way to wait.
    """
    core = getattr(mindspore, "_c_expression", None)
    wait = getattr(core, "synchronize", None)
    if wait is None:
        compiler = next(filter(None, map(sys.modules.get, _COMPILERS)), None)
        executor = getattr(compiler, "_pynative_executor", None)
        wait = getattr(executor, "sync", None)
    if wait is None:
        raise RuntimeUnavailableError(
            f"MindSpore {mindspore.__version__} has no known way to wait for the end of a run, without which "
            f"its dump may be incomplete; use MindSpore 2.3 or later"
        )
    try:
        wait()
    except RuntimeError as error:
        words = " ".join(str(error).split())
        raise RuntimeUnavailableError(f"an operator failed while the dump was on: {words}") from error
