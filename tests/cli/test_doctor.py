"""``npudump doctor`` on machines that are not there, and on the one that runs the tests."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import metadata
from itertools import groupby, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npudump.cli import doctor, main
from pytest_npudump.cli.doctor import (
    ABSENT,
    OK,
    PROBLEM,
    WARNING,
    DoctorFinding,
    examine,
    installed_version,
    probe_runtime,
)
from pytest_npudump.config.cann import ROOTS
from pytest_npudump.runtime.registry import Probe
from pytest_npudump.settings import OPTIONS

# As printed by npu-smi 24.1.rc3 on an Atlas 800T A2 (two of its eight NPUs).
NPU_SMI = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc3                 Version: 24.1.rc3                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B4               | OK            | 88.2        36                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          2825 / 32768         |
+===========================+===============+====================================================+
| 1     910B4               | OK            | 84.8        36                0    / 0             |
| 0                         | 0000:01:00.0  | 0           0    / 0          2822 / 32768         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 0                                                            |
+===========================+===============+====================================================+
"""
# /usr/local/Ascend/driver/version.info of a driver 24.1.rc2.2.
DRIVER = """\
Version=24.1.rc2.2
ascendhal_version=7.35.23
aicpu_version=1.0
tdt_version=1.0
log_version=1.0
prof_version=2.0
dvppkernels_version=1.1
tsfw_version=1.0
Innerversion=V100R001C18SPC001B233
compatible_version=[V100R001C30],[V100R001C13],[V100R001C15]
"""
INSTALL_INFO = """\
UserName=HwHiAiUser
UserGroup=HwHiAiUser
Driver_Install_Type=full
Driver_Install_Path_Param=/usr/local/Ascend
Driver_Install_For_All=yes
"""
TOOLKIT = (
    "package_name=Ascend-cann-toolkit\nversion=8.5.0\ninnerversion=V100R001C21SPC001B233\narch=aarch64\n"
)
HOME = "/usr/local/Ascend/ascend-toolkit/latest"
FILES = {
    "/etc/ascend_install.info": INSTALL_INFO,
    "/usr/local/Ascend/driver/version.info": DRIVER,
    f"{HOME}/aarch64-linux/ascend_toolkit_install.info": TOOLKIT,
    "/proc/1/cgroup": "0::/init.scope\n",
    "/dev/davinci0": "",
    "/dev/davinci1": "",
    "/dev/davinci_manager": "",
    "/dev/devmm_svm": "",
    "/dev/hisi_hdc": "",
}
VERSIONS = {"torch": "2.5.1+cpu", "torch_npu": "2.5.1.post1", "onnx": "1.17.0", "onnxruntime": "1.21.1"}
ACL = Probe(works=True, why="2 devices answer", devices=2, soc="Ascend910B4")
NO_ACL = Probe(works=False, why="no module 'acl'")
NOT_INSTALLED = Probe(works=False, why="not installed")
EMULATOR = Probe(works=True, why="onnxruntime 1.21.1, onnx 1.17.0")


DEAD = Probe(works=False, why="no")
Changes = dict[str, Any]


def burnt(*_: Any) -> Any:
    raise RuntimeError("burnt")


