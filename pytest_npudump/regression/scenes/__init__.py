"""Scenes that need no comparison of statistics: each has a judge and findings of its own.

They share ``findings``: the result that is made of them, and each tensor of an operator described by itself.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_npudump.regression.scenes import check_op, exception, overflow, watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.result import Result

JUDGES: Mapping[str, Callable[[Case, Attempt], Result]] = MappingProxyType(
    {
        "check_op": check_op.judge,
        "exception": exception.judge,
        "overflow": overflow.judge,
        "watcher": watcher.judge,
    }
)
"""What judges a test, by the name of its scene; ``model`` and ``op`` are compared with a golden."""

EXAMINERS: Mapping[str, Callable[[Case, Attempt | None], Result]] = MappingProxyType(
    {"check_op": check_op.examine, "exception": exception.examine}
)
"""What looks for failures where the body of a test did not end well, of each scene ``of_failures``."""
