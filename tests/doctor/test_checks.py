"""The whole examination: what decides its exit code, and what happens where the machine is broken."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.doctor.checks import ABSENT, OK, PROBLEM, WARNING, DoctorFinding, examine
from pytest_npudump.runtime.registry import Probe
from pytest_npudump.settings import OPTIONS
from tests.doctor.conftest import Machine

from .conftest import ACL, EMULATOR

Named = Callable[..., DoctorFinding]
DEAD = Probe(works=False, why="no")


def test_a_machine_on_which_all_is_well_has_no_line_that_is_not_good(
    machine: Machine, tmp_path: Path
) -> None:
    report = examine(machine.system(), tmp_path)
    areas = ("software", "devices", "environment", "dumping")
    poor = {finding.name for finding in report.findings if finding.state != OK and finding.area in areas}
    assert report.good
    assert report.runtimes == ("acl", "emulator")
    assert poor == {"MindSpore"}  # optional, and not installed there


def test_every_runtime_that_the_option_offers_is_asked(machine: Machine, tmp_path: Path) -> None:
    """But for that of torch modules, which is wherever torch is."""
    (option,) = [option for option in OPTIONS if option.name == "runtime"]
    works = Probe(works=True, why="a device answers", soc="Ascend910B4")
    machine.probes = dict.fromkeys(option.choices, works)
    report = examine(machine.system(), tmp_path)
    assert (*report.runtimes, "modules") == option.choices[3:]
    assert option.choices[:3] == ("auto", "npu", "npu-or-skip")


def test_the_runtime_of_another_package_is_asked_as_ours_are(
    machine: Machine, tmp_path: Path, named: Named
) -> None:
    machine.probes["my_device"] = Probe(works=True, why="it can be loaded")
    system = replace(machine.system(), offered=lambda: {"my_device", "my_other"})
    report = examine(system, tmp_path)
    assert "my_device" in report.runtimes
    assert named(report.findings, "my_device").text == "it can be loaded"
    assert named(report.findings, "my_other").state == ABSENT


def test_areas_stand_together_and_the_chip_is_named(machine: Machine, tmp_path: Path, named: Named) -> None:
    report = examine(machine.system(), tmp_path)
    areas = [area for area, _ in itertools.groupby(report.findings, lambda finding: finding.area)]
    assert areas == ["software", "devices", "runtimes", "environment", "dumping"]
    assert named(report.findings, "acl").text == "2 devices answer: Ascend910B4"


@pytest.mark.each(
    ("acl", "emulator", "writable", "good"),
    [
        (True, True, True, True),
        (True, False, True, True),
        (False, True, True, True),
        (False, False, True, False),
        (True, True, False, False),
    ],
)
def test_good_means_that_a_runtime_works_and_a_dump_can_be_written(
    machine: Machine, tmp_path: Path, *, acl: bool, emulator: bool, writable: bool, good: bool
) -> None:
    machine.probes = {"acl": ACL if acl else DEAD, "emulator": EMULATOR if emulator else DEAD}
    place = tmp_path / ("dumps" if writable else "du mps")
    report = examine(machine.system(), place)
    assert (report.good, report.can_write) == (good, writable)
    assert report.runtimes == tuple(name for name, works in (("acl", acl), ("emulator", emulator)) if works)


def test_a_machine_without_npu_is_good_with_the_emulator(machine: Machine, tmp_path: Path) -> None:
    machine.without_npu()
    report = examine(machine.system(), tmp_path)
    assert report.good
    assert report.runtimes == ("emulator",)
    assert not [finding for finding in report.findings if finding.state in (WARNING, PROBLEM)]


def test_a_variable_that_stops_every_dump_of_models_takes_acl_from_the_list(
    machine: Machine, tmp_path: Path, named: Named
) -> None:
    machine.environ["NPU_COLLECT_PATH"] = "/var/collect"
    report = examine(machine.system(), tmp_path)
    assert report.runtimes == ("emulator",)
    assert named(report.findings, "acl").remedy == "unset NPU_COLLECT_PATH"
    assert named(report.findings, "NPU_COLLECT_PATH").state == PROBLEM


@pytest.mark.each("part", ["version", "probe", "npu_smi", "access", "free"])
def test_a_probe_that_raises_is_a_line_and_the_others_stay(
    machine: Machine, tmp_path: Path, part: str
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("burnt")

    machine.probes["acl"] = DEAD
    changes: dict[str, Any] = {part: broken}
    report = examine(replace(machine.system(), **changes), tmp_path)
    (line,) = [finding for finding in report.findings if finding.name == "check"][:1]
    assert line.state == PROBLEM
    assert "RuntimeError: burnt" in line.text
    assert line.remedy
    assert len(report.findings) > 8


def test_a_place_that_cannot_be_judged_is_no_place_for_a_dump(machine: Machine, tmp_path: Path) -> None:
    def broken(*_: Any) -> bool:
        raise PermissionError("no")

    assert not examine(replace(machine.system(), free=broken), tmp_path).can_write


def test_json_holds_every_line(machine: Machine, tmp_path: Path) -> None:
    report = examine(machine.system(), tmp_path)
    data = json.loads(json.dumps(report.to_json()))
    assert data["good"] is True
    assert data["runtimes"] == ["acl", "emulator"]
    assert data["can_write"] is True
    assert [line["name"] for line in data["findings"]] == [finding.name for finding in report.findings]


@pytest.mark.parametrize(
    ("soc", "text"), [("", "MindSpore 2.10.0 runs on CPU"), ("Ascend910B3", "*: Ascend910B3")]
)
def test_mindspore_works_without_an_npu_too(machine: Machine, tmp_path: Path, soc: str, text: str) -> None:
    machine.probes["mindspore"] = Probe(works=True, why="MindSpore 2.10.0 runs on CPU", soc=soc)
    report = examine(machine.system(), tmp_path)
    (found,) = (one for one in report.findings if (one.area, one.name) == ("runtimes", "mindspore"))
    assert found.state == OK
    assert fnmatchcase(found.text, text)
    assert "mindspore" in report.runtimes
