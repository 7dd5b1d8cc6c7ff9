"""Arguments of the marker that exclude or need each other."""

from __future__ import annotations

from pathlib import PurePath

from pytest_npudump.errors import RequestError
from pytest_npudump.plugin.marker.arguments import CHECKS
from pytest_npudump.request import GRAPH_SUFFIXES, DumpRequest
from pytest_npudump.scene import SCENES


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
    problems += [*_scene_problems(request), *_run_problems(request)]
    if problems:
        raise RequestError("; ".join(problems))


_ALWAYS = frozenset({"scene", "escalate", "isolation", "timeout", "ranks", "data_dump", "devices"})
"""What any scene takes; ``escalate`` is without effect in those without statistics."""


def _scene_problems(request: DumpRequest) -> list[str]:
    scene = SCENES[request.scene]
    problems = []
    if not scene.statistics:
        default = DumpRequest()
        given = [n for n in CHECKS if getattr(request, n) != getattr(default, n)]
        excess = [n for n in given if n not in scene.takes | _ALWAYS]
        if excess:
            taken = ", ".join(n for n in CHECKS if n in scene.takes)
            only = f"only {taken}" if taken else "no other argument: CANN looks at every operator"
            problems.append(f"{', '.join(excess)}: not with scene={scene.name!r}, which takes {only}")
    problems += scene.problems(request)
    others = [found for found in SCENES.values() if found is not scene]
    return problems + [
        f"{name}: {why}" for found in others for name, why in found.alone.items() if getattr(request, name)
    ]


def _run_problems(request: DumpRequest) -> list[str]:
    """Return what is wrong with how the test is to be run, and with what it is to be compared with."""
    problems = []
    if request.isolation == "none" and request.timeout is not None:
        problems.append("timeout: only with isolation='process', whose child process it ends")
    if request.isolation == "none" and request.dump_scene == "aic_err_detail_dump":
        problems.append("isolation: aic_err_detail_dump may end the process, which has to be a child's")
    if request.reference_map and not request.reference:
        problems.append("reference_map: needs reference, the ONNX model whose names it maps")
    if request.graph and PurePath(request.graph).suffix not in GRAPH_SUFFIXES:
        expected = ", ".join(GRAPH_SUFFIXES)
        problems.append(f"graph: {request.graph!r} is no graph by its name, expected one of {expected}")
    return problems
