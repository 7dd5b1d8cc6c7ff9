"""``npudump doctor``: what is installed, which runtimes work, and whether a dump can be written here.

A check yields lines: a name, a state, what was found, and where that is not good what to do. Whether a
runtime works is asked in a process of its own, which may hang or die where a driver is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from pytest_npudump.cli.common.output import present, screen
from pytest_npudump.cli.common.pytest_config import dump_place, loading
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
from pytest_npudump.errors import ConfigError, RuntimeUnavailableError
from pytest_npudump.language.text import number_of, wrapped
from pytest_npudump.runtime.inventory import parse_npu_smi, run_npu_smi
from pytest_npudump.runtime.registry import OURS, Examined, Probe, choose, load, offered, provider_of

_Line: TypeAlias = tuple[str, str, str, str] | tuple[str, str, str]

OK = "ok"
ABSENT = "absent"
WARNING = "warning"
PROBLEM = "problem"

ROOT = Path("/")
"""The machine's files."""
SECONDS = 60.0
"""Limit for a runtime's answer; the first call to a device after a start takes some seconds."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One line of the table.

    Attributes:
        area: what it belongs to: ``software``, ``runtimes``, ``devices``, ``environment``, ``pytest``
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


def run(arguments: argparse.Namespace) -> int:
    """Examine this machine and print what was found; 0 if a test could run under dump here, else 1."""
    place, origin = (arguments.dump_dir, "") if arguments.dump_dir else dump_place(Path.cwd())
    absolute = Path(os.path.abspath(place))  # noqa: PTH100 - links stay, as a path is written
    findings = examine(absolute, origin, Path.cwd())
    runtimes = [one.name for one in findings if one.area == "runtimes" and one.state == OK]
    can_write = all(one.state != PROBLEM for one in findings if one.area == "dumping")
    conclusion = "No runtime works here: no test with the marker can run."
    if runtimes:
        end = "a dump can be written" if can_write else "but a dump cannot be written"
        conclusion = f"Runtimes that work: {' and '.join(runtimes)}; {end}."
    good = bool(runtimes) and can_write
    told = {"good": good, "runtimes": runtimes, "can_write": can_write}
    present(
        arguments,
        lambda: {**told, "findings": [*map(asdict, findings)]},
        [*_lines(findings), "", conclusion],
    )
    return 0 if good else 1


def _lines(findings: Iterable[DoctorFinding]) -> Iterator[str]:
    """Yield a heading for each area, its findings with their states, and what to do."""
    for area, members in groupby(findings, lambda finding: finding.area):
        yield area
        for finding in members:
            yield from _below(f"  {finding.state:<9}", f"{finding.name}: {finding.text}")
            if finding.state != OK:
                yield from _below(f"{'':11}-> ", finding.remedy)


def _below(margin: str, text: str) -> Iterator[str]:
    """Yield a text behind a margin, on a terminal below each other."""
    columns = screen()
    first, *rest = [text] if columns is None else wrapped(text, columns - len(margin))
    yield margin + first
    yield from (" " * len(margin) + line for line in rest)


def examine(place: Path, origin: str, tests: Path) -> list[DoctorFinding]:
    """Look at the whole machine; never raises.

    Args:
        place: absolute path of the folder that dumps will go below.
        origin: what names that folder, for the table.
        tests: absolute path of the folder that pytest is started in.
    """
    findings: list[DoctorFinding] = []

    def devices() -> Iterator[_Line]:
        answers = any((one.area, one.name) == ("runtimes", "acl") and one.state != ABSENT for one in findings)
        return _devices(answers=answers)

    checks: tuple[tuple[str, Callable[[], Iterable[_Line]]], ...] = (
        ("software", _cann),
        ("software", _frameworks),
        ("runtimes", _runtimes),
        ("devices", _driver),
        ("devices", _npu_smi),
        ("devices", devices),
        ("environment", _environment),
        ("pytest", lambda: _gate(tests)),
        ("dumping", lambda: _dump_path(place, origin)),
        ("dumping", lambda: _written(place)),
    )
    for area, check in checks:
        try:
            for line in check():
                findings.append(DoctorFinding(area, *line))  # noqa: PERF401 - those before an error stay
        except Exception as error:  # noqa: BLE001, PERF203 - whatever is broken, the other lines count
            text = f"this check failed: {type(error).__name__}: {error}"
            findings.append(DoctorFinding(area, "check", PROBLEM, text, "report it, with this line"))
    return findings


def _at(path: str) -> Path:
    return ROOT / path.lstrip("/")


_PLACES = ("/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit")


def _cann() -> Iterator[_Line]:
    """Look for the CANN toolkit that the environment points at, and for one that it does not."""
    variable = next((name for name in ROOTS if os.environ.get(name)), None)
    if variable is None:
        unset = f"none of {', '.join(ROOTS)} is set"
        place = next((one for one in _PLACES if _at(f"{one}/set_env.sh").is_file()), None)
        if place:
            yield "CANN", WARNING, f"installed at {place}, but {unset}", f"source {place}/set_env.sh"
        else:
            remedy = f"install CANN to use an NPU; without it the rules of {DEFAULT_VERSION} count"
            yield "CANN", ABSENT, unset, remedy
        return
    home = os.environ[variable]
    version = installed_cann({variable: str(_at(home))})
    if version is None:
        remedy = "source set_env.sh of an installed CANN, or unset the variable"
        yield "CANN", WARNING, f"{variable}={home} has no version file", remedy
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


def installed_version(distribution: str) -> str:
    """Return the version of a Python distribution without importing it; "" where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _frameworks() -> Iterator[_Line]:
    """Look for torch_npu, TorchAir and MindSpore, without importing any of them."""
    torch_npu, torch = installed_version("torch_npu"), installed_version("torch")
    inside = torch_npu and f"the one inside torch_npu {torch_npu}"
    for name, found, package in (
        ("torch_npu", torch_npu and f"{torch_npu}, with torch {torch or 'missing'}", "torch-npu"),
        ("TorchAir", installed_version("torchair") or inside, "torch-npu"),
        ("MindSpore", installed_version("mindspore"), "mindspore"),
    ):
        if not found:
            yield name, ABSENT, "not installed in this Python", f"pip install {package}, if the tests use it"
        elif name == "torch_npu" and _release(torch_npu) != _release(torch):
            yield name, PROBLEM, found, f"pip install torch=={_release(torch_npu)}, torch_npu's release"
        else:
            yield name, OK, found


