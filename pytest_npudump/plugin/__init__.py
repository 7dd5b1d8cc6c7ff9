"""The pytest plugin: nothing but pytest, found by its entry point ``pytest_npudump.plugin``.

``hooks`` is what every session loads, with ``options``, ``marks`` (which tests carry the marker) and
``reporter``. The first marked test brings in ``marker`` (what it asks), ``runner`` (the main flow) and the
``features`` that it needs. ``item_case`` is what is known of a test while it runs, ``conclusion`` what its
phases report, ``fixture`` what it sees, ``paths`` where its files lie, ``terminal`` what is printed of it.
``collection`` is a plugin of its own, for the command; ``_compat`` all that is private of pytest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _PlainFinder:
    """Finds our modules ahead of pytest, which rewrites the asserts of all modules of a plugin's package.

    That takes longer than all else of a first test where no byte code is cached. Asserts for people to read
    are in :mod:`pytest_npudump.testing` only.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = name.startswith("pytest_npudump.") and not name.startswith("pytest_npudump.testing")
        return PathFinder.find_spec(name, path, target) if ours else None


def import_plainly() -> None:
    """Put our finder ahead of all others: pytest puts its own there with each configuration."""
    if _PlainFinder in sys.meta_path:
        sys.meta_path.remove(_PlainFinder)
    sys.meta_path.insert(0, _PlainFinder)


import_plainly()

from pytest_npudump.plugin.hooks import (  # noqa: E402 - behind the finder
    npu_device,
    npu_dump,
    pytest_addhooks,
    pytest_addoption,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_make_collect_report,
    pytest_report_from_serializable,
    pytest_report_header,
    pytest_report_to_serializable,
    pytest_runtest_call,
    pytest_runtest_teardown,
    pytest_sessionstart,
)

__all__ = [
    "npu_device",
    "npu_dump",
    "pytest_addhooks",
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_make_collect_report",
    "pytest_report_from_serializable",
    "pytest_report_header",
    "pytest_report_to_serializable",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_sessionstart",
]
