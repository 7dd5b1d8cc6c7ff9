"""All checks, in the order of the table; a check that fails itself is a line of the table too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.doctor import devices, dump_path, environment, gate, software
from pytest_npudump.doctor.finding import ABSENT, OK, PROBLEM, Finding, Report
from pytest_npudump.language.translation import mark, said
from pytest_npudump.runtime.registry import OURS, Examined, provider_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pytest_npudump.doctor.system import System
    from pytest_npudump.runtime.registry import Probe

_AREA = mark("runtimes")
_OTHERS_REMEDY = said("ask the package that offers it")


def examine(system: System, directory: Path, origin: str = "", tests: Path | None = None) -> Report:
    """Look at the whole machine; never raises.

    Args:
        system: the machine.
        directory: absolute path of the folder that dumps will go below.
        origin: what names that folder, for the table.
        tests: absolute path of the folder that pytest is started in; None to leave pytest out.
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
        (_AREA, lambda: _runtimes(system, probes)),
        (devices.AREA, lambda: devices.check_device_files(system, answers=_works(probes, "acl"))),
        (environment.AREA, lambda: environment.check_environment(system)),
        (gate.AREA, lambda: gate.check_gate(system, tests) if tests is not None else ()),
        (dump_path.AREA, lambda: dump_path.check_place(system, directory, origin)),
    )
    for area, check in checks:
        findings += _guarded(area, check)
    areas = list(dict.fromkeys(area for area, _ in checks))
    findings.sort(key=lambda finding: areas.index(finding.area))
    dumping = [finding for finding in findings if finding.area == dump_path.AREA]
    working = [f.name for f in findings if f.area == _AREA and f.state == OK]
    return Report(
        tuple(findings), tuple(working), can_write=all(finding.state != PROBLEM for finding in dumping)
    )


def _guarded(area: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    found: list[Finding] = []
    try:
        found += check()
    except Exception as error:  # noqa: BLE001 - whatever a broken machine does, the other lines count
        text = said("this check failed: {kind}: {error}", kind=type(error).__name__, error=error)
        found.append(Finding(area, mark("check"), PROBLEM, text, said("report it, with this line")))
    return found


def _works(probes: dict[str, Probe], name: str) -> bool:
    return name in probes and probes[name].works


def _runtimes(system: System, probes: dict[str, Probe]) -> Iterable[Finding]:
    for name in (*OURS, *sorted(system.offered())):
        probes[name] = system.probe(name)
        yield _runtime(system, name, probes[name])


def _runtime(system: System, name: str, probe: Probe) -> Finding:
    provider = provider_of(name) if name in OURS else None
    ours = provider if isinstance(provider, Examined) else None
    if not probe.works:
        return Finding(_AREA, name, ABSENT, probe.why, ours.REMEDY if ours else _OTHERS_REMEDY)
    on_npu = ours is not None and ours.NPU
    text = probe.why
    if on_npu or probe.soc:
        text = said("{why}: {soc}", why=text, soc=probe.soc or said("the SoC is not known"))
    blocking = [variable for variable in environment.BLOCKING if system.environ.get(variable)]
    if name == "acl" and blocking:
        text = said("{text}, but models dump nothing while {name} is set", text=text, name=blocking[0])
        return Finding(_AREA, name, PROBLEM, text, f"unset {blocking[0]}")
    return Finding(_AREA, name, OK, text)
