"""The properties of a test in a JUnit file: plain ones that Jenkins and scripts show, and all as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_npudump.language.excerpt import cut
from pytest_npudump.report.ci.judged import counts_of, sources_of
from pytest_npudump.report.result_json import small
from pytest_npudump.report.verdicts import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

WHOLE = "npudump"
"""The property that holds a result as JSON."""
_MOST = 300


def junit_properties(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a test's properties: :data:`WHOLE`, whose texts are bounded, and those with a value.

    There are at most 8 of these, each of at most 300 characters.

    Args:
        result: as :func:`pytest_npudump.report.result_json.result_json` makes it.
    """
    shown = {
        "status": result["status"],
        "source": sources_of(result),
        "first_change": result.get("first_change"),
        "tensors": counts_of(result),
        "bounds": result.get("bounds"),
        "golden": result.get("golden"),
        "report": result.get("details"),
        "artifact": result.get("artifact"),
    }
    told = [(f"{WHOLE}.{name}", cut(plain(str(value)), _MOST)) for name, value in shown.items() if value]
    return [(WHOLE, json.dumps(small(result), separators=(",", ":"))), *told]


def is_ours(name: str) -> bool:
    """Whether a property is one of :func:`junit_properties`."""
    return name == WHOLE or name.startswith(f"{WHOLE}.")