@dataclass
class Machine:
    """A machine to change and then to examine; as it is made, an Atlas server on which all is well."""

    root: Path
    patch: pytest.MonkeyPatch
    files: dict[str, str] = field(default_factory=lambda: dict(FILES))
    environ: dict[str, str] = field(default_factory=lambda: {"ASCEND_HOME_PATH": HOME})
    versions: dict[str, str] = field(default_factory=lambda: dict(VERSIONS))
    probes: dict[str, Probe] = field(default_factory=lambda: {"acl": ACL, "emulator": EMULATOR})
    offered: frozenset[str] = frozenset()
    forbidden: tuple[str, ...] = ()
    npu_smi: Callable[[], str | None] = lambda: NPU_SMI
    free: tuple[int, int | None] = (1 << 40, 1 << 20)
    broken: str = ""

    def change(self, changes: Changes) -> Machine:
        """Change parts: mappings by name, where None takes something out, and others whole."""
        for part, value in changes.items():
            whole = getattr(self, part) | value if isinstance(value, dict) else value
            if isinstance(whole, dict):
                whole = {name: one for name, one in whole.items() if one is not None}
            setattr(self, part, whole)
        return self

    def examine(self, place: Path | None = None, origin: str = "") -> list[DoctorFinding]:
        for name, text in self.files.items():
            path = self.root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        nbytes, files = self.free
        access = os.access
        shown = {str(self.root / name.lstrip("/")) for name in self.forbidden}
        fakes: dict[str, Any] = {
            "ROOT": self.root,
            "installed_version": lambda name: self.versions.get(name, ""),
            "probe_runtime": lambda name: self.probes.get(name, NOT_INSTALLED),
            "offered": lambda: self.offered,
            "run_npu_smi": self.npu_smi,
            "os.access": lambda path, mode: str(path) not in shown and access(path, mode),
            "os.statvfs": lambda _: SimpleNamespace(
                f_bavail=nbytes, f_frsize=1, f_favail=files or 0, f_files=files or 0
            ),
            "os.environ": self.environ,
        }
        if self.broken:
            fakes[self.broken] = burnt
        with self.patch.context() as patch:
            for name, fake in fakes.items():
                patch.setattr(name if "." in name else f"{doctor.__name__}.{name}", fake)
            return examine(self.root if place is None else place, origin, self.root)

    def line(self, name: str, place: Path | None = None, origin: str = "") -> DoctorFinding:
        return next(one for one in self.examine(place, origin) if one.name == name)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path / "machine", monkeypatch)


def working(findings: list[DoctorFinding]) -> list[str]:
    return [one.name for one in findings if (one.area, one.state) == ("runtimes", OK)]


TOOLKIT_FILE = f"{HOME}/aarch64-linux/ascend_toolkit_install.info"
DRIVER_FILE = "/usr/local/Ascend/driver/version.info"
SOURCED = "/usr/local/Ascend/ascend-toolkit/set_env.sh"
NO_NPU = {name: None for name in FILES if name.startswith(("/dev/", "/usr/", "/etc/"))}
NO_ACL = {"probes": {"acl": DEAD}}


def _fails() -> str:
    raise OSError("it ended with 255: dcmi module initialize failed. ret is -8005")


