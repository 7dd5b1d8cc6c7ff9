"""``scene="watcher"``: outputs of ``watcher_nodes`` after each of ``layers``, to see who overwrites them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.request import is_glob
from pytest_npudump.scenes.scene import Scene

if TYPE_CHECKING:
    from pytest_npudump.request import DumpRequest


def _problems(request: DumpRequest) -> list[str]:
    problems = []
    for name, why in (
        ("layers", "the operators after which the watched outputs are looked at"),
        ("watcher_nodes", "the operators whose outputs must not change"),
    ):
        names = getattr(request, name)
        globs = [item for item in names if is_glob(item)]
        if not names:
            problems.append(f"{name}: scene='watcher' needs it: {why}")
        elif globs:
            problems.append(f"{name}: {globs[0]!r} is a glob; CANN's watcher takes exact operator names only")
    both = [name for name in request.layers if name in request.watcher_nodes]
    if both:
        problems.append(f"{both[0]!r} is in layers and in watcher_nodes; CANN then ignores it in layers")
    if request.dump_mode != "output":
        problems.append("dump_mode: scene='watcher' dumps outputs only (CANN refuses it otherwise, EP0005)")
    if request.dump_data == "stats":
        problems.append("dump_data: scene='watcher' compares tensors element by element; leave it out")
    return problems


def _acl_json(request: DumpRequest) -> dict[str, Any]:
    """Return the watcher's keys: ``dump_mode`` written for 8.5.0, ``dump_data`` not for 9.1.0-beta.3."""
    item = {"layer": list(request.layers), "watcher_nodes": list(request.watcher_nodes)}
    section: dict[str, Any] = {"dump_scene": "watcher", "dump_mode": "output", "dump_list": [item]}
    return {**section, "dump_step": request.dump_step} if request.dump_step else section


SCENE = Scene(
    "watcher",
    takes=frozenset({"layers", "watcher_nodes", "dump_step", "dump_data", "dump_mode"}),
    alone=MappingProxyType(
        {"watcher_nodes": "only with scene='watcher' (CANN refuses it otherwise, EP0005)"}
    ),
    problems=_problems,
    acl_json=_acl_json,
)
