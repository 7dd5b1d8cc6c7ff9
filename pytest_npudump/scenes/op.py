"""``scene="op"``: single operators, which belong to no model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.scenes.scene import Scene

if TYPE_CHECKING:
    from pytest_npudump.request import DumpRequest

_OF_A_MODEL = ("optype_blacklist", "opname_blacklist", "opname_range")


def _problems(request: DumpRequest) -> list[str]:
    problems = []
    if request.model_name:
        problems.append("model_name: not with scene='op', a single operator belongs to no model")
    given = [name for name in _OF_A_MODEL if getattr(request, name)]
    if given:
        problems.append(f"{', '.join(given)}: not with scene='op', they select operators of a model")
    if request.reference:
        problems.append("reference: not with scene='op', a single operator belongs to no model")
    return problems


SCENE = Scene(
    "op",
    statistics=True,
    problems=_problems,
    acl_json=lambda _: {"dump_op_switch": "on", "dump_list": [{}]},
)