LINES: list[tuple[Changes, str, str, str, str]] = [
    ({}, "CANN", OK, f"8.5.0 (ASCEND_HOME_PATH={HOME})*by the rules of 8.5.0", ""),
    ({"files": {TOOLKIT_FILE: "version=8.1.RC1\n"}}, "CANN", WARNING, "*8.1.RC1*", "*"),
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
        "ASCEND_HOME_PATH=/opt/gone has no version file",
        "*",
    ),
    ({"environ": {"ASCEND_HOME_PATH": None}, "files": NO_NPU}, "CANN", ABSENT, "*", "*"),
    ({}, "driver", OK, f"24.1.rc2.2 ({DRIVER_FILE})", ""),
    ({"files": {DRIVER_FILE: "Version=7.35.23\npackage_version=26.0.rc1\n"}}, "driver", OK, "26.0.rc1 *", ""),
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
        ({"files": {DRIVER_FILE: text}}, "driver", WARNING, "*", "*")
        for text in ("", "\x00\xff\n", "Version=\n", "ascendhal_version=7.35.23\n")
    ),
    (
        {"files": NO_NPU},
        *(
            "driver",
            ABSENT,
            "*",
            "install the NPU driver*-v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro",
        ),
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
        NO_ACL | {"files": {"/dev/hisi_hdc": None}},
        *(
            "device files",
            PROBLEM,
            "missing*: hisi_hdc",
            "*start the container with --device /dev/hisi_hdc;*",
        ),
    ),
    (
        NO_ACL | {"files": {"/dev/davinci_manager": None, "/dev/davinci_manager/file": ""}},
        *("device files", PROBLEM, "*: davinci_manager", "*"),
    ),
    (NO_ACL | {"forbidden": ("/dev/davinci1",)}, "device files", PROBLEM, "*: davinci1", "*HwHiAiUser*"),
    (
        NO_ACL | {"files": {"/dev/hisi_hdc": None, "/dev/devmm_svm": None}},
        *(
            "device files",
            PROBLEM,
            "*: devmm_svm, hisi_hdc",
            "*--device /dev/devmm_svm --device /dev/hisi_hdc;*",
        ),
    ),
    (NO_ACL | {"files": NO_NPU}, "device files", ABSENT, "*", "*"),
    *(
        ({"versions": {"torch": torch, "torch_npu": torch_npu}}, "torch_npu", state, "*", "*")
        for torch, torch_npu, state in (
            ("2.5.1+cpu", "2.5.1.post1", OK),
            ("2.1.0", "2.1.0.post17.dev20251101", OK),
            ("2.6.0", "2.5.1", PROBLEM),
            (None, "2.5.1", PROBLEM),
            ("2.5.1", None, ABSENT),
        )
    ),
    ({}, "TorchAir", OK, "the one inside torch_npu 2.5.1.post1", ""),
    ({"versions": {"torch_npu": None}}, "TorchAir", ABSENT, "*", "pip install torch-npu*"),
    ({"versions": {"torchair": "1.0", "mindspore": "2.7.0"}}, "TorchAir", OK, "1.0", ""),
    ({}, "MindSpore", ABSENT, "*", "pip install mindspore*"),
    ({}, "acl", OK, "2 devices answer: Ascend910B4", ""),
    ({"environ": {"NPU_COLLECT_PATH": "/d"}}, "acl", PROBLEM, "*", "unset NPU_COLLECT_PATH"),
    *(
        (
            {"probes": {"mindspore": Probe(works=True, why="MindSpore 2.10.0 runs on CPU", soc=soc)}},
            "mindspore",
            OK,
            text,
            "",
        )
        for soc, text in (("", "MindSpore 2.10.0 runs on CPU"), ("Ascend910B3", "*: Ascend910B3"))
    ),
    (
        {"offered": frozenset({"mine"}), "probes": {"mine": Probe(works=True, why="it can be loaded")}},
        *("mine", OK, "it can be loaded", ""),
    ),
    ({"offered": frozenset({"mine"})}, "mine", ABSENT, "not installed", "ask the package that offers it"),
    ({}, "variables", OK, "*", ""),
    *(
        ({"environ": {name: value}}, "variables", OK, "*", "")
        for name, value in (
            *(("ASCEND_DUMP_SCENE", scene) for scene in ("lite_exception", "watcher", "")),
            *(("NPU_COLLECT_PATH", ""), ("ACL_DUMP_DATA", "0")),
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
        )
    ),
    ({"files": {"/pytest.ini": "[pytest]\n"}}, "required_plugins", WARNING, "*pytest.ini does not*", "add *"),
    *(
        ({"files": {"/pytest.ini": f"[pytest]\nrequired_plugins = pytest-npudump\n{more}"}}, *line)
        for more, line in (
            ("", ("required_plugins", OK, "pytest-npudump in *pytest.ini", "")),
            ("addopts = -p no:npudump\n", ("plugin", PROBLEM, "*: -p no:npudump in addopts of *", "take *")),
        )
    ),
    ({"free": (1 << 20, 1 << 20)}, "space", WARNING, "*0.0 GiB free*", "*"),
    ({"free": (1 << 40, 100)}, "space", WARNING, "*, 100 files", "*"),
    ({"free": (1 << 40, None)}, "space", OK, "*", ""),
]
"""What is changed of a machine on which all is well; then a line: its name, state, text and remedy."""


@pytest.mark.each("changes, name, state, text, remedy", LINES)
def test_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: Changes,
    name: str,
    *,
    state: str,
    text: str,
    remedy: str,
) -> None:
    machine = Machine(tmp_path / "machine", monkeypatch).change(changes)
    found = machine.line(name)
    assert found.state == state, found
    for one in machine.examine():
        assert bool(one.remedy) is (one.state != OK), one
        assert one.state in {OK, ABSENT, WARNING, PROBLEM}, one
    assert fnmatchcase(found.text, text.replace("[", "[[]")), found
    assert fnmatchcase(found.remedy, remedy), found
    assert not {"torch", "torch_npu", "mindspore"} & sys.modules.keys()


def test_areas_stand_together_and_only_what_is_not_there_is_not_ok(machine: Machine) -> None:
    findings = machine.examine()
    areas = [area for area, _ in groupby(findings, lambda finding: finding.area)]
    assert areas == ["software", "runtimes", "devices", "environment", "pytest", "dumping"]
    poor = {one.name: one.state for one in findings if one.state != OK}
    absent = ("MindSpore", "torch_npu", "mindspore", "required_plugins")
    assert poor == dict.fromkeys(absent, ABSENT)


