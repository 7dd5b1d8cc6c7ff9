"""What is in a repository, as far as a first test needs to know: looked at, and nothing of it run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from pytest_npudump.cli.init.pytest_keys import INI_OPTIONS, KEYS, is_section
from pytest_npudump.config.acl.installed import installed_cann
from pytest_npudump.doctor.pytest_config import locate

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
        tests: the folder of the tests.
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
    configuration, section, golden_dir = _configuration(root)
    models, all_seen = _models(root)
    names = ("torch_npu", "mindspore", "acl", "onnx", "onnxruntime")
    return Survey(
        root=root,
        configuration=configuration,
        section=section,
        golden_dir=golden_dir,
        tests=next((root / name for name in ("tests", "test") if (root / name).is_dir()), root),
        models=models,
        packages=frozenset(name for name in names if _is_there(name)),
        cann=installed_cann() or "",
        has_git=(root / ".git").exists(),
        all_seen=all_seen,
    )


def _configuration(root: Path) -> tuple[Path, str, str]:
    """Return the file that pytest reads, the line of its section, and the folder of goldens."""
    usual = KEYS["npudump_golden_dir"]
    path, told = locate(root)
    if path is None or path.parent != root:
        return root / "pytest.ini", _SECTION, usual
    sections, rows = _SECTIONS.get(path.name, (_SECTION,)), path.read_text("utf-8").splitlines()
    section = next((one for one in sections if any(is_section(row, one) for row in rows)), "")
    folder = PurePosixPath(str(told.get("npudump_golden_dir", usual)))
    inside = not folder.is_absolute() and ".." not in folder.parts
    return path, section or (_SECTION if path.name in _OWN_FILES else ""), str(folder) if inside else usual


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
