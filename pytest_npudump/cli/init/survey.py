"""What is in a repository, as far as a first test needs to know: looked at, and nothing of it run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pytest_npudump.config.acl.installed import installed_cann

_CONFIGURATIONS = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_SECTIONS = {"pyproject.toml": "[tool.pytest.ini_options]", "setup.cfg": "[tool:pytest]"}
_LEFT_OUT = {"node_modules", "site-packages", "build", "dist", "golden"}
_MOST = 20_000
"""Files that are looked at: a model is not searched for without end."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found.

    Attributes:
        root: the repository.
        configuration: pytest's configuration file and the line of its section; a new pytest.ini without one.
        has_section: whether the file has that line.
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
    has_section: bool
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
    """
    configuration, has_section = _configuration(root)
    models, all_seen = _models(root)
    names = ("torch_npu", "mindspore", "acl", "onnx", "onnxruntime")
    return Survey(
        root=root,
        configuration=configuration,
        section=_SECTIONS.get(configuration.name, "[pytest]"),
        has_section=has_section,
        tests=next((root / name for name in ("tests", "test") if (root / name).is_dir()), root),
        models=models,
        packages=frozenset(name for name in names if _is_there(name)),
        cann=installed_cann() or "",
        has_git=(root / ".git").exists(),
        all_seen=all_seen,
    )


def _configuration(root: Path) -> tuple[Path, bool]:
    """Return the file that pytest reads, by its order: pytest.ini counts without a section, too."""
    for name in _CONFIGURATIONS:
        path = root / name
        if not path.is_file():
            continue
        section = _SECTIONS.get(name, "[pytest]")
        has_section = section in map(str.strip, path.read_text("utf-8").splitlines())
        if has_section or name == "pytest.ini":
            return path, has_section
    return root / "pytest.ini", False


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
