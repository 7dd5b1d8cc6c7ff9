"""Environment variables that change where CANN, torch_npu or MindSpore dump, or whether they do.

Sources: ``dump_manager.cpp`` and ``dump_config_converter.cpp`` of hicann/runtime, ``dump_manager.cc`` of
hicann/ge, ``npu_sys_ctrl.cpp`` of torch_npu, ``acl_utils.cc`` and ``dump_json_parser.cc`` of MindSpore.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_npudump.config.acl_keys import SCENE_TYPES
from pytest_npudump.doctor.finding import OK, PROBLEM, WARNING, Finding
from pytest_npudump.language.translation import mark, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.doctor.system import System

AREA = mark("environment")
BLOCKING = ("NPU_COLLECT_PATH", "NPU_COLLECT_PATH_EXE")
"""With one of these GE refuses a data dump (E10056), and ``aclmdlSetDump`` returns 0 all the same."""

_VARIABLES = (
    *BLOCKING,
    "ASCEND_DUMP_SCENE",
    "ASCEND_DUMP_PATH",
    "ASCEND_WORK_PATH",
    "ACL_DUMP_DATA",
    "MINDSPORE_DUMP_CONFIG",
    "MS_ACL_DUMP_CFG_PATH",
    "ASCEND_RT_VISIBLE_DEVICES",
)
_DEVICE_IDS = re.compile(r"\d+(,\d+)*")


def check_environment(system: System) -> Iterator[Finding]:
    """Say what each variable that is set does to a dump."""
    found = [name for name in _VARIABLES if name in system.environ]
    for name in found:
        yield _finding(name, system.environ[name])
    if not found:
        yield Finding(AREA, mark("variables"), OK, said("none is set that changes a dump"))


def _finding(name: str, value: str) -> Finding:
    shown = f"={value}"
    if name in BLOCKING and value:
        text = said(
            "{shown}: GE refuses every other dump (E10056) and aclmdlSetDump returns 0: models dump nothing",
            shown=shown,
        )
        return Finding(AREA, name, PROBLEM, text, f"unset {name}")
    if name == "ASCEND_RT_VISIBLE_DEVICES":
        return _visible_devices(name, value)
    effect = _effect(name, value)
    return (
        Finding(AREA, name, WARNING, said("{shown}: {effect}", shown=shown, effect=effect), f"unset {name}")
        if effect
        else _idle(name, shown)
    )


def _idle(name: str, shown: str) -> Finding:
    return Finding(AREA, name, OK, said("{shown}: without effect", shown=shown))


def _effect(name: str, value: str) -> str:
    if name == "ASCEND_DUMP_SCENE":
        return _scene(value)
    if name == "ACL_DUMP_DATA":
        text = said(
            "torch_npu opens a dump of its own from ./acl.json, and acl.mdl.init_dump() then returns 100002"
        )
        return text if value == "1" else ""
    if not value:
        return ""
    return {
        "ASCEND_DUMP_PATH": said("exception dumps and printf of kernels go there, whatever dump_path says"),
        "ASCEND_WORK_PATH": said("exception dumps go there, unless ASCEND_DUMP_PATH is set too"),
        "MINDSPORE_DUMP_CONFIG": said(
            "MindSpore dumps by this file in every process, beside what a test asks for"
        ),
        "MS_ACL_DUMP_CFG_PATH": said(
            "MindSpore ends every other dump: it calls set_dump and finalize_dump around each aclop kernel"
        ),
    }[name]


def _scene(value: str) -> str:
    if value in SCENE_TYPES and value != "lite_exception":
        return said("an exception dump is on in every process, and the exception scene of a test is ignored")
    return said("no scene that CANN takes from the environment; it ignores the variable") if value else ""


def _visible_devices(name: str, value: str) -> Finding:
    if not _DEVICE_IDS.fullmatch(value.replace(" ", "")):
        text = said("={value}: no list of device ids, so that no device may be visible", value=value)
        return Finding(AREA, name, WARNING, text, said("write ids: {name}=0,1, or unset it", name=name))
    count = len(value.split(","))
    return Finding(
        AREA,
        name,
        OK,
        said(
            "={value}: CANN numbers these from 0, so --npudump-device goes to {last}",
            value=value,
            last=count - 1,
        ),
    )
