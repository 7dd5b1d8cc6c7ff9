"""Runs of a session that a person can decide about without running again, and how."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from pytest_npudump.language.translation import ngettext
from pytest_npudump.regression import outcome as status
from pytest_npudump.settings.run_settings import ci_variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_npudump.settings import Settings


def open_runs_line(results: Iterable[Mapping[str, Any]], settings: Settings) -> str:
    """Say how many runs wait for a decision, and the command for it; "" where none does.

    In CI pytest's cache goes with the machine, so that only a folder that was named is worth a word.

    Args:
        results: of the session's tests, which are kept.
        settings: of the session.
    """
    count = sum(result["status"] in {status.FAILED, status.MISSING_GOLDEN} for result in results)
    if not count or (ci_variable() and not settings.results):
        return ""
    folder = f" --results {shlex.quote(settings.results)}" if settings.results else ""
    return ngettext(
        "{count} run waits for a decision: npudump golden review{folder}",
        "{count} runs wait for a decision: npudump golden review{folder}",
        count,
    ).format(count=count, folder=folder)
