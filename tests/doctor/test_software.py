"""CANN, frameworks and extras."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.doctor.finding import ABSENT, OK, PROBLEM, WARNING, Finding
from pytest_npudump.doctor.software import check_cann, check_extras, check_frameworks

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Machine

    Named = Callable[..., Finding]


def test_cann_has_the_release_of_the_toolkit_and_its_rules(machine: Machine) -> None:
    (found,) = check_cann(machine.system())
    assert found.state == OK
    assert found.text.startswith("8.5.0 (ASCEND_HOME_PATH=/usr/local/Ascend/ascend-toolkit/latest)")
    assert found.text.endswith("by the rules of 8.5.0")


def test_a_release_without_published_rules_is_a_warning(machine: Machine) -> None:
    for name in machine.files:
        if name.endswith("toolkit_install.info"):
            machine.files[name] = "version=8.1.RC1\n"
    (found,) = check_cann(machine.system())
    assert found.state == WARNING
    assert "8.1.RC1" in found.text


def test_cann_that_is_installed_and_not_sourced_names_the_script(machine: Machine) -> None:
    machine.environ.clear()
    machine.files["/usr/local/Ascend/ascend-toolkit/set_env.sh"] = "export ...\n"
    (found,) = check_cann(machine.system())
    assert (found.state, found.remedy) == (WARNING, "source /usr/local/Ascend/ascend-toolkit/set_env.sh")


def test_a_variable_that_points_nowhere_is_a_warning(machine: Machine) -> None:
    machine.environ["ASCEND_HOME_PATH"] = "/opt/gone"
    (found,) = check_cann(machine.system())
    assert found.state == WARNING
    assert "ASCEND_HOME_PATH=/opt/gone does not exist" in found.text


def test_no_cann_is_no_fault(machine: Machine) -> None:
    machine.without_npu()
    (found,) = check_cann(machine.system())
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
    findings = list(check_frameworks(machine.system()))
    assert named(findings, "torch_npu").state == state
    assert named(findings, "TorchAir").state == (OK if torch_npu else ABSENT)


def test_frameworks_are_not_imported(machine: Machine) -> None:
    machine.versions |= {"mindspore": "2.7.0", "torchair": "1.0"}
    assert {finding.state for finding in check_frameworks(machine.system())} == {OK}
    assert not {"torch", "torch_npu", "mindspore"} & sys.modules.keys()


def test_extras_are_those_of_the_installed_package(machine: Machine, named: Named) -> None:
    machine.versions = {"onnx": "1.17.0", "onnxruntime": "1.20.1"}
    findings = list(check_extras(machine.system()))
    assert [finding.name for finding in findings] == ["onnx", "onnxruntime", "distributed"]
    assert named(findings, "onnx").state == OK
    assert named(findings, "onnxruntime").state == WARNING
    assert ">=1.21" in named(findings, "onnxruntime").text
    assert named(findings, "distributed").remedy == "pip install 'pytest-npudump[dask]', to use it"


def test_another_build_of_onnxruntime_counts(machine: Machine, named: Named) -> None:
    machine.versions = {"onnx": "1.17.0", "onnxruntime-gpu": "1.21.1"}
    found = named(list(check_extras(machine.system())), "onnxruntime")
    assert (found.state, found.text) == (OK, "1.21.1 (onnxruntime-gpu), for the extra emulator")


def test_a_version_that_is_none_is_taken_as_it_is(machine: Machine, named: Named) -> None:
    machine.versions = {"onnx": "main-branch"}
    assert named(list(check_extras(machine.system())), "onnx").state == OK


def test_a_checkout_that_is_not_installed_is_a_problem(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", nothing)
    (found,) = check_extras(machine.system())
    assert (found.state, found.remedy.split(",")[0]) == (PROBLEM, "pip install pytest-npudump")
