"""A line on the terminal while a large dump is read."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

PATIENCE = 2.0
"""Seconds that reading may take before the line appears."""


def progress_of(config: pytest.Config) -> Callable[[int, int], None] | None:
    """Return what shows progress on pytest's terminal; None where nobody watches one."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not reporter.isatty:
        return None
    return _Line(reporter)


class _Line:
    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        self._started = 0.0
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        now = monotonic()
        if not self._started:
            self._started = now
        if now - self._started > PATIENCE:
            if not self._shown:
                self._reporter.ensure_newline()
                self._shown = True
            self._reporter.rewrite(f"npudump: reading the dump, {done} of {total} files", erase=True)
        if done == total:
            if self._shown:
                self._reporter.ensure_newline()
            self._started, self._shown = 0.0, False
