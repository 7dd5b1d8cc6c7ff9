"""Runs of a session that a person can decide about without running again, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.language.shell import typed
from pytest_npudump.language.translation import ngettext
from pytest_npudump.regression import outcome as status
from pytest_npudump.report.verdicts import shown
from pytest_npudump.settings.run_settings import ci_variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pytest

    from pytest_npudump.settings import Settings


def open_runs_line(
    results: Iterable[Mapping[str, Any]], settings: Settings, folder: Path, config: pytest.Config
) -> str:
    """Say how many runs wait for a decision, and the command for it; "" where none does.

    In CI pytest's cache goes with the machine, so that only a folder that was named is worth a word.

    Args:
        results: of the session's tests, which are kept.
        settings: of the session.
        folder: in which they are kept.
        config: pytest's.
    """
    count = sum(result["status"] in {status.FAILED, status.MISSING_GOLDEN} for result in results)
    if not count or (ci_variable() and not settings.results):
        return ""
    root, here = config.rootpath, config.invocation_params.dir
    below = here.is_relative_to(root)  # where the command finds the repository and pytest's cache by itself
    options = [] if below and not settings.results else ["--results", shown(folder, here)]
    options += [] if below else ["--root", shown(root, here)]
    command = typed("npudump", "golden", "review", *options)
    return ngettext(
        "{count} run waits for a decision: {command}",
        "{count} runs wait for a decision: {command}",
        count,
    ).format(count=count, command=command)
