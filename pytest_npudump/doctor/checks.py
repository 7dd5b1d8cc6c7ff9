"""All checks, in the order of the table; a check that fails itself is a line of the table too.

A check yields lines: a name, a state, what was found, and where that is not good what to do. Whether a
runtime works is asked in a process of its own, which may hang or die where a driver is broken.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

from pytest_npudump.config.acl_keys import MAX_BYTES, PATH_CHARACTERS, SCENE_TYPES
from pytest_npudump.config.cann import (
    COLLECT_VARIABLES,
    DEFAULT_VERSION,
    ROOTS,
    collecting,
    driver_version,
    head,
    installed_cann,
    profile_for,
    profile_warnings,
)
from pytest_npudump.doctor.pytest_config import loading
from pytest_npudump.errors import ConfigError, RuntimeUnavailableError
from pytest_npudump.language.text import number_of
from pytest_npudump.runtime.inventory import VISIBLE, parse_npu_smi, run_npu_smi
from pytest_npudump.runtime.registry import OURS, Examined, Probe, choose, load, offered, provider_of

_Line: TypeAlias = tuple[str, str, str, str] | tuple[str, str, str]


OK = "ok"
ABSENT = "absent"
WARNING = "warning"
PROBLEM = "problem"

SECONDS = 60
"""Limit for a runtime's answer; the first call to a device after a start takes some seconds."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One line of the table.

    Attributes:
        area: what it belongs to: ``software``, ``devices``, ``runtimes``, ``environment``, ``pytest``
            or ``dumping``.
        name: what was looked at.
        state: ``ok``; ``absent``, which matters only to those who want it; ``warning``; ``problem``.
        text: what was found.
        remedy: what to do; empty only where the state is ``ok``.
    """

    area: str
    name: str
    state: str
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Findings of ``npudump doctor``.

    Attributes:
        findings: the lines, in the order of the table.
        runtimes: names of the runtimes that work here.
        can_write: whether a dump can be written.
    """

    findings: tuple[DoctorFinding, ...]
    runtimes: tuple[str, ...]
    can_write: bool

    @property
    def good(self) -> bool:
        """Return whether at least one runtime works and a dump can be written."""
        return bool(self.runtimes) and self.can_write

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``npudump doctor --json`` writes."""
        return {
            "good": self.good,
            "runtimes": list(self.runtimes),
            "can_write": self.can_write,
            "findings": [asdict(finding) for finding in self.findings],
        }


def probe_runtime(name: str, *, seconds: float = SECONDS) -> Probe:
    """Ask the runtime ``name``, as ``--npudump-runtime`` takes it, in a child process; never raises."""
    # Not with -m, which looks in the current folder first: another checkout may lie there.
    code = (
        f"import sys; sys.path = [*filter(None, sys.path)]; from {__name__} import answer; answer({name!r})"
    )
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(  # noqa: S603 - this module, run by this interpreter
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return Probe(works=False, why=f"no answer within {seconds:g} seconds")
    except OSError as error:
        return Probe(works=False, why=f"no process could be started to ask: {error}")
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        with suppress(ValueError, TypeError):
            return Probe(**json.loads(lines[-1]))
    reason = next(reversed(done.stderr.strip().splitlines()), "it printed nothing")
    ended = f"ended with {done.returncode}"
    if done.returncode < 0:
        with suppress(ValueError):
            ended = f"was killed by {signal.Signals(-done.returncode).name}"
    return Probe(works=False, why=f"the process that asked {ended}: {reason[:300]}")


@dataclass(frozen=True, slots=True)
class System:
    """The machine.

    Attributes:
        root: where ``/`` is.
        environ: the environment variables.
        version: gives the version of an installed Python distribution, None where it is not installed.
        probe: asks a runtime whether it works.
        offered: gives the names of the runtimes of other packages.
        npu_smi: gives what ``npu-smi info`` prints; None where there is no such program. Raises OSError where
            it fails, with its reason.
        access: :func:`os.access`.
        free: gives the free bytes of the file system that a directory is on, and the free files; None where
            it does not count files.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    version: Callable[[str], str | None] = field(default_factory=lambda: installed_version)
    probe: Callable[[str], Probe] = probe_runtime
    offered: Callable[[], Collection[str]] = offered
    npu_smi: Callable[[], str | None] = field(default_factory=lambda: run_npu_smi)
    access: Callable[[Path, int], bool] = os.access
    free: Callable[[Path], tuple[int, int | None]] = field(default_factory=lambda: free_space)

    def at(self, path: str) -> Path:
        """Return the path that stands for the absolute ``path``."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str:
        """Return the first 64 KiB of a file; "" where it cannot be read."""
        return head(self.at(path))


def installed_version(distribution: str) -> str | None:
    """Return the version of a Python distribution without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def free_space(directory: Path) -> tuple[int, int | None]:
    """Return free bytes and free files of the file system ``directory`` is on, as this user may use them."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize, status.f_favail if status.f_files else None


_PLACES = ("/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit")
_MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
_CONTAINER_CGROUP = re.compile(r"docker|kubepods|containerd|libpod|lxc", re.IGNORECASE)
_BELOW = 200
"""Bytes that the folders of a test add to the place: its name, a digest, the run, a capture."""
_WANTED_BYTES = 1 << 30
_WANTED_FILES = 20_000
_ELSEWHERE = "choose another folder with --npudump-output (and --dump-dir here), or --basetemp"
_UNSEEN = "where the plugin is not loaded, marked tests that take no fixture pass without a comparison"
_REQUIRE = "add required_plugins = pytest-npudump to pytest's configuration file"
_COLLECTING = "GE refuses every other dump (E10056) and aclmdlSetDump returns 0: models dump nothing"
_EFFECTS: dict[str, tuple[str, Callable[[str], object], str]] = {
    **dict.fromkeys(COLLECT_VARIABLES, (PROBLEM, bool, _COLLECTING)),
    "ASCEND_DUMP_SCENE": (
        WARNING,
        lambda value: value in SCENE_TYPES and value != "lite_exception",
        "an exception dump is on in every process, and the exception scene of a test is ignored",
    ),
    "ASCEND_DUMP_PATH": (
        WARNING,
        bool,
        "exception dumps and printf of kernels go there, whatever dump_path says",
    ),
    "ASCEND_WORK_PATH": (WARNING, bool, "exception dumps go there, unless ASCEND_DUMP_PATH is set too"),
    "ACL_DUMP_DATA": (
        WARNING,
        lambda value: value == "1",
        "torch_npu opens a dump of its own from ./acl.json, and acl.mdl.init_dump() then returns 100002",
    ),
    "MINDSPORE_DUMP_CONFIG": (
        WARNING,
        bool,
        "MindSpore dumps by this file in every process, beside what a test asks for",
    ),
    "MS_ACL_DUMP_CFG_PATH": (
        WARNING,
        bool,
        "MindSpore ends every other dump: it calls set_dump and finalize_dump around each aclop kernel",
    ),
    VISIBLE: (
        WARNING,
        lambda value: not re.fullmatch(r"\d+(,\d+)*", value.replace(" ", "")),
        "no list of device ids, so that no device may be visible",
    ),
}
"""Variables that change where CANN, torch_npu or MindSpore dump, or whether they do: a state, when, and how.

