"""Runs of a session that a person can decide about without running again, and how."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pytest_npudump.language.translation import ngettext
from pytest_npudump.settings.run_settings import in_ci

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pytest_npudump.results.entry import Entry
    from pytest_npudump.settings import Settings


def open_runs_line(
    entries: Iterable[Entry], tests: Collection[str], rank: int | None, settings: Settings
) -> str:
    """Say how many runs wait for a decision, and the command for it; "" where none does.

    In CI pytest's cache goes with the machine, so that only a folder that was named is worth a word.

    Args:
        entries: what is kept.
        tests: names of the session's tests.
        rank: of this process; None for a process of its own.
        settings: of the session.
    """
    own = (entry for entry in entries if entry.test in tests and entry.data["rank"] == rank)
    count = sum(entry.is_open for entry in own)
    if not count or (in_ci() and not settings.results):
        return ""
    folder = f" --results {shlex.quote(settings.results)}" if settings.results else ""
    return ngettext(
        "{count} run waits for a decision: npudump golden review{folder}",
        "{count} runs wait for a decision: npudump golden review{folder}",
        count,
    ).format(count=count, folder=folder)