def test_every_runtime_that_the_option_offers_is_asked(machine: Machine) -> None:
    """But for that of torch modules, which is wherever torch is."""
    (option,) = [option for option in OPTIONS if option.name == "runtime"]
    works = Probe(works=True, why="a device answers", soc="Ascend910B4")
    machine.probes = dict.fromkeys(option.choices, works)
    assert (*working(machine.examine()), "modules") == option.choices[3:]
    assert option.choices[:3] == ("auto", "npu", "npu-or-skip")


def test_a_machine_without_npu_has_the_emulator_and_no_warning(machine: Machine) -> None:
    machine.change({"files": NO_NPU, "environ": {"ASCEND_HOME_PATH": None}, "npu_smi": lambda: None} | NO_ACL)
    findings = machine.examine()
    assert working(findings) == ["emulator"]
    assert not [one for one in findings if one.state in (WARNING, PROBLEM)]


@pytest.mark.each("part", ["installed_version", "probe_runtime", "run_npu_smi", "os.access", "os.statvfs"])
def test_a_check_that_raises_is_a_line_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    machine = Machine(tmp_path / "machine", monkeypatch).change({"broken": part} | NO_ACL)
    findings = machine.examine()
    line = next(one for one in findings if one.name == "check")
    assert (line.state, line.text) == (PROBLEM, "this check failed: RuntimeError: burnt")
    assert line.remedy
    assert len(findings) > 8


def test_a_good_place_is_written_to_and_left_as_it_was(machine: Machine, tmp_path: Path) -> None:
    dumping = [one for one in machine.examine(tmp_path) if one.area == "dumping"]
    assert [(one.name, one.state) for one in dumping] == [("dump path", OK), ("write", OK), ("space", OK)]
    found = machine.line("write", tmp_path / "a" / "b")  # judged by the nearest folder
    assert found.text == f"a file could be written in {tmp_path}; b will be made"
    assert list(tmp_path.iterdir()) == [machine.root]


def test_names_that_cann_does_not_dump_into_are_problems(machine: Machine, tmp_path: Path) -> None:
    for name in ("with blank", "größe", "a~b", "x<y", "l" * 250 + "/" + "m" * 250):
        found = machine.line("dump path", tmp_path / name, "npudump_output in pytest.ini")
        assert (found.state, "--npudump-output" in found.remedy) == (PROBLEM, True)
        assert "(npudump_output in pytest.ini)" in found.text
    found = machine.line("dump path", tmp_path / "dumps", "npudump_output in pytest.ini")
    assert (found.state, found.text) == (OK, f"{tmp_path / 'dumps'} (npudump_output in pytest.ini)")


def test_a_place_that_cannot_be_written_is_a_problem_with_its_reason(
    machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "dumps").write_text("")
    for place, text in (
        (tmp_path / "dumps", f"{tmp_path / 'dumps'}: Not a directory"),
        (Path("/proc/dumps"), "/proc: *"),
    ):
        found = machine.line("write", place)
        assert (found.state, fnmatchcase(found.text, text)) == (PROBLEM, True), found


def test_files_that_cannot_be_read_are_no_driver(machine: Machine) -> None:
    machine.files.pop(DRIVER_FILE)
    file = machine.root / DRIVER_FILE[1:]
    file.mkdir(parents=True)
    assert machine.line("driver").state == WARNING
    file.rmdir()
    os.mkfifo(file)
    assert machine.line("driver").state == WARNING


ACL_MODULE = """
def get_soc_name():
    return "Ascend910B3"

class rt:
    get_device_count = staticmethod(lambda: (8, 0))
"""
TORCH_NPU = """
__version__ = "2.5.1"

class npu:
    is_available = staticmethod(lambda: {there})
    get_device_name = staticmethod(lambda device=None: "Ascend910B3")
"""


