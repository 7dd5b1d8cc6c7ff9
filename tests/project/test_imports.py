"""No module reaches itself by imports, and the contract that says so finds whichever circle there is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from graphlib import TopologicalSorter
from itertools import cycle
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="import-linter is of the extra dev")

PROJECT = Path(__file__).parents[2]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"
ANNOTATED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
LATER = "def work():\n    "
CIRCLES = {
    "pytest_npudump": {"golden/path": "plugin.options", "plugin/options": "golden.path"},
    "pytest_npudump.dump": {
        "dump/names": "dump.places",
        "dump/places": "dump.table",
        "dump/table": "dump.names",
    },
    "pytest_npudump.compare": {
        "compare/stats/alignment": "compare.tensors.kernel",
        "compare/tensors/worst": "compare.stats.numbers",
    },
    "pytest_npudump.dump.files.npy": {
        "dump/files/npy/reader": "dump.files.npy.executions",
        "dump/files/npy/executions": "dump.files.npy.reader",
    },
}
"""Imports between modules of a package of ours, by the folder whose children they make a circle of."""


def circles(folder: Path, imports: dict[str, str], ways: Iterable[str]) -> set[str]:
    """Write a package of such modules; return the folders in which the project finds circles of them."""
    named = [*dict.fromkeys((*imports, *(name.replace(".", "/") for name in imports.values())))]
    for name, how in zip(named, cycle(ways), strict=False):
        path = folder / "pytest_npudump" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        for above in path.relative_to(folder).parents[:-1]:
            (folder / above / "__init__.py").touch()
        module, _, last = imports.get(name, "").rpartition(".")
        path.write_text(f"{how}from pytest_npudump.{module} import {last}\n" if last else "")
    options = ("--config", str(PROJECT / "pyproject.toml"), "--contract", "circles", "--no-cache")
    done = subprocess.run(
        [sys.executable, "-c", LINT, *options], cwd=folder, capture_output=True, text=True, check=False
    )
    found = set(re.findall(r"No cycles are allowed in ([\w.]+)\.\n", done.stdout))
    assert (done.returncode == 0) is (not found), done.stdout + done.stderr
    return found


def test_the_contract_finds_circles_at_every_level_and_none_where_there_is_none(tmp_path: Path) -> None:
    """Of imports at once, in an annotation and in a function."""
    imports = {name: imported for circle in CIRCLES.values() for name, imported in circle.items()}
    assert circles(tmp_path / "all", imports, ("", ANNOTATED, LATER)) == CIRCLES.keys()
    imports = dict(next(iter(circle.items())) for circle in CIRCLES.values())
    assert circles(tmp_path / "none", imports, ("",)) == set()


def test_no_module_reaches_itself_not_even_by_the_index_of_its_folder() -> None:
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("pytest_npudump", cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imported) > 100
    TopologicalSorter(imported).prepare()
