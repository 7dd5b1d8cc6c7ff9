"""Machines that are not there: folders with the files CANN, the driver and containers leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_npudump.doctor.checks import DoctorFinding, System, examine
from pytest_npudump.runtime.registry import Probe

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


@dataclass
class Machine:
    """A machine to change and then to examine; as it is made, an Atlas server on which all is well."""

    root: Path
    files: dict[str, str] = field(default_factory=lambda: dict(FILES))
    environ: dict[str, str] = field(default_factory=lambda: {"ASCEND_HOME_PATH": HOME})
    versions: dict[str, str] = field(default_factory=lambda: dict(VERSIONS))
    probes: dict[str, Probe] = field(default_factory=lambda: {"acl": ACL, "emulator": EMULATOR})
    forbidden: tuple[str, ...] = ()
    npu_smi: Callable[[], str | None] = lambda: NPU_SMI
    free: tuple[int, int | None] = (1 << 40, 1 << 20)

    def system(self) -> System:
        for name, text in self.files.items():
            path = self.root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return System(
            root=self.root,
            environ=self.environ,
            version=self.versions.get,
            probe=lambda name: self.probes.get(name, NOT_INSTALLED),
            npu_smi=self.npu_smi,
            access=lambda path, _: str(path).removeprefix(str(self.root)) not in self.forbidden,
            free=lambda _: self.free,
        )

    def lines(
        self, area: str, place: Path | None = None, origin: str = "", tests: Path | None = None
    ) -> list[DoctorFinding]:
        """Return what is found in an area."""
        report = examine(self.system(), self.root if place is None else place, origin, tests)
        return [finding for finding in report.findings if finding.area == area]

    def line(self, name: str) -> DoctorFinding:
        (found,) = [one for one in examine(self.system(), self.root).findings if one.name == name]
        return found

    def without_npu(self) -> None:
        for name in FILES:
            if name.startswith(("/dev/", "/usr/", "/etc/")):
                self.files.pop(name)
        self.environ.clear()
        self.probes["acl"] = NO_ACL
        self.npu_smi = lambda: None


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


@pytest.fixture
def named() -> Callable[..., DoctorFinding]:
    """The one finding of a name."""

    def find(findings: tuple[DoctorFinding, ...] | list[DoctorFinding], name: str) -> DoctorFinding:
        (finding,) = [finding for finding in findings if finding.name == name]
        return finding

    return find
