"""CANN, the frameworks on it, and this package's extras: versions, without importing any of them."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from pytest_npudump.config.cann import DEFAULT_VERSION, installed_cann, profile_for, profile_warnings
from pytest_npudump.doctor.finding import ABSENT, OK, PROBLEM, WARNING, Finding
from pytest_npudump.errors import ConfigError
from pytest_npudump.language.translation import mark, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.doctor.system import System

AREA = mark("software")
_ROOTS = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME")
_PLACES = ("/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit")
_DISTRIBUTION = "pytest-npudump"
_EXTRAS = ("emulator", "dask")
_STANDS_IN = {"onnxruntime": ("onnxruntime-gpu", "onnxruntime-cann", "onnxruntime-openvino")}
"""Other distributions of the same import package."""


def check_cann(system: System) -> Iterator[Finding]:
    """Look for the CANN toolkit that the environment points at, and for one that it does not."""
    variable = next((name for name in _ROOTS if system.environ.get(name)), None)
    if variable is None:
        yield _unset(system)
        return
    home = system.environ[variable]
    version = installed_cann({variable: str(system.at(home))})
    if version is None:
        gone = said("does not exist") if not system.at(home).is_dir() else said("has no version file")
        remedy = said("source set_env.sh of an installed CANN, or unset the variable")
        yield Finding(
            AREA,
            "CANN",
            WARNING,
            said("{variable}={home} {gone}", variable=variable, home=home, gone=gone),
            remedy,
        )
        return
    yield _release(version, f"{version} ({variable}={home})")


def _unset(system: System) -> Finding:
    for place in _PLACES:
        script = f"{place}/set_env.sh"
        if system.at(script).is_file():
            text = said(
                "installed at {place}, but none of {names} is set", place=place, names=", ".join(_ROOTS)
            )
            return Finding(AREA, "CANN", WARNING, text, f"source {script}")
    remedy = said(
        "install the CANN toolkit to use an NPU; without it the rules of {version} count",
        version=DEFAULT_VERSION,
    )
    return Finding(AREA, "CANN", ABSENT, said("none of {names} is set", names=", ".join(_ROOTS)), remedy)


def _release(version: str, text: str) -> Finding:
    try:
        profile = profile_for(version)
    except ConfigError as error:
        remedy = said("the rules of the newest release count; say --cann to npudump config check for others")
        return Finding(AREA, "CANN", WARNING, f"{text}: {error}", remedy)
    warnings = profile_warnings(version)
    if warnings:
        remedy = said("check a configuration on the device before relying on it")
        return Finding(AREA, "CANN", WARNING, f"{text}; {'; '.join(warnings)}", remedy)
    return Finding(
        AREA,
        "CANN",
        OK,
        said("{text}; acl.json is judged by the rules of {profile}", text=text, profile=profile),
    )


def check_frameworks(system: System) -> Iterator[Finding]:
    """Look for torch_npu, TorchAir and MindSpore."""
    torch_npu = system.version("torch_npu")
    yield _torch_npu(torch_npu, system.version("torch"))
    yield _torchair(system.version("torchair"), torch_npu)
    mindspore = system.version("mindspore")
    yield _framework("MindSpore", mindspore, "mindspore")


def _framework(name: str, version: str | None, package: str) -> Finding:
    if version is not None:
        return Finding(AREA, name, OK, version)
    remedy = said("pip install {package}, if the tests use it", package=package)
    return Finding(AREA, name, ABSENT, said("not installed in this Python"), remedy)


def _torch_npu(version: str | None, torch: str | None) -> Finding:
    if version is None:
        return _framework("torch_npu", None, "torch-npu")
    if torch is None:
        remedy = f"pip install torch=={_release_of(version)}"
        return Finding(
            AREA, "torch_npu", PROBLEM, said("{version}, but torch is not installed", version=version), remedy
        )
    if _release_of(version) != _release_of(torch):
        remedy = said("install the two of one release: torch_npu 2.5.1.post1 goes with torch 2.5.1")
        return Finding(
            AREA,
            "torch_npu",
            PROBLEM,
            said("{version} does not go with torch {torch}", version=version, torch=torch),
            remedy,
        )
    return Finding(AREA, "torch_npu", OK, said("{version}, with torch {torch}", version=version, torch=torch))


def _release_of(version: str) -> str:
    match = re.match(r"\d+\.\d+\.\d+|\d+\.\d+", version)
    return match.group() if match else version


def _torchair(version: str | None, torch_npu: str | None) -> Finding:
    if version is None and torch_npu is not None:
        return Finding(
            AREA, "TorchAir", OK, said("the one inside torch_npu {torch_npu}", torch_npu=torch_npu)
        )
    return _framework("TorchAir", version, "torch-npu")


def check_extras(system: System) -> Iterator[Finding]:
    """Look for what this package's extras need, in the versions it asks for."""
    try:
        lines = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        remedy = said("pip install {package}, so that pytest finds the plugin", package=_DISTRIBUTION)
        yield Finding(
            AREA,
            _DISTRIBUTION,
            PROBLEM,
            said("runs from {folder}, not installed", folder=Path(__file__).parents[1]),
            remedy,
        )
        return
    wanted = [Requirement(line) for line in lines]
    for extra in _EXTRAS:
        for requirement in wanted:
            if requirement.marker is not None and _belongs(requirement, extra):
                yield _extra(system, requirement, extra)


def _belongs(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _extra(system: System, requirement: Requirement, extra: str) -> Finding:
    remedy = said("pip install '{package}[{extra}]'", package=_DISTRIBUTION, extra=extra)
    for name in (requirement.name, *_STANDS_IN.get(requirement.name, ())):
        version = system.version(name)
        if version is None:
            continue
        shown = version if name == requirement.name else f"{version} ({name})"
        if _too_old(version, requirement):
            text = said(
                "{shown}, the extra {extra} needs {version}",
                shown=shown,
                extra=extra,
                version=requirement.specifier,
            )
            return Finding(AREA, requirement.name, WARNING, text, remedy)
        return Finding(
            AREA, requirement.name, OK, said("{shown}, for the extra {extra}", shown=shown, extra=extra)
        )
    return Finding(
        AREA, requirement.name, ABSENT, said("not installed"), said("{remedy}, to use it", remedy=remedy)
    )


def _too_old(version: str, requirement: Requirement) -> bool:
    try:
        return not requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