@pytest.mark.each(
    ("runtime", "module", "source", "found", "words"),
    [
        ("acl", "acl", f"print('a banner')\n{ACL_MODULE}", (8, "Ascend910B3"), "8 devices answer"),
        ("acl", "acl", "raise ImportError('libascendcl.so: cannot open')", None, "*libascendcl.so*"),
        ("acl", "acl", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", None, "*ended with -11:*"),
        ("acl", "acl", "import os; os._exit(3)", None, "*ended with 3: it printed nothing"),
        ("acl", "acl", "import os; os._exit(0)", None, "*it printed nothing"),
        ("acl", "acl", "x = 1", None, "*acl.py*"),
        ("acl", "acl", ACL_MODULE.replace("(8, 0)", "(0, 507033)"), None, "*no device answers*"),
        ("torch_npu", "torch_npu", TORCH_NPU.format(there=True), (0, "Ascend910B3"), "*"),
        ("torch_npu", "torch_npu", TORCH_NPU.format(there=False), None, "*finds no NPU*"),
        (
            "emulator",
            "onnx",
            "raise ImportError('No module named onnx')",
            None,
            "*'pytest-npudump[[]emulator]'*",
        ),
    ],
)
def test_a_runtime_is_asked_in_a_process_that_may_fail_in_any_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    runtime: str,
    module: str,
    source: str,
    found: tuple[int, str] | None,
    words: str,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / f"{module}.py").write_text(source)
    probe = probe_runtime(runtime)
    assert probe.works is bool(found)
    assert (probe.devices, probe.soc) == (found or (0, ""))
    assert fnmatchcase(probe.why, words), probe.why


def test_a_runtime_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(doctor, "SECONDS", 1.0)
    (tmp_path / "acl.py").write_text("import time; time.sleep(600)")
    assert probe_runtime("acl") == Probe(works=False, why="no answer within 1 seconds")


def test_mindspore_is_asked_for_the_device_it_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "data" / "mindspore_client"))
    assert probe_runtime("mindspore") == Probe(works=True, why="MindSpore 2.10.0 runs on CPU")


def test_an_interpreter_that_cannot_be_started_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nothing/python")
    assert "no process could be started" in probe_runtime("acl").why


def test_versions_come_from_the_metadata() -> None:
    assert installed_version("numpy") == metadata.version("numpy")
    assert installed_version("no-such-distribution") == ""


@pytest.fixture
def _no_cann(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ROOTS, "NPU_COLLECT_PATH", "NPU_COLLECT_PATH_EXE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_no_cann")
def test_this_machine_can_dump_with_the_emulator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table says below each line that is not good what to do; JSON goes to a file beside it."""
    target = tmp_path / "doctor.json"
    assert main(["doctor", "--dump-dir", str(tmp_path), "--json", str(target)]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert printed.startswith("software\n")
    assert [line for line in lines if line[:1].strip()][:3] == ["software", "runtimes", "devices"]
    version = metadata.version("onnxruntime")
    assert [line for line in lines if line.startswith(f"  ok       emulator: onnxruntime {version}, onnx ")]
    assert lines[-1].startswith("Runtimes that work: ")
    assert lines[-1].endswith("; a dump can be written.")
    for line, following in pairwise(lines):
        if line[2:].split(" ")[0] in {"absent", "warning", "problem"}:
            assert following.strip().startswith("-> "), line
    (space,) = [line for line in lines if ": space: " in line or " space: " in line]
    free = float(space.split("space: ")[1].split(" ")[0])
    assert free == pytest.approx(shutil.disk_usage(tmp_path).free / (1 << 30), rel=0.05, abs=0.1)
    data = json.loads(target.read_text())
    assert data["good"] is True
    assert [set(one) for one in data["findings"]] == [{"area", "name", "state", "text", "remedy"}] * len(
        data["findings"]
    )


@pytest.mark.usefixtures("_no_cann")
@pytest.mark.each(
    ("works", "folder", "words", "good"),
    [
        (False, "", "No runtime works here", False),
        (True, "with blank", "but a dump cannot be written", False),
        (True, "", "; a dump can be written", True),
    ],
)
def test_a_runtime_that_works_and_a_place_that_cann_takes_make_the_exit_code(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    works: bool,
    folder: str,
    words: str,
    good: bool,
) -> None:
    monkeypatch.setattr(doctor, "probe_runtime", lambda _: Probe(works=works, why="told"))
    code = 0 if good else 1
    assert main(["doctor", "--dump-dir", str(tmp_path / folder)]) == code
    assert words in capsys.readouterr().out.splitlines()[-1]
    assert main(["doctor", "--dump-dir", str(tmp_path / folder), "--json", "-"]) == code
    data = json.loads(capsys.readouterr().out)  # alone on standard output
    assert (data["good"], bool(data["runtimes"]), data["can_write"]) == (good, works, folder == "")
