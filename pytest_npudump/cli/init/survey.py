"""What is in a repository, as far as a first test needs to know: looked at, and nothing of it run."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from glob import glob
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.init.pytest_keys import INI_OPTIONS, KEYS, is_section
from pytest_npudump.config.cann import installed_cann
from pytest_npudump.doctor.pytest_config import locate, required

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECTION = "[pytest]"
_SECTIONS = {"pyproject.toml": (INI_OPTIONS, "[tool.pytest]"), "setup.cfg": ("[tool:pytest]",)}
_OWN_FILES = {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"}
"""Files of pytest alone, which are its configuration without a section, too."""
_LEFT_OUT = {"node_modules", "site-packages", "build", "dist", "golden"}
_MOST = 20_000
"""Files that are looked at: a model is not searched for without end."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found.

    Attributes:
        root: the repository.
        configuration: the file that pytest reads; a new pytest.ini where it would read none.
        section: the line of its section; "" where pytest's keys are there without one.
        golden_dir: the folder of goldens, relative to the root.
        requires: whether pytest is told to require this plugin, or can be, as no other is named.
        tests: the folder of the tests: the first of pytest's ``testpaths``, else ``tests`` or ``test``.
        models: ONNX models, then offline models, the smallest first, relative to the root.
        packages: which of torch_npu, mindspore, acl, onnx and onnxruntime can be imported.
        cann: the version of CANN; "" without it.
        has_git: whether the folder is a git repository.
        all_seen: whether all files were looked at.
    """

    root: Path
    configuration: Path
    section: str
    golden_dir: str
    requires: bool
    tests: Path
    models: tuple[Path, ...]
    packages: frozenset[str]
    cann: str
    has_git: bool
    all_seen: bool


def survey(root: Path) -> Survey:
    """Look at a repository.

    Raises:
        OSError: its configuration cannot be read.
        ConfigError: the same, of one that pytest cannot read either.
    """
    configuration, section, told = _configuration(root)
    models, all_seen = _models(root)
    names = ("torch_npu", "mindspore", "acl", "onnx", "onnxruntime")
    return Survey(
        root=root,
        configuration=configuration,
        section=section,
        golden_dir=_golden_dir(told),
        requires=not told.get("required_plugins") or bool(required(told["required_plugins"])),
        tests=_tests(root, told.get("testpaths", "")),
        models=models,
        packages=frozenset(name for name in names if _is_there(name)),
        cann=installed_cann() or "",
        has_git=(root / ".git").exists(),
        all_seen=all_seen,
    )


def _configuration(root: Path) -> tuple[Path, str, Mapping[str, Any]]:
    """Return the file that pytest reads, the line of its section, and what that says."""
    path, told = locate(root)
    if path is None or path.parent != root:
        return root / "pytest.ini", _SECTION, {}
    sections, rows = _SECTIONS.get(path.name, (_SECTION,)), path.read_text("utf-8").splitlines()
    section = next((one for one in sections if any(is_section(row, one) for row in rows)), "")
    return path, section or (_SECTION if path.name in _OWN_FILES else ""), told


def _golden_dir(told: Mapping[str, Any]) -> str:
    usual = KEYS["npudump_golden_dir"]
    folder = PurePosixPath(str(told.get("npudump_golden_dir", usual)))
    return usual if folder.is_absolute() or ".." in folder.parts else str(folder)


def _tests(root: Path, testpaths: Any) -> Path:
    """Return the folder of the tests: pytest looks nowhere else where ``testpaths`` names some."""
    named = shlex.split(testpaths) if isinstance(testpaths, str) else map(str, testpaths)
    # As pytest does it; Path.glob takes neither absolute names nor "." for what they are.
    found = [name for one in named for name in sorted(glob(one, root_dir=root, recursive=True))]  # noqa: PTH207
    folders = [Path(os.path.normpath(root / name)) for name in (*found, "tests", "test")]
    return next((path for path in folders if path.is_dir() and path.is_relative_to(root)), root)


def _models(root: Path) -> tuple[tuple[Path, ...], bool]:
    found: list[tuple[bool, int, Path]] = []
    seen = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and name[:1] != ".")
        seen += len(names)
        paths = [Path(folder, name) for name in names if name.endswith((".onnx", ".om"))]
        found += [(path.suffix == ".om", path.stat().st_size, path) for path in paths if path.is_file()]
        if seen > _MOST:
            break
    return tuple(path.relative_to(root) for _, _, path in sorted(found)), seen <= _MOST


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
