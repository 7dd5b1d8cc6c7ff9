"""All checks, in the order of the table; a check that fails itself is a line of the table too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.doctor import devices, environment, place, software
from pytest_npudump.doctor.finding import ABSENT, OK, PROBLEM, Finding, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pytest_npudump.doctor.probe import Probe
    from pytest_npudump.doctor.system import System

RUNTIMES = ("acl", "emulator")


def examine(system: System, directory: Path) -> Report:
    """Look at the whole machine; never raises.

    Args:
        system: the machine.
        directory: absolute path of the folder that dumps will go below.
    """
    probes: dict[str, Probe] = {}
    findings: list[Finding] = []
    checks: tuple[tuple[str, Callable[[], Iterable[Finding]]], ...] = (
        (software.AREA, lambda: software.check_cann(system)),
        (software.AREA, lambda: software.check_frameworks(system)),
        (software.AREA, lambda: software.check_extras(system)),
        (devices.AREA, lambda: devices.check_container(system)),
        (devices.AREA, lambda: devices.check_driver(system)),
        (devices.AREA, lambda: devices.check_npu_smi(system)),
        ("runtimes", lambda: _runtimes(system, probes)),
        (devices.AREA, lambda: devices.check_device_files(system, answers=_works(probes, "acl"))),
        (environment.AREA, lambda: environment.check_environment(system)),
        (place.AREA, lambda: place.check_place(system, directory)),
    )
    for area, check in checks:
        findings += _guarded(area, check)
    areas = list(dict.fromkeys(area for area, _ in checks))
    findings.sort(key=lambda finding: areas.index(finding.area))
    dumping = [finding for finding in findings if finding.area == place.AREA]
    working = [f.name for f in findings if f.area == "runtimes" and f.state == OK]
    return Report(
        tuple(findings), tuple(working), can_write=all(finding.state != PROBLEM for finding in dumping)
    )


def _guarded(area: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    found: list[Finding] = []
    try:
        found += check()
    except Exception as error:  # noqa: BLE001 - whatever a broken machine does, the other lines count
        text = f"this check failed: {type(error).__name__}: {error}"
        found.append(Finding(area, "check", PROBLEM, text, "report it, with this line"))
    return found


def _works(probes: dict[str, Probe], name: str) -> bool:
    return name in probes and probes[name].works


def _runtimes(system: System, probes: dict[str, Probe]) -> Iterable[Finding]:
    for name in RUNTIMES:
        probes[name] = system.probe(name)
        yield _acl(system, probes[name]) if name == "acl" else _emulator(probes[name])


def _acl(system: System, probe: Probe) -> Finding:
    if not probe.works:
        remedy = "source set_env.sh of CANN on a machine with an NPU; until then use the emulator"
        return Finding("runtimes", "acl", ABSENT, probe.why, remedy)
    blocking = [name for name in environment.BLOCKING if system.environ.get(name)]
    text = f"{probe.why}: {probe.soc or 'the SoC is not known'}"
    if blocking:
        text += f", but models dump nothing while {blocking[0]} is set"
        return Finding("runtimes", "acl", PROBLEM, text, f"unset {blocking[0]}")
    return Finding("runtimes", "acl", OK, text)


def _emulator(probe: Probe) -> Finding:
    if probe.works:
        return Finding("runtimes", "emulator", OK, probe.why)
    remedy = "pip install 'pytest-npudump[emulator]', to run tests without an NPU"
    return Finding("runtimes", "emulator", ABSENT, probe.why, remedy)
