"""The tests of a module are found where the module is: ``tests`` has the folders of the package."""

from __future__ import annotations

import ast
import fnmatch
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "pytest_npudump"
NO_ROOMS = {
    "benchmarks": "run by hand",
    "data": "samples",
    "docs": "what the documentation says, of the whole package",
    "mindspore": "needs the real MindSpore",
    "project": "of the repository itself",
}
NO_MODULES = {"__all__", "acl", "npu_dump", "npudump", "testing"}
"""Names of other things in the first lines of folders."""


def test_every_folder_of_tests_is_one_of_the_package() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")}
    rooms = {folder for folder in folders if folder.parts and folder.parts[0] not in NO_ROOMS}
    assert rooms
    assert sorted(str(room) for room in rooms if not (PACKAGE / room / "__init__.py").is_file()) == []


def test_the_index_of_a_folder_names_modules_that_are_there() -> None:
    for index in PACKAGE.rglob("__init__.py"):
        told = ast.get_docstring(ast.parse(index.read_text())) or ""
        there = [path.stem for path in index.parent.iterdir()]
        named = set(re.findall(r"``([a-z_0-9*]+)/?``", told)) - NO_MODULES
        assert [name for name in sorted(named) if not fnmatch.filter(there, name)] == [], index


def test_tests_lie_in_folders() -> None:
    assert [path.name for path in TESTS.glob("*.py")] == ["conftest.py"]


def test_modules_of_one_name_are_of_one_kind() -> None:
    families = {
        "command": "what a folder of cli/ runs",
        "show": "the action of that name of two commands",
        "judge": "the flow's, and those of scenes",
        "registry": "an index of what other packages may add to",
        "reader": "of a dump, and a file that formats have",
        "executions": "a file that formats have",
        "activity": "a file that each runtime has",
        "adapter": "the same",
        "client": "the same",
        "model": "the same, and the scene",
        "provider": "the same",
        "callback": "pyACL's callback of a dump: the emulator's side and its user's",
        "memory": "the device's memory, from the same two sides",
        "overflow": "overflow records as the emulator writes them, and the scene",
        "op": "pyACL's module of that name, and the scene",
        "float64": "the kernel of float64",
        "options": "of the command, and of pytest",
        "progress": "a bar of the command, a line of pytest",
    }
    modules = [path.stem for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    assert {name for name in modules if modules.count(name) > 1} == families.keys()