def _release(version: str) -> str:
    match = re.match(r"\d+\.\d+\.\d+|\d+\.\d+", version)
    return match.group() if match else version


def probe_runtime(name: str) -> Probe:
    """Ask the runtime ``name``, as ``--npudump-runtime`` takes it, in a child process; never raises."""
    # Not with -m, which looks in the current folder first: another checkout may lie there.
    code = (
        f"import sys; sys.path = [*filter(None, sys.path)]; from {__name__} import answer; answer({name!r})"
    )
    try:
        done = subprocess.run(  # noqa: S603 - this module, run by this interpreter
            [sys.executable, "-c", code],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Probe(works=False, why=f"no answer within {SECONDS:g} seconds")
    except OSError as error:
        return Probe(works=False, why=f"no process could be started to ask: {error}")
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        with suppress(ValueError, TypeError):
            return Probe(**json.loads(lines[-1]))
    reason = next(reversed(done.stderr.strip().splitlines()), "it printed nothing")
    return Probe(works=False, why=f"the process that asked ended with {done.returncode}: {reason[:300]}")


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


def _runtimes() -> Iterator[_Line]:
    for name in (*OURS, *sorted(offered())):
        provider = provider_of(name) if name in OURS else None
        ours = provider if isinstance(provider, Examined) else None
        if ours is None and name in OURS:
            continue  # what needs no device
        probe, blocking = probe_runtime(name), collecting(os.environ)
        text = probe.why
        if (ours is not None and ours.NPU) or probe.soc:
            text = f"{text}: {probe.soc or 'the SoC is not known'}"
        if not probe.works:
            yield name, ABSENT, probe.why, ours.REMEDY if ours else "ask the package that offers it"
        elif name == "acl" and blocking:
            text = f"{text}, but models dump nothing while {blocking[0]} is set"
            yield name, PROBLEM, text, f"unset {blocking[0]}"
        else:
            yield name, OK, text


def _driver() -> Iterator[_Line]:
    file, version = driver_version(lambda path: head(_at(path)))
    folder = file.removesuffix("/version.info")
    remedy = f"install the NPU driver to use an NPU; a container needs -v {folder}:{folder}:ro"
    if version:
        yield "driver", OK, f"{version} ({file})"
    elif _at(file).exists():
        yield "driver", WARNING, f"{file} has no version or cannot be read", remedy
    else:
        yield "driver", ABSENT, f"there is no {file}", remedy


def _npu_smi() -> Iterator[_Line]:
    """List the NPUs and their health by ``npu-smi info``."""
    try:
        output = run_npu_smi()
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


_MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
_USABLE = (
    "load the NPU driver, or start the container with {options}; a user outside of the files' group needs "
    "usermod -aG HwHiAiUser USER"
)


def _devices(*, answers: bool) -> Iterator[_Line]:
    """Look for the device files and the right to use them: all are not needed where a device answers."""
    dev = _at("/dev")
    npus = sorted((path.name for path in dev.glob("davinci[0-9]*")), key=lambda name: (len(name), name))
    names = (*(npus or ["davinci0"]), *_MANAGERS)
    # docker -v makes a directory of a path that the host does not have
    wrong = [name for name in names if (dev / name).is_dir() or not os.access(dev / name, os.R_OK | os.W_OK)]
    remedy = _USABLE.format(options=" ".join(f"--device /dev/{name}" for name in wrong))
    if answers or not wrong:
        yield "device files", OK, ", ".join(npus) or "no /dev/davinci*"
    elif not npus:
        yield "device files", ABSENT, "no NPU is visible here: no /dev/davinci*", remedy
    else:
        text = f"missing, or not readable and writable for this user: {', '.join(wrong)}"
        yield "device files", PROBLEM, text, remedy


_COLLECTING = "GE refuses every other dump (E10056) and aclmdlSetDump returns 0: models dump nothing"
_EFFECTS: dict[str, str] = {
    **dict.fromkeys(COLLECT_VARIABLES, _COLLECTING),
    "ASCEND_DUMP_SCENE": "an exception dump is on in every process, and the exception scene of a test is "
    "ignored",
    "ASCEND_DUMP_PATH": "exception dumps and printf of kernels go there, whatever dump_path says",
    "ASCEND_WORK_PATH": "exception dumps go there, unless ASCEND_DUMP_PATH is set too",
    "ACL_DUMP_DATA": "torch_npu opens a dump of its own from ./acl.json, and acl.mdl.init_dump() then "
    "returns 100002",
    "MINDSPORE_DUMP_CONFIG": "MindSpore dumps by this file in every process, beside what a test asks for",
    "MS_ACL_DUMP_CFG_PATH": "MindSpore ends every other dump: it calls set_dump and finalize_dump around "
    "each aclop kernel",
}
"""Variables that change where CANN, torch_npu or MindSpore dump, or whether they do, and how.

Sources: ``dump_manager.cpp`` and ``dump_config_converter.cpp`` of hicann/runtime, ``dump_manager.cc`` of
hicann/ge, ``npu_sys_ctrl.cpp`` of torch_npu, ``acl_utils.cc`` and ``dump_json_parser.cc`` of MindSpore.
"""
_VALUES = {"ASCEND_DUMP_SCENE": {*SCENE_TYPES} - {"lite_exception"}, "ACL_DUMP_DATA": {"1"}}
"""The values of variables that do so with some only."""


def _environment() -> Iterator[_Line]:
    """Describe the effect of each set variable on a dump."""
    given = {name: value for name in _EFFECTS if (value := os.environ.get(name))}
    told = {name: value for name, value in given.items() if value in _VALUES.get(name, {value})}
    for name, value in told.items():
        state = PROBLEM if name in COLLECT_VARIABLES else WARNING
        yield name, state, f"={value}: {_EFFECTS[name]}", f"unset {name}"
    if not told:
        yield "variables", OK, "none is set that changes a dump"


_UNSEEN = "where the plugin is not loaded, marked tests that take no fixture pass without a comparison"
_REQUIRE = "add required_plugins = pytest-npudump to pytest's configuration file"


def _gate(tests: Path) -> Iterator[_Line]:
    """Look whether pytest loads the plugin, and refuses to run without it."""
    file, required, blocked = loading(tests)
    if blocked:
        yield "plugin", PROBLEM, f"pytest does not load the plugin: {blocked}", "take that out"
    if required:
        yield "required_plugins", OK, f"{required} in {file}"
    elif file is None:
        yield "required_plugins", ABSENT, f"no configuration file of pytest here: {_UNSEEN}", _REQUIRE
    else:
        yield "required_plugins", WARNING, f"{file} does not name it: {_UNSEEN}", _REQUIRE


_BELOW = 200
"""Bytes that the folders of a test add to the place: its name, a digest, the run, a capture."""
_WANTED_BYTES = 1 << 30
_WANTED_FILES = 20_000
_ELSEWHERE = "choose another folder with --npudump-output (and --dump-dir here), or --basetemp"


def _dump_path(place: Path, origin: str) -> Iterator[_Line]:
    """Judge the folder as CANN judges a ``dump_path`` below it."""
    name = os.fsencode(place)
    text = f"{place} ({origin})" if origin else str(place)
    if not PATH_CHARACTERS.fullmatch(name):
        allowed = "letters, digits and -=[];\\,./!@#$%^&*()_+{}:?"
        trouble = f"GE dumps nothing into a path that has more than {allowed}"
        yield "dump path", PROBLEM, f"{text}: {trouble}", _ELSEWHERE
    elif len(name) > MAX_BYTES - _BELOW:
        trouble = f"{len(name)} bytes, and CANN takes {MAX_BYTES} for the whole path of a dump"
        yield "dump path", PROBLEM, f"{text}: {trouble}", _ELSEWHERE
    else:
        yield "dump path", OK, text


def _written(place: Path) -> Iterator[_Line]:
    """Write to the folder, or to the nearest above it that is there, and look for space."""
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
    status = os.statvfs(existing)
    nbytes, files = status.f_bavail * status.f_frsize, status.f_favail
    counts = bool(status.f_files)  # some file systems do not count files
    text = f"{nbytes / (1 << 30):.1f} GiB free" + (f", {files} files" if counts else "")
    if nbytes < _WANTED_BYTES or (counts and files < _WANTED_FILES):
        remedy = "free some, or lower npudump_dump_limit (1GiB: the tensors of one failing test)"
        yield "space", WARNING, text, remedy
    else:
        yield "space", OK, text
