"""Runs of a session that a person can decide about without running again, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.language.shell import typed
from pytest_npudump.language.translation import ngettext
from pytest_npudump.report.verdicts import shown
from pytest_npudump.settings.run_settings import ci_variable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    import pytest

    from pytest_npudump.results.entry import Entry
    from pytest_npudump.settings import Settings


def open_runs_line(
    entries: Iterable[Entry],
    tests: Collection[str],
    rank: int | None,
    settings: Settings,
    *,
    folder: Path,
    config: pytest.Config,
) -> str:
    """Say how many runs wait for a decision, and the command for it; "" where none does.

    In CI pytest's cache goes with the machine, so that only a folder that was named is worth a word.

    Args:
        entries: what is kept.
        tests: names of the session's tests.
        rank: of this process; None for a process of its own.
        settings: of the session.
        folder: in which they are kept.
        config: pytest's.
    """
    own = (entry for entry in entries if entry.test in tests and entry.data["rank"] == rank)
    count = sum(entry.is_open for entry in own)
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
