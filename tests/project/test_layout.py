"""The tests of a module are found where the module is: ``tests`` has the folders of the package."""

from __future__ import annotations

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


def test_every_folder_of_tests_is_one_of_the_package() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")}
    rooms = {folder for folder in folders if folder.parts and folder.parts[0] not in NO_ROOMS}
    assert rooms
    assert sorted(str(room) for room in rooms if not (PACKAGE / room / "__init__.py").is_file()) == []


def test_tests_lie_in_folders() -> None:
    assert [path.name for path in TESTS.glob("*.py")] == ["conftest.py"]
