"""Driver, npu-smi, device files, container."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.doctor.machine import ABSENT, OK, PROBLEM, WARNING, Finding
from pytest_npudump.runtime.registry import Probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Machine


def test_driver_has_the_version_of_its_file(machine: Machine) -> None:
    found = machine.line("driver")
    assert (found.state, found.text) == (OK, "24.1.rc2.2 (/usr/local/Ascend/driver/version.info)")


def test_package_version_is_the_driver_s_where_version_is_a_component_s(machine: Machine) -> None:
    machine.files["/usr/local/Ascend/driver/version.info"] = "Version=7.35.23\npackage_version=26.0.rc1\n"
    found = machine.line("driver")
    assert found.text.startswith("26.0.rc1 ")


def test_driver_is_looked_for_where_it_was_installed(machine: Machine) -> None:
    machine.files["/etc/ascend_install.info"] = "Driver_Install_Path_Param=/opt/ascend/\n"
    machine.files["/opt/ascend/driver/version.info"] = "Version=25.5.2\n"
    found = machine.line("driver")
    assert found.text == "25.5.2 (/opt/ascend/driver/version.info)"


@pytest.mark.parametrize("text", ["", "\x00\xff\n", "Version=\n", "ascendhal_version=7.35.23\n"])
def test_a_version_file_without_a_version_is_said(machine: Machine, text: str) -> None:
    machine.files["/usr/local/Ascend/driver/version.info"] = text
    found = machine.line("driver")
    assert (found.state, bool(found.remedy)) == (WARNING, True)


def test_without_driver_the_remedy_depends_on_being_in_a_container(machine: Machine) -> None:
    machine.without_npu()
    outside = machine.line("driver")
    machine.files["/.dockerenv"] = ""
    inside = machine.line("driver")
    assert "install the NPU driver" in outside.remedy
    assert "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro" in inside.remedy


def test_npu_smi_is_summed_up(machine: Machine) -> None:
    found = machine.line("npu-smi")
    assert (found.state, found.text) == (OK, "2 NPUs: 910B4; health OK")


def test_an_ill_npu_is_a_warning(machine: Machine) -> None:
    text = machine.npu_smi() or ""
    machine.npu_smi = lambda: text.replace("| OK     ", "| Alarm  ", 1)
    found = machine.line("npu-smi")
    assert (found.state, found.text) == (WARNING, "2 NPUs: 910B4; health Alarm")


def _fails() -> str:
    raise OSError("it ended with 255: dcmi module initialize failed. ret is -8005")


@pytest.mark.parametrize(
    ("npu_smi", "state", "words"),
    [(_fails, WARNING, "-8005"), (lambda: None, ABSENT, "not on PATH"), (lambda: "", WARNING, "no NPU")],
)
def test_npu_smi_without_an_answer(
    machine: Machine, npu_smi: Callable[[], str | None], state: str, words: str
) -> None:
    machine.npu_smi = npu_smi
    found = machine.line("npu-smi")
    assert found.state == state
    assert words in found.text
    assert found.remedy


NO_ACL = Probe(works=False, why="no")


def _device_files(machine: Machine) -> list[Finding]:
    machine.probes["acl"] = NO_ACL
    return [one for one in machine.lines("devices") if one.name.startswith(("device files", "/dev"))]


def test_all_device_files_are_one_good_line(machine: Machine) -> None:
    (found,) = _device_files(machine)
    assert (found.state, found.text) == (OK, "davinci0, davinci1")


def test_devices_are_counted_not_spelled(machine: Machine) -> None:
    machine.files |= {"/dev/davinci10": "", "/dev/davinci_hdc": "", "/dev/davinci2": ""}
    (found,) = _device_files(machine)
    assert found.text == "davinci0, davinci1, davinci2, davinci10"


def test_each_missing_device_file_is_a_problem_with_its_option(machine: Machine) -> None:
    machine.files.pop("/dev/hisi_hdc")
    machine.files["/run/.containerenv"] = ""
    (found,) = _device_files(machine)
    assert (found.name, found.state, found.text) == ("/dev/hisi_hdc", PROBLEM, "missing")
    assert found.remedy == "start the container with --device /dev/hisi_hdc"


def test_a_folder_in_place_of_a_device_is_not_one(machine: Machine) -> None:
    machine.files.pop("/dev/davinci_manager")
    machine.files["/dev/davinci_manager/file"] = ""
    (found,) = _device_files(machine)
    assert (found.state, found.text) == (PROBLEM, "a directory, not a device")


def test_a_device_file_of_others_asks_for_the_group(machine: Machine) -> None:
    machine.forbidden = ("/dev/davinci1",)
    (found,) = _device_files(machine)
    assert (found.name, found.state) == ("/dev/davinci1", PROBLEM)
    assert "HwHiAiUser" in found.remedy


def test_a_machine_without_any_is_one_line(machine: Machine) -> None:
    machine.without_npu()
    (found,) = _device_files(machine)
    assert found.state == ABSENT


@pytest.mark.parametrize(
    ("file", "text", "inside"),
    [
        ("/.dockerenv", "", True),
        ("/run/.containerenv", "", True),
        ("/proc/1/cgroup", "12:pids:/docker/3f4a\n", True),
        ("/proc/1/cgroup", "0::/kubepods.slice/kubepods-pod1.slice\n", True),
        ("/proc/1/cgroup", "0::/init.scope\n", False),
    ],
)
def test_containers_are_known_by_their_marks(machine: Machine, file: str, text: str, *, inside: bool) -> None:
    machine.files[file] = text
    found = machine.line("container")
    assert found.text == (f"yes ({file})" if inside else "no")


def test_a_pod_is_known_by_its_environment(machine: Machine) -> None:
    machine.environ["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
    found = machine.line("container")
    assert found.text == "yes (KUBERNETES_SERVICE_HOST)"
