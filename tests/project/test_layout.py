"""The tests of a module are found where the module is: ``tests`` has the folders of the package."""

from __future__ import annotations

import ast
import fnmatch
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "pytest_npudump"
NO_ROOMS = {
    "data": "samples",
    "docs": "what the documentation says, of the whole package",
    "frozen": "what commands and sessions print and leave",
    "mindspore": "needs the real MindSpore",
    "project": "of the repository itself",
}
NO_MODULES = {"__all__", "acl", "npu_dump", "npudump", "testing"}
"""Names of other things in the first lines of folders."""
FAMILY = {*("adapter", "model"), *("errors", "request", "scene", "settings")}
"""Modules that an index need not name: those of every member of a family, and those beside the rooms."""


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


def test_the_index_of_a_folder_names_all_its_modules() -> None:
    unnamed = []
    for index in PACKAGE.rglob("__init__.py"):
        named = set(re.findall(r"[a-z_][a-z_0-9]*\*?", index.read_text()))
        own = [path.stem for path in index.parent.glob("[a-z]*.py") if path.stem not in FAMILY]
        unnamed += [index.parent / name for name in own if not any(fnmatch.fnmatch(name, n) for n in named)]
    told = [str(module.relative_to(PACKAGE)) for module in sorted(unnamed)]
    assert told == [], "say in the docstring of the folder's __init__.py what each is for"


def test_tests_lie_in_folders() -> None:
    assert [path.name for path in TESTS.glob("*.py")] == ["conftest.py"]


def test_modules_of_one_name_are_of_one_kind() -> None:
    families = {
        "adapter": "a file that each runtime has",
        "check": "a command, and what a reader says of a configuration",
        "mindspore": "what it reads, and what it writes",
        "overflow": "a scene, and the records of it",
        "terminal": "the text of a result, and what pytest prints",
        "text": "of a record, and words for a terminal",
    }
    modules = [path.stem for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    same = {name for name in modules if modules.count(name) > 1}
    assert same == families.keys(), "rename one of the two, or say above what they have in common"


def test_scripts_that_are_run_by_hand_import_what_is_there() -> None:
    for script in (TESTS.parent / "docs").rglob("*.py"):
        for node in ast.walk(ast.parse(script.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.name):
                assert find_spec(str(node.module)) is not None, (script, node.module)
                module = import_module(str(node.module))
                for name in (alias.name for alias in node.names):
                    assert hasattr(module, name) or find_spec(f"{node.module}.{name}"), (script, name)


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in re.findall(r"^ *class (\w+)", path.read_text("utf-8"), re.MULTILINE):
            places.setdefault(name, []).append(path.relative_to(PACKAGE).as_posix())
    assert not {name: found for name, found in places.items() if len(found) > 1}
