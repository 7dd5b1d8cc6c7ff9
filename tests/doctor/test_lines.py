"""Lines of the table: software, driver, devices, container, variables, and the place of a dump."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.doctor.checks import ABSENT, OK, PROBLEM, WARNING, DoctorFinding, examine
from pytest_npudump.doctor.pytest_config import default_place
from pytest_npudump.runtime.registry import Probe

from .conftest import FILES, HOME, NPU_SMI, Machine

Named = Callable[..., DoctorFinding]
Changes = dict[str, Any]
TOOLKIT = f"{HOME}/aarch64-linux/ascend_toolkit_install.info"
DRIVER = "/usr/local/Ascend/driver/version.info"
SOURCED = "/usr/local/Ascend/ascend-toolkit/set_env.sh"
DOCKER = {"/.dockerenv": ""}
NO_NPU = {name: None for name in FILES if name.startswith(("/dev/", "/usr/", "/etc/"))}
NO_ACL = {"probes": {"acl": Probe(works=False, why="no")}}


def _fails() -> str:
    raise OSError("it ended with 255: dcmi module initialize failed. ret is -8005")


def changed(machine: Machine, changes: Changes) -> Machine:
    """Change parts of a machine: mappings by name, where None takes something out, and others whole."""
    for part, value in changes.items():
        whole = getattr(machine, part) | value if isinstance(value, dict) else value
        if isinstance(whole, dict):
            whole = {name: one for name, one in whole.items() if one is not None}
        setattr(machine, part, whole)
    return machine


LINES: list[tuple[Changes, str, str, str, str]] = [
    ({}, "CANN", OK, f"8.5.0 (ASCEND_HOME_PATH={HOME})*by the rules of 8.5.0", ""),
    ({"files": {TOOLKIT: "version=8.1.RC1\n"}}, "CANN", WARNING, "*8.1.RC1*", "*"),
    (
        {"environ": {"ASCEND_HOME_PATH": None}, "files": {SOURCED: "."}},
        "CANN",
        WARNING,
        "*",
        f"source {SOURCED}",
    ),
    (
        {"environ": {"ASCEND_HOME_PATH": "/opt/gone"}},
        "CANN",
        WARNING,
        "ASCEND_HOME_PATH=/opt/gone does not exist",
        "*",
    ),
    ({"environ": {"ASCEND_HOME_PATH": None}, "files": NO_NPU}, "CANN", ABSENT, "*", "*"),
    ({}, "driver", OK, f"24.1.rc2.2 ({DRIVER})", ""),
    ({"files": {DRIVER: "Version=7.35.23\npackage_version=26.0.rc1\n"}}, "driver", OK, "26.0.rc1 *", ""),
    (
        {
            "files": {
                "/etc/ascend_install.info": "Driver_Install_Path_Param=/opt/ascend/\n",
                "/opt/ascend/driver/version.info": "Version=25.5.2\n",
            }
        },
        *("driver", OK, "25.5.2 (/opt/ascend/driver/version.info)", ""),
    ),
    *(
        ({"files": {DRIVER: text}}, "driver", WARNING, "*", "*")
        for text in ("", "\x00\xff\n", "Version=\n", "ascendhal_version=7.35.23\n")
    ),
    ({"files": NO_NPU}, "driver", ABSENT, "*", "*install the NPU driver*"),
    (
        {"files": NO_NPU | DOCKER},
        *("driver", ABSENT, "*", "*-v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro*"),
    ),
    ({}, "npu-smi", OK, "2 NPUs: 910B4; health OK", ""),
    (
        {"npu_smi": lambda: NPU_SMI.replace("| OK     ", "| Alarm  ", 1)},
        *("npu-smi", WARNING, "2 NPUs: 910B4; health Alarm", "*"),
    ),
    ({"npu_smi": _fails}, "npu-smi", WARNING, "*-8005*", "*"),
    ({"npu_smi": lambda: None}, "npu-smi", ABSENT, "*not on PATH*", "*"),
    ({"npu_smi": lambda: ""}, "npu-smi", WARNING, "*no NPU*", "*"),
    ({"files": {"/dev/devmm_svm": None}}, "device files", OK, "*", ""),  # a device answers
    (NO_ACL, "device files", OK, "davinci0, davinci1", ""),
    (
        NO_ACL | {"files": {"/dev/davinci10": "", "/dev/davinci_hdc": "", "/dev/davinci2": ""}},
        *("device files", OK, "davinci0, davinci1, davinci2, davinci10", ""),
    ),
    (
        NO_ACL | {"files": {"/dev/hisi_hdc": None, "/run/.containerenv": ""}},
        *("device files", PROBLEM, "missing*: hisi_hdc", "start the container with --device /dev/hisi_hdc"),
    ),
    (
        NO_ACL | {"files": {"/dev/davinci_manager": None, "/dev/davinci_manager/file": ""}},
        *("device files", PROBLEM, "*: davinci_manager", "*"),
    ),
    (NO_ACL | {"forbidden": ("/dev/davinci1",)}, "device files", PROBLEM, "*: davinci1", "*HwHiAiUser*"),
    (
        NO_ACL | {"files": {"/dev/hisi_hdc": None, "/dev/devmm_svm": None}},
        *("device files", PROBLEM, "*: devmm_svm, hisi_hdc", "load the NPU driver"),
    ),
    (NO_ACL | {"files": NO_NPU}, "device files", ABSENT, "*", "*"),
    ({"files": DOCKER}, "container", OK, "yes (/.dockerenv)", ""),
    ({"files": {"/run/.containerenv": ""}}, "container", OK, "yes (/run/.containerenv)", ""),
    *(
        ({"files": {"/proc/1/cgroup": text}}, "container", OK, told, "")
        for text, told in (
            ("12:pids:/docker/3f4a\n", "yes (/proc/1/cgroup)"),
            ("0::/kubepods.slice/kubepods-pod1.slice\n", "yes (/proc/1/cgroup)"),
            ("0::/init.scope\n", "no"),
        )
    ),
    (
        {"environ": {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}},
        *("container", OK, "yes (KUBERNETES_SERVICE_HOST)", ""),
    ),
    ({}, "variables", OK, "*", ""),
    *(
        ({"environ": {name: value}}, "variables", OK, "*", "")
        for name, value in (
            *(("ASCEND_DUMP_SCENE", scene) for scene in ("lite_exception", "watcher", "")),
            *(("NPU_COLLECT_PATH", ""), ("ACL_DUMP_DATA", "0"), ("ASCEND_RT_VISIBLE_DEVICES", "4, 5")),
        )
    ),
    *(
        ({"environ": {name: value}}, name, state, f"*{words}*", f"*{name}*")
        for name, value, state, words in (
            ("ASCEND_DUMP_SCENE", "aic_err_norm_dump", WARNING, "exception dump is on in every process"),
            ("ASCEND_DUMP_PATH", "/d", WARNING, "exception dumps"),
            ("ASCEND_WORK_PATH", "/d", WARNING, "unless ASCEND_DUMP_PATH"),
            ("NPU_COLLECT_PATH", "/d", PROBLEM, "E10056"),
            ("NPU_COLLECT_PATH_EXE", "/d", PROBLEM, "E10056"),
            ("ACL_DUMP_DATA", "1", WARNING, "100002"),
            ("MINDSPORE_DUMP_CONFIG", "/d.json", WARNING, "MindSpore dumps"),
            ("MS_ACL_DUMP_CFG_PATH", "/acl.json", WARNING, "finalize_dump"),
            ("ASCEND_RT_VISIBLE_DEVICES", "npu:1", WARNING, "no list of device ids"),
            ("ASCEND_RT_VISIBLE_DEVICES", "", WARNING, "no list of device ids"),
        )
    ),
    ({"free": (1 << 20, 1 << 20)}, "space", WARNING, "*0.0 GiB free*", "*"),
    ({"free": (1 << 40, 100)}, "space", WARNING, "*, 100 files", "*"),
    ({"free": (1 << 40, None)}, "space", OK, "*", ""),
]
"""What is changed of a machine on which all is well; then a line: its name, state, text and remedy."""


@pytest.mark.each("changes, name, state, text, remedy", LINES)
def test_a_line(tmp_path: Path, changes: Changes, name: str, *, state: str, text: str, remedy: str) -> None:
    machine = changed(Machine(tmp_path / "machine"), changes)
    found = machine.line(name)
    assert found.state == state, found
    for one in examine(machine.system(), machine.root).findings:
        assert bool(one.remedy) is (one.state != OK), one
        assert one.state in {OK, ABSENT, WARNING, PROBLEM}, one
    assert fnmatchcase(found.text, text.replace("[", "[[]")), found
    assert fnmatchcase(found.remedy, remedy), found


@pytest.mark.each("environ", [{}, {"ASCEND_WORK_PATH": "/d"}])
def test_a_variable_is_a_line_and_none_are_one(tmp_path: Path, environ: dict[str, str]) -> None:
    assert len(changed(Machine(tmp_path / "machine"), {"environ": environ}).lines("environment")) == 1


@pytest.mark.each(
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


def test_the_default_is_where_pytest_makes_its_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    own = tmp_path_factory.getbasetemp()
    if own.parent.name.startswith("pytest-of-"):
        assert own.is_relative_to(default_place()) or own.parent.name == default_place().name
    assert default_place({"PYTEST_DEBUG_TEMPROOT": "/var/tmp"}).parent == Path("/var/tmp").resolve()  # noqa: S108 - a path in a variable
    assert default_place({}).parent == Path(tempfile.gettempdir()).resolve()


def test_a_good_place_is_written_to_and_left_as_it_was(
    machine: Machine, tmp_path: Path, named: Named
) -> None:
    assert {finding.state for finding in machine.lines("dumping", tmp_path)} == {OK}
    findings = list(machine.lines("dumping", tmp_path / "a" / "b"))  # judged by the nearest folder
    assert named(findings, "write").text == f"a file could be written in {tmp_path}; b will be made"
    assert list(tmp_path.iterdir()) == [machine.root]


@pytest.mark.each("name", ["with blank", "größe", "a~b", "x<y", "l" * 250 + "/" + "m" * 250])
def test_names_that_cann_does_not_dump_into_are_problems(
    machine: Machine, tmp_path: Path, named: Named, name: str
) -> None:
    found = named(list(machine.lines("dumping", tmp_path / name)), "dump path")
    assert (found.state, "--npudump-output" in found.remedy) == (PROBLEM, True)


@pytest.mark.each("name", ["dumps", "with blank"])
def test_the_key_or_option_that_names_the_place_is_said(
    machine: Machine, tmp_path: Path, named: Named, name: str
) -> None:
    findings = list(machine.lines("dumping", tmp_path / name, "npudump_output in pytest.ini"))
    assert "(npudump_output in pytest.ini)" in named(findings, "dump path").text


def test_a_place_that_cannot_be_written_is_a_problem_with_its_reason(
    machine: Machine, tmp_path: Path, named: Named
) -> None:
    (tmp_path / "dumps").write_text("")
    for place, text in (
        (tmp_path / "dumps", f"{tmp_path / 'dumps'}: Not a directory"),
        (Path("/proc/dumps"), "/proc: *"),
    ):
        found = named(list(machine.lines("dumping", place)), "write")
        assert (found.state, fnmatchcase(found.text, text)) == (PROBLEM, True), found
