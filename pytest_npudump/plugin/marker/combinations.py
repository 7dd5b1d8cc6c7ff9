"""Arguments of the marker that exclude or need each other."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_npudump.errors import RequestError
from pytest_npudump.plugin.marker.arguments import CHECKS
from pytest_npudump.request import DumpRequest, is_glob

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_combination(request: DumpRequest) -> None:
    """Refuse arguments that exclude each other once all markers of a test are merged.

    Raises:
        RequestError: names the arguments and the rule.
    """
    problems = []
    if request.dump_stats and request.dump_data == "tensor":
        problems.append("dump_stats: only with dump_data='stats' (CANN refuses it otherwise, EP0005)")
    level_op = [n for n in ("optype_blacklist", "opname_blacklist", "opname_range") if getattr(request, n)]
    if level_op and request.dump_level != "op":
        problems.append(
            f"{', '.join(level_op)}: only with dump_level='op' (CANN refuses it otherwise, EP0005)"
        )
    if request.opname_range and not request.model_name:
        problems.append("opname_range: needs model_name (CANN refuses it otherwise, EP0001)")
    if request.scene == "op" and request.model_name:
        problems.append("model_name: not with scene='op', a single operator belongs to no model")
    if request.scene == "op" and level_op:
        problems.append(f"{', '.join(level_op)}: not with scene='op', they select operators of a model")
    problems += [*_scene_problems(request), *_run_problems(request)]
    if problems:
        raise RequestError("; ".join(problems))


_TAKEN: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "overflow": frozenset(),
        "watcher": frozenset({"layers", "watcher_nodes", "dump_step", "dump_data", "dump_mode"}),
        "exception": frozenset({"dump_scene"}),
    }
)
"""Arguments that scenes without a comparison of statistics take; ``escalate`` is without effect in them."""

_ALWAYS = frozenset({"scene", "escalate", "isolation", "timeout", "ranks", "data_dump"})


def _scene_problems(request: DumpRequest) -> list[str]:
    scene = request.scene
    problems = []
    if scene in _TAKEN:
        default = DumpRequest()
        given = [n for n in CHECKS if getattr(request, n) != getattr(default, n)]
        excess = [n for n in given if n not in _TAKEN[scene] | _ALWAYS]
        if excess:
            taken = ", ".join(n for n in CHECKS if n in _TAKEN[scene])
            only = f"only {taken}" if taken else "no other argument: CANN looks at every operator"
            problems.append(f"{', '.join(excess)}: not with scene={scene!r}, which takes {only}")
    if scene == "watcher":
        problems += _watcher_problems(request)
    elif request.watcher_nodes:
        problems.append("watcher_nodes: only with scene='watcher' (CANN refuses it otherwise, EP0005)")
    if request.dump_scene and scene != "exception":
        problems.append("dump_scene: only with scene='exception'; every other scene sets it itself")
    return problems


def _run_problems(request: DumpRequest) -> list[str]:
    """Return what is wrong with how the test is to be run, and with what it is to be compared with."""
    problems = []
    if request.isolation == "none" and request.timeout is not None:
        problems.append("timeout: only with isolation='process', whose child process it ends")
    if request.isolation == "none" and request.dump_scene == "aic_err_detail_dump":
        problems.append("isolation: aic_err_detail_dump may end the process, which has to be a child's")
    if request.ranks == "same" and request.scene == "overflow":
        problems.append("ranks: 'same' is not for scene='overflow', which keeps a golden a rank")
    if request.reference_map and not request.reference:
        problems.append("reference_map: needs reference, the ONNX model whose names it maps")
    if request.reference and request.scene == "op":
        problems.append("reference: not with scene='op', a single operator belongs to no model")
    return [*problems, *_callback_problems(request)] if request.transport == "callback" else problems


def _callback_problems(request: DumpRequest) -> list[str]:
    """Return what does not go with a dump that is handed over and not kept."""
    problems = []
    if request.dump_data == "stats":
        problems.append(
            "transport: 'callback' takes full tensors and computes their statistics; leave dump_data out"
        )
    if request.dump_stats:
        problems.append("dump_stats: not with transport='callback', which computes all statistics itself")
    if request.golden_tensors and request.dump_data == "tensor":
        problems.append(
            "golden_tensors: dump_data='tensor' compares them in every run, and transport='callback' keeps "
            "no tensor; leave dump_data out to have them compared in the second run, or take "
            "transport='files'"
        )
    return problems


def _watcher_problems(request: DumpRequest) -> list[str]:
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
