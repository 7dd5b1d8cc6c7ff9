"""CANN and frameworks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.doctor.machine import ABSENT, OK, PROBLEM, WARNING, Finding

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Machine

    Named = Callable[..., Finding]


def test_cann_has_the_release_of_the_toolkit_and_its_rules(machine: Machine) -> None:
    found = machine.line("CANN")
    assert found.state == OK
    assert found.text.startswith("8.5.0 (ASCEND_HOME_PATH=/usr/local/Ascend/ascend-toolkit/latest)")
    assert found.text.endswith("by the rules of 8.5.0")


def test_a_release_without_published_rules_is_a_warning(machine: Machine) -> None:
    for name in machine.files:
        if name.endswith("toolkit_install.info"):
            machine.files[name] = "version=8.1.RC1\n"
    found = machine.line("CANN")
    assert found.state == WARNING
    assert "8.1.RC1" in found.text


def test_cann_that_is_installed_and_not_sourced_names_the_script(machine: Machine) -> None:
    machine.environ.clear()
    machine.files["/usr/local/Ascend/ascend-toolkit/set_env.sh"] = "export ...\n"
    found = machine.line("CANN")
    assert (found.state, found.remedy) == (WARNING, "source /usr/local/Ascend/ascend-toolkit/set_env.sh")


def test_a_variable_that_points_nowhere_is_a_warning(machine: Machine) -> None:
    machine.environ["ASCEND_HOME_PATH"] = "/opt/gone"
    found = machine.line("CANN")
    assert found.state == WARNING
    assert "ASCEND_HOME_PATH=/opt/gone does not exist" in found.text


def test_no_cann_is_no_fault(machine: Machine) -> None:
    machine.without_npu()
    found = machine.line("CANN")
    assert found.state == ABSENT


@pytest.mark.parametrize(
    ("torch", "torch_npu", "state"),
    [
        ("2.5.1+cpu", "2.5.1.post1", OK),
        ("2.1.0", "2.1.0.post17.dev20251101", OK),
        ("2.6.0", "2.5.1", PROBLEM),
        (None, "2.5.1", PROBLEM),
        ("2.5.1", None, ABSENT),
    ],
)
def test_torch_npu_has_to_be_of_torch_s_release(
    machine: Machine, named: Named, torch: str | None, torch_npu: str | None, state: str
) -> None:
    given = {"torch": torch, "torch_npu": torch_npu}
    machine.versions = {name: version for name, version in given.items() if version}
    findings = machine.lines("software")
    assert named(findings, "torch_npu").state == state
    assert named(findings, "TorchAir").state == (OK if torch_npu else ABSENT)


def test_frameworks_are_not_imported(machine: Machine) -> None:
    machine.versions |= {"mindspore": "2.7.0", "torchair": "1.0"}
    assert {finding.state for finding in machine.lines("software")} == {OK}
    assert not {"torch", "torch_npu", "mindspore"} & sys.modules.keys()
