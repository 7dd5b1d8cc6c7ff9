"""Scenes of tests: each one's arguments of the marker, and its keys in acl.json or data_dump.json.

Scenes without statistics have a judge in ``regression.scenes`` and words in ``report.scenes``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pytest_npudump.request import DumpRequest, is_glob


@dataclass(frozen=True, slots=True)
class Scene:
    """A scene.

    Attributes:
        name: as in the marker.
        statistics: whether statistics are compared with a golden; the others have a judge of their own.
        takes: without statistics, the marker's arguments that it takes beside those that any scene takes.
        alone: arguments that no other scene takes, and why.
        problems: what is wrong with the arguments, where they are those that it takes.
        acl_json: its keys of acl.json's ``dump``: beside those of statistics where it compares these,
            else all but ``dump_path``.
        data_dump: its keys of MindSpore's data_dump.json; None where MindSpore takes an acl.json for it.
        not_in_mindspore: why MindSpore cannot do it; "" where it can.
        only_on_ascend: why MindSpore can do it on no other device; "" where it can, or nowhere.
        of_failures: where what it looks for makes the test's body fail, so that such a run is judged, too:
            what is said of one in which it was not found; "" elsewhere.
        own_process: whether each run of a test has to have a process of its own.
        in_environment: whether its dumps are looked for where variables of the environment send them.
    """

    name: str
    statistics: bool = False
    takes: frozenset[str] = frozenset()
    alone: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    problems: Callable[[DumpRequest], list[str]] = lambda _: []
    acl_json: Callable[[DumpRequest], dict[str, Any]] = lambda _: {}
    data_dump: Mapping[str, int] | None = field(default_factory=lambda: MappingProxyType({}))
    not_in_mindspore: str = ""
    only_on_ascend: str = ""
    of_failures: str = ""
    own_process: bool = False
    in_environment: bool = False


_OF_A_MODEL = ("optype_blacklist", "opname_blacklist", "opname_range")


def _op_problems(request: DumpRequest) -> list[str]:
    given = [name for name in _OF_A_MODEL if getattr(request, name)]
    problems = (
        (request.model_name, "model_name: not with scene='op', a single operator belongs to no model"),
        (given, f"{', '.join(given)}: not with scene='op', they select operators of a model"),
        (request.reference, "reference: not with scene='op', a single operator belongs to no model"),
    )
    return [words for there, words in problems if there]


def _overflow_problems(request: DumpRequest) -> list[str]:
    if request.ranks == "same":
        return ["ranks: 'same' is not for scene='overflow', which keeps a golden a rank"]
    return []


def _watcher_problems(request: DumpRequest) -> list[str]:
    globs = {
        name: [item for item in getattr(request, name) if is_glob(item)]
        for name in ("layers", "watcher_nodes")
    }
    problems = (
        *(
            (
                held,
                f"{name}: {next(iter(held), '')!r} is a glob; CANN's watcher takes exact operator names only",
            )
            for name, held in globs.items()
        ),
        (
            not request.watcher_nodes,
            "watcher_nodes: scene='watcher' needs it: the operators whose outputs must not change",
        ),
        (
            request.watcher_nodes and request.layers and not set(request.layers) - set(request.watcher_nodes),
            (
                "layers: each of them is in watcher_nodes, and CANN dumps no other output after a watched "
                "operator; name others, or leave layers out for every operator"
            ),
        ),
        (
            request.dump_mode != "output",
            "dump_mode: scene='watcher' dumps outputs only (CANN refuses it otherwise, EP0005)",
        ),
        (
            request.dump_data == "stats",
            "dump_data: scene='watcher' compares tensors element by element; leave it out",
        ),
    )
    return [words for there, words in problems if there]


def _watcher_acl_json(request: DumpRequest) -> dict[str, Any]:
    """Return the watcher's keys: ``dump_mode`` written for 8.5.0, ``dump_data`` not for 9.1.0-beta.3."""
    item = {"layer": list(request.layers)} if request.layers else {}
    item["watcher_nodes"] = list(request.watcher_nodes)
    section: dict[str, Any] = {"dump_scene": "watcher", "dump_mode": "output", "dump_list": [item]}
    return {**section, "dump_step": request.dump_step} if request.dump_step else section


EXCEPTION_SCENES = ("aic_err_norm_dump", "aic_err_brief_dump", "aic_err_detail_dump", "lite_exception")
"""Values of ``dump_scene`` that dump what a failed operator was working on; the first is the default."""

NO_WATCHER = "it has no watcher; run the model's .om file with --npudump-runtime=acl"
"""Of MindSpore."""

_SCENES = (
    Scene("model", statistics=True),  # operators of a model that was loaded as a whole
    Scene(
        "op",  # single operators, which belong to no model
        statistics=True,
        problems=_op_problems,
        acl_json=lambda _: {"dump_op_switch": "on", "dump_list": [{}]},
        data_dump=None,
        only_on_ascend="only aclop kernels, which run on Ascend, heed MS_ACL_DUMP_CFG_PATH",
    ),
    Scene(
        "check_op",  # calls of check_op, each of which has a dump and a reference of its own
        acl_json=lambda _: {
            "dump_mode": "all",
            "dump_data": "tensor",
            "dump_op_switch": "on",
            "dump_list": [{}],
        },
        not_in_mindspore="npu_dump.check_op runs an operator through acl.op, or a call of torch_npu; take "
        "--npudump-runtime=acl, torch_npu or emulator",
        of_failures="no operator was wrong",
    ),
    Scene(
        "overflow",  # operators that overflow, of any model
        problems=_overflow_problems,
        acl_json=lambda _: {"dump_debug": "on"},  # with a dump_list GE would dump nothing, without a word
        data_dump=MappingProxyType({"input_output": 0, "op_debug_mode": 3}),
        only_on_ascend="op_debug_mode=3 dumps every operator there, whether it overflowed or not",
    ),
    Scene(
        "watcher",  # outputs of watcher_nodes after each of layers or all operators: who overwrites them?
        takes=frozenset({"layers", "watcher_nodes", "dump_step", "dump_data", "dump_mode"}),
        alone=MappingProxyType(
            {"watcher_nodes": "only with scene='watcher' (CANN refuses it otherwise, EP0005)"}
        ),
        problems=_watcher_problems,
        acl_json=_watcher_acl_json,
        not_in_mindspore=NO_WATCHER,
    ),
    Scene(
        "exception",  # what an operator that fails on the device was working on
        takes=frozenset({"dump_scene"}),
        alone=MappingProxyType(
            {"dump_scene": "only with scene='exception'; every other scene sets it itself"}
        ),
        acl_json=lambda request: {"dump_scene": request.dump_scene or EXCEPTION_SCENES[0]},
        data_dump=MappingProxyType({"input_output": 0, "op_debug_mode": 4}),
        only_on_ascend="op_debug_mode=4 saves nothing of an operator that fails there",
        of_failures="no exception dump was left",
        own_process=True,
        in_environment=True,
    ),
)

SCENES: Mapping[str, Scene] = MappingProxyType({scene.name: scene for scene in _SCENES})
"""The scenes by name; the first is the default."""
