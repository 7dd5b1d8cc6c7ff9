"""Variables that change a dump."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.doctor.machine import OK, PROBLEM, WARNING

if TYPE_CHECKING:
    from conftest import Machine


@pytest.mark.parametrize(
    ("name", "value", "state", "words"),
    [
        ("ASCEND_DUMP_SCENE", "aic_err_norm_dump", WARNING, "exception dump is on in every process"),
        ("ASCEND_DUMP_SCENE", "lite_exception", OK, "without effect"),
        ("ASCEND_DUMP_SCENE", "watcher", OK, "without effect"),
        ("ASCEND_DUMP_SCENE", "", OK, "without effect"),
        ("ASCEND_DUMP_PATH", "/d", WARNING, "exception dumps"),
        ("ASCEND_WORK_PATH", "/d", WARNING, "unless ASCEND_DUMP_PATH"),
        ("NPU_COLLECT_PATH", "/d", PROBLEM, "E10056"),
        ("NPU_COLLECT_PATH_EXE", "/d", PROBLEM, "E10056"),
        ("NPU_COLLECT_PATH", "", OK, "without effect"),
        ("ACL_DUMP_DATA", "1", WARNING, "100002"),
        ("ACL_DUMP_DATA", "0", OK, "without effect"),
        ("MINDSPORE_DUMP_CONFIG", "/d.json", WARNING, "MindSpore dumps"),
        ("MS_ACL_DUMP_CFG_PATH", "/acl.json", WARNING, "finalize_dump"),
        ("ASCEND_RT_VISIBLE_DEVICES", "4,5", OK, "--npudump-device goes to 1"),
        ("ASCEND_RT_VISIBLE_DEVICES", "npu:1", WARNING, "no list of device ids"),
        ("ASCEND_RT_VISIBLE_DEVICES", "", WARNING, "no list of device ids"),
    ],
)
def test_each_variable_says_what_it_does(
    machine: Machine, name: str, value: str, state: str, words: str
) -> None:
    machine.environ[name] = value
    (found,) = machine.lines("environment")
    assert (found.name, found.state) == (name, state)
    assert words in found.text
    assert (name in found.remedy) is (state != OK)


def test_without_any_there_is_one_line(machine: Machine) -> None:
    (found,) = machine.lines("environment")
    assert (found.name, found.state) == ("variables", OK)
