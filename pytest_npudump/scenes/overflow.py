"""``scene="overflow"``: the operators that overflow, of any model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.scenes.scene import Scene

if TYPE_CHECKING:
    from pytest_npudump.request import DumpRequest


def _problems(request: DumpRequest) -> list[str]:
    if request.ranks == "same":
        return ["ranks: 'same' is not for scene='overflow', which keeps a golden a rank"]
    return []


def _acl_json(_: DumpRequest) -> dict[str, Any]:
    """Return the overflow dump's key; with a ``dump_list`` GE would dump nothing, without a word."""
    return {"dump_debug": "on"}


SCENE = Scene("overflow", problems=_problems, acl_json=_acl_json)