Sources: ``dump_manager.cpp`` and ``dump_config_converter.cpp`` of hicann/runtime, ``dump_manager.cc`` of
hicann/ge, ``npu_sys_ctrl.cpp`` of torch_npu, ``acl_utils.cc`` and ``dump_json_parser.cc`` of MindSpore.
"""


@dataclass(frozen=True, slots=True)
class _Examination:
    """Examination under way, with the answers of runtimes so far."""

    system: System
    place: Path
    origin: str
    tests: Path | None
    probes: dict[str, Probe] = field(default_factory=dict)


def examine(system: System, directory: Path, origin: str = "", tests: Path | None = None) -> Report:
    """Look at the whole machine; never raises.

    Args:
        system: the machine.
        directory: absolute path of the folder that dumps will go below.
        origin: what names that folder, for the table.
        tests: absolute path of the folder that pytest is started in; None to leave pytest out.
    """
    examination = _Examination(system, directory, origin, tests)
    findings: list[DoctorFinding] = []
    for area, check in _CHECKS:
        try:
            for line in check(examination):
                findings.append(DoctorFinding(area, *line))  # noqa: PERF401 - those before an error stay
        except Exception as error:  # noqa: BLE001, PERF203 - whatever is broken, the other lines count
            text = f"this check failed: {type(error).__name__}: {error}"
            findings.append(DoctorFinding(area, "check", PROBLEM, text, "report it, with this line"))
    areas = list(dict.fromkeys(area for area, _ in _CHECKS))
    findings.sort(key=lambda finding: areas.index(finding.area))
    working = tuple(one.name for one in findings if one.area == "runtimes" and one.state == OK)
    can_write = all(one.state != PROBLEM for one in findings if one.area == "dumping")
    return Report(tuple(findings), working, can_write=can_write)


def _cann(examination: _Examination) -> Iterator[_Line]:
    """Look for the CANN toolkit that the environment points at, and for one that it does not."""
    system = examination.system
    variable = next((name for name in ROOTS if system.environ.get(name)), None)
    if variable is None:
        names = ", ".join(ROOTS)
        place = next((one for one in _PLACES if system.at(f"{one}/set_env.sh").is_file()), None)
        if place:
            text = f"installed at {place}, but none of {names} is set"
            yield "CANN", WARNING, text, f"source {place}/set_env.sh"
        else:
            remedy = f"install CANN to use an NPU; without it the rules of {DEFAULT_VERSION} count"
            yield "CANN", ABSENT, f"none of {names} is set", remedy
        return
    home = system.environ[variable]
    version = installed_cann({variable: str(system.at(home))})
    if version is None:
        gone = "does not exist" if not system.at(home).is_dir() else "has no version file"
        remedy = "source set_env.sh of an installed CANN, or unset the variable"
        yield "CANN", WARNING, f"{variable}={home} {gone}", remedy
        return
    text = f"{version} ({variable}={home})"
    try:
        warning = "".join(profile_warnings(version))
        rules = f"acl.json is checked by the rules of {profile_for(version)}"
    except ConfigError as error:
        warning = str(error)
    if warning:
        yield "CANN", WARNING, f"{text}; {warning}", "check a configuration on the device"
    else:
        yield "CANN", OK, f"{text}; {rules}"


def _frameworks(examination: _Examination) -> Iterator[_Line]:
    """Look for torch_npu, TorchAir and MindSpore, without importing any of them."""
    version = examination.system.version
    torch_npu, torch = version("torch_npu"), version("torch")
    inside = f"the one inside torch_npu {torch_npu}" if torch_npu else None
    for name, found, package in (
        ("torch_npu", torch_npu and f"{torch_npu}, with torch {torch}", "torch-npu"),
        ("TorchAir", version("torchair") or inside, "torch-npu"),
        ("MindSpore", version("mindspore"), "mindspore"),
    ):
        if not found:
            yield name, ABSENT, "not installed in this Python", f"pip install {package}, if the tests use it"
        elif name == "torch_npu" and _release(torch_npu or "") != _release(torch or ""):
            yield name, PROBLEM, found, f"pip install torch=={_release(torch_npu or '')}, torch_npu's release"
        else:
            yield name, OK, found


def _release(version: str) -> str:
    match = re.match(r"\d+\.\d+\.\d+|\d+\.\d+", version)
    return match.group() if match else version


def _container(system: System) -> str:
    """Return the sign that this is a container; "" outside of one."""
    for path in ("/.dockerenv", "/run/.containerenv"):
        if system.at(path).exists():
            return path
    if _CONTAINER_CGROUP.search(system.read("/proc/1/cgroup")):
        return "/proc/1/cgroup"
    return "KUBERNETES_SERVICE_HOST" if system.environ.get("KUBERNETES_SERVICE_HOST") else ""


def _driver(examination: _Examination) -> Iterator[_Line]:
    """Report whether this is a container, into which files and the driver are handed, and find the driver."""
    system = examination.system
    sign = _container(system)
    yield "container", OK, f"yes ({sign})" if sign else "no"
    file, version = driver_version(system.read)
    remedy = "install the NPU driver and firmware, to use an NPU"
    if sign:
        folder = file.removesuffix("/version.info")
        remedy = f"start the container with -v {folder}:{folder}:ro"
    if version:
        yield "driver", OK, f"{version} ({file})"
    elif system.at(file).exists():
        yield "driver", WARNING, f"{file} has no version or cannot be read", remedy
    else:
        yield "driver", ABSENT, f"there is no {file}", remedy


def _npu_smi(examination: _Examination) -> Iterator[_Line]:
    """List the NPUs and their health by ``npu-smi info``."""
    try:
        output = examination.system.npu_smi()
    except OSError as error:
        yield "npu-smi", WARNING, f"npu-smi info fails: {error}", "run npu-smi info by hand"
        return
    npus = parse_npu_smi(output or "")
    names = ", ".join(sorted({npu.name for npu in npus}))
    health = ", ".join(sorted({npu.health for npu in npus} - {"OK"})) or "OK"
    text = f"{number_of(len(npus), 'NPU')}: {names}; health {health}"
    if output is None:
        remedy = "it comes with the driver; in a container mount /usr/local/bin/npu-smi and /usr/local/dcmi"
        yield "npu-smi", ABSENT, "not on PATH", remedy
    elif not npus:
        yield "npu-smi", WARNING, "npu-smi info lists no NPU", "run npu-smi info by hand"
    elif health != "OK":
        yield "npu-smi", WARNING, text, "see npu-smi info -t health; results of an ill NPU cannot be trusted"
    else:
        yield "npu-smi", OK, text


def _runtimes(examination: _Examination) -> Iterator[_Line]:
    system = examination.system
    for name in (*OURS, *sorted(system.offered())):
        provider = provider_of(name) if name in OURS else None
        if provider is not None and not isinstance(provider, Examined):
            continue  # what needs no device
        examination.probes[name] = probe = system.probe(name)
        ours = provider if isinstance(provider, Examined) else None
        text = probe.why
        if (ours is not None and ours.NPU) or probe.soc:
            text = f"{text}: {probe.soc or 'the SoC is not known'}"
        blocking = collecting(system.environ)
        if not probe.works:
            yield name, ABSENT, probe.why, ours.REMEDY if ours else "ask the package that offers it"
        elif name == "acl" and blocking:
            text = f"{text}, but models dump nothing while {blocking[0]} is set"
            yield name, PROBLEM, text, f"unset {blocking[0]}"
        else:
            yield name, OK, text


def _device_files(examination: _Examination) -> Iterator[_Line]:
    """Look for the device files and the right to use them.

    Where a device answers pyACL what is missing is not needed (``/dev/devmm_svm`` on some boards, say).
    """
    system = examination.system
    dev = system.at("/dev")
    found = {path.name: path for path in dev.iterdir()} if dev.is_dir() else {}
    numbers = sorted(int(name[7:]) for name in found if re.fullmatch("davinci[0-9]+", name))
    npus = [f"davinci{number}" for number in numbers]
    names = [*(npus or ["davinci0"]), *_MANAGERS]
    allowed = os.R_OK | os.W_OK
    fit = {name for name, path in found.items() if not path.is_dir() and system.access(path, allowed)}
    wrong = [name for name in names if name not in fit]
    probe = examination.probes.get("acl")
    if not wrong or (probe is not None and probe.works):
        missing = f"; a device answers without {', '.join(wrong)}" if wrong else ""
        yield "device files", OK, f"{', '.join(npus) or 'no /dev/davinci*'}{missing}"
        return
    options = " ".join(f"--device /dev/{name}" for name in wrong)
    remedy = f"start the container with {options}" if _container(system) else "load the NPU driver"
    if found.keys() & {*wrong}:  # docker -v makes a directory of a path that the host does not have
        remedy += ", and add the user to the group of the files: usermod -aG HwHiAiUser USER"
    if not found.keys() & {*names}:
        yield "device files", ABSENT, "no NPU is visible here: no /dev/davinci*", remedy
    else:
        text = f"missing, or not readable and writable for this user: {', '.join(wrong)}"
        yield "device files", PROBLEM, text, remedy


def _environment(examination: _Examination) -> Iterator[_Line]:
    """Describe the effect of each set variable on a dump."""
    environ = examination.system.environ
    told = [name for name in _EFFECTS if name in environ and _EFFECTS[name][1](environ[name])]
    for name in told:
        state, _, effect = _EFFECTS[name]
        yield name, state, f"={environ[name]}: {effect}", f"unset {name}"
    if not told:
        yield "variables", OK, "none is set that changes a dump"


def _gate(examination: _Examination) -> Iterator[_Line]:
    """Look whether pytest loads the plugin, and refuses to run without it."""
    if examination.tests is None:
        return
    file, required, blocked = loading(examination.tests, examination.system.environ)
    if blocked:
        yield "plugin", PROBLEM, f"pytest does not load the plugin: {blocked}", "take that out"
    if required:
        yield "required_plugins", OK, f"{required} in {file}"
    elif file is None:
        yield "required_plugins", ABSENT, f"no configuration file of pytest here: {_UNSEEN}", _REQUIRE
    else:
        yield "required_plugins", WARNING, f"{file} does not name it: {_UNSEEN}", _REQUIRE


def _dump_path(examination: _Examination) -> Iterator[_Line]:
    """Judge the folder as CANN judges a ``dump_path`` below it."""
    name = os.fsencode(examination.place)
    text = f"{examination.place} ({examination.origin})" if examination.origin else str(examination.place)
    trouble = ""
    if not PATH_CHARACTERS.fullmatch(name):
        allowed = "letters, digits and -=[];\\,./!@#$%^&*()_+{}:?"
        trouble = f"GE dumps nothing into a path that has more than {allowed}"
    elif len(name) > MAX_BYTES - _BELOW:
        trouble = f"{len(name)} bytes, and CANN takes {MAX_BYTES} for the whole path of a dump"
    if trouble:
        yield "dump path", PROBLEM, f"{text}: {trouble}", _ELSEWHERE
    else:
        yield "dump path", OK, text


def _written(examination: _Examination) -> Iterator[_Line]:
    """Write to the folder, or to the nearest above it that is there, and look for space."""
    place = examination.place
    existing = next(path for path in (place, *place.parents) if path.exists())
    made = "" if existing == place else f"; {place.name} will be made"
    try:
        with tempfile.NamedTemporaryFile(prefix="npudump-doctor-", dir=existing) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        yield "write", PROBLEM, f"{existing}: {error.strerror or error}", _ELSEWHERE
    else:
        yield "write", OK, f"a file could be written in {existing}{made}"
    nbytes, files = examination.system.free(existing)
    text = f"{nbytes / (1 << 30):.1f} GiB free" + ("" if files is None else f", {files} files")
    if nbytes < _WANTED_BYTES or (files is not None and files < _WANTED_FILES):
        remedy = "free some, or lower npudump_dump_limit (1GiB: the tensors of one failing test)"
        yield "space", WARNING, text, remedy
    else:
        yield "space", OK, text


_CHECKS: tuple[tuple[str, Callable[[_Examination], Iterable[_Line]]], ...] = (
    ("software", _cann),
    ("software", _frameworks),
    ("devices", _driver),
    ("devices", _npu_smi),
    ("runtimes", _runtimes),
    ("devices", _device_files),
    ("environment", _environment),
    ("pytest", _gate),
    ("dumping", _dump_path),
    ("dumping", _written),
)


def answer(name: str) -> None:
    """Print the answer of the runtime ``name`` for :func:`probe_runtime`, which has started this process."""
    provider = provider_of(name)
    try:
        if isinstance(provider, Examined):
            probe = provider.probe()
        else:
            soc = load(choose(name), 0).producer().get("soc", "")
            probe = Probe(works=True, why="it can be loaded", soc=soc)
    except RuntimeUnavailableError as error:
        probe = Probe(works=False, why=str(error))
    sys.stdout.write("\n" + json.dumps(asdict(probe)) + "\n")
