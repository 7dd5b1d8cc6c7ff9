"""The driver, ``npu-smi``, and the device files a process needs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from pytest_npudump.config.cann import driver_version
from pytest_npudump.devices.npu_smi import parse_npu_smi
from pytest_npudump.doctor.finding import ABSENT, OK, PROBLEM, WARNING, Finding
from pytest_npudump.language.translation import mark, said

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.doctor.system import System

AREA = mark("devices")
_MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
_NPU = re.compile(r"davinci[0-9]+")
_CONTAINER_CGROUP = re.compile(r"docker|kubepods|containerd|libpod|lxc", re.IGNORECASE)


def container(system: System) -> str:
    """Return what says that this is a container, "" outside of one."""
    for path in ("/.dockerenv", "/run/.containerenv"):
        if system.at(path).exists():
            return path
    if _CONTAINER_CGROUP.search(system.read("/proc/1/cgroup")):
        return "/proc/1/cgroup"
    if system.environ.get("KUBERNETES_SERVICE_HOST"):
        return "KUBERNETES_SERVICE_HOST"
    return ""


def check_container(system: System) -> Iterator[Finding]:
    """Say whether this is a container: device files and the driver are handed into one."""
    sign = container(system)
    yield Finding(AREA, mark("container"), OK, said("yes ({sign})", sign=sign) if sign else said("no"))


def check_driver(system: System) -> Iterator[Finding]:
    """Look for the driver where ``/etc/ascend_install.info`` says, else in ``/usr/local/Ascend``."""
    file, version = driver_version(system.read)
    if version:
        yield Finding(AREA, mark("driver"), OK, f"{version} ({file})")
        return
    folder = file.removesuffix("/version.info")
    remedy = said("install the NPU driver and firmware, to use an NPU")
    if container(system):
        remedy = said("start the container with -v {folder}:{folder}:ro", folder=folder)
    if system.at(file).exists():
        yield Finding(
            AREA, mark("driver"), WARNING, said("{file} has no version or cannot be read", file=file), remedy
        )
    else:
        yield Finding(AREA, mark("driver"), ABSENT, said("there is no {file}", file=file), remedy)


def check_npu_smi(system: System) -> Iterator[Finding]:
    """Have ``npu-smi info`` list the NPUs and their health."""
    try:
        output = system.npu_smi()
    except OSError as error:
        remedy = said("run npu-smi info by hand; the driver or the right to use it is missing")
        yield Finding(AREA, "npu-smi", WARNING, said("npu-smi info fails: {error}", error=error), remedy)
        return
    if output is None:
        remedy = said(
            "it comes with the driver; in a container mount /usr/local/bin/npu-smi and /usr/local/dcmi"
        )
        yield Finding(AREA, "npu-smi", ABSENT, said("not on PATH"), remedy)
        return
    npus = parse_npu_smi(output)
    if not npus:
        yield Finding(
            AREA, "npu-smi", WARNING, said("npu-smi info lists no NPU"), said("run npu-smi info by hand")
        )
        return
    ill = sorted({npu.health for npu in npus if npu.health != "OK"})
    text = said("{count} NPUs: {names}", count=len(npus), names=", ".join(sorted({npu.name for npu in npus})))
    if ill:
        remedy = said("see npu-smi info -t health -i ID; results of an ill NPU cannot be trusted")
        yield Finding(
            AREA, "npu-smi", WARNING, said("{text}; health {ill}", text=text, ill=", ".join(ill)), remedy
        )
        return
    yield Finding(AREA, "npu-smi", OK, said("{text}; health OK", text=text))


def check_device_files(system: System, *, answers: bool) -> Iterator[Finding]:
    """Look for the device files and the right to use them.

    Args:
        system: the machine.
        answers: whether a device answers pyACL; then what is missing here is not needed (on a board that
            has no ``/dev/devmm_svm``, say).
    """
    npus = _npus(system)
    names = [*npus, *_MANAGERS] if npus else ["davinci0", *_MANAGERS]
    wrong = {name: trouble for name in names if (trouble := _trouble(system, system.at(f"/dev/{name}")))}
    if not wrong or answers:
        missing = said("; a device answers without {wrong}", wrong=", ".join(wrong)) if wrong else ""
        yield Finding(
            AREA,
            mark("device files"),
            OK,
            said("{files}{missing}", files=", ".join(npus) or "no /dev/davinci*", missing=missing),
        )
    elif len(wrong) == len(names) and set(wrong.values()) == {"missing"}:
        text = said("no /dev/davinci*, no /dev/davinci_manager: no NPU is visible here")
        yield Finding(AREA, mark("device files"), ABSENT, text, _hand_in(system, names))
    else:
        yield from (_device_file(system, name, trouble) for name, trouble in wrong.items())


def _npus(system: System) -> list[str]:
    try:
        names = [path.name for path in system.at("/dev").iterdir() if _NPU.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(names, key=lambda name: int(name.removeprefix("davinci")))


def _trouble(system: System, path: Path) -> str:
    if not path.exists():
        return "missing"
    if path.is_dir():
        return said("a directory, not a device")  # what docker -v makes of a path that the host does not have
    if not system.access(path, os.R_OK | os.W_OK):
        return said("not readable and writable for this user")
    return ""


def _device_file(system: System, name: str, trouble: str) -> Finding:
    if trouble.startswith("not readable"):
        remedy = said("add the user to the group of the file: usermod -aG HwHiAiUser USER, then log in again")
        if container(system):
            remedy = said(
                "start the container with --device /dev/{name} and a user of the group HwHiAiUser", name=name
            )
    else:
        remedy = _hand_in(system, [name])
    return Finding(AREA, f"/dev/{name}", PROBLEM, trouble, remedy)


def _hand_in(system: System, names: list[str]) -> str:
    if container(system):
        return said(
            "start the container with {options}", options=" ".join(f"--device /dev/{name}" for name in names)
        )
    return said("load the NPU driver (npu-smi info says whether it is), to use an NPU")
