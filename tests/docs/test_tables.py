"""Tables of README and docs list what the code has: rooms, commands, options, public names, JSON."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import pytest_npudump
from pytest_npudump.cli.arguments import VERBS, Verb
from pytest_npudump.compare.ulps import ULP_BOUNDS
from pytest_npudump.dump.files.formats import FORMATS
from pytest_npudump.dump.tree.find import find_files
from pytest_npudump.record.text import parse as parse_golden
from tests.testing.test_file_formats import OurFormat

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "pytest_npudump"


def rows(page: str, header: str, number: int = 0) -> list[list[str]]:
    """Return the cells of the table number ``number`` under a header row."""
    text = (DOCS / page).read_text(encoding="utf-8")
    table = text.split(f"\n{header}\n")[number + 1].split("\n\n")[0]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in table.splitlines()[1:]
        if line.startswith("|")
    ]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_rooms_are_the_package_s_folders_from_the_roof_to_the_ground() -> None:
    listed = [names(cells[0])[0].rstrip("/") for cells in rows("contributing.md", "| room | what it is |")]
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(listed) == folders
    contract = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("layers = [")[1].split("]")[0]
    floors = [name for name in re.findall(r"\w+", contract) if name in folders]
    assert listed == floors


def test_files_that_contributing_names_exist() -> None:
    text = "".join(
        (DOCS / f"{page}.md").read_text(encoding="utf-8") for page in ("contributing", "maintaining")
    )
    paths = re.findall(r"`([\w./-]+/[\w.-]*\w+\.\w+)`", text)
    missing = [
        path
        for path in paths
        if not any((base / path).exists() for base in (ROOT, PACKAGE, ROOT / "tests" / "data"))
    ]
    assert len(paths) > 20
    assert missing == []


def test_samples_that_their_readme_names_exist_and_none_is_left_out() -> None:
    patterns = [
        name
        for cells in rows("../tests/data/README.md", "| folder | where it comes from |")
        for name in names(cells[0])
    ]
    data = ROOT / "tests" / "data"
    found = [set(data.glob(pattern.rstrip("/"))) for pattern in patterns]
    assert [pattern for pattern, paths in zip(patterns, found, strict=True) if not paths] == []
    known = {path for paths in found for path in paths}
    left_out = [
        path
        for path in data.rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not known & {path, *path.parents}
        and path != data / "README.md"
    ]
    assert left_out == [], "say in that table where each comes from"


def test_each_format_that_holds_tensors_has_a_sample_in_its_conformance_class(tmp_path: Path) -> None:
    for kind in OurFormat.__subclasses__():
        (tmp_path / kind.__name__).mkdir()
        for sample in kind.samples:
            if sample.path.exists():  # another package's is made by its tests
                shutil.copy(sample.path, tmp_path / kind.__name__ / (sample.name or sample.path.name))
    trees = [find_files(folder) for folder in tmp_path.iterdir()]
    sampled = {file.format for tree in trees for file in (*tree.files, *tree.statistics)}
    assert sampled == {one.name for one in FORMATS if not one.instead and one.name != "entry_point"}


def test_each_command_has_its_help_on_its_page_in_the_order_of_help() -> None:
    def leaves(name: str, verb: Verb) -> list[str]:
        return [one for word, it in verb.verbs.items() for one in leaves(f"{name} {word}", it)] or [name]

    folder = DOCS / "reference" / "commands"
    assert {path.stem for path in folder.glob("*.md")} == {*VERBS, "index"}
    block = r"(?m)^##? `npudump ([\w ]*)`\n(?:\n[^#`]*)?\n```{help}\nnpudump \1 --help$"
    for command, verb in VERBS.items():
        text = (folder / f"{command}.md").read_text(encoding="utf-8")
        assert re.findall(block, text) == leaves(command, verb)


def test_public_names_are_those_of_the_page_and_can_be_imported() -> None:
    listed = [names(cells[0])[0] for cells in rows("reference/public-names.md", "| name | what it is |")]
    exported = [
        name.split(".")[1] for name in listed if name.count(".") == 1 and (name.split(".")[1][0].isupper())
    ]
    assert sorted(exported) == pytest_npudump.__all__ == sorted(pytest_npudump._MODULES)
    assert set(pytest_npudump.__all__) <= set(dir(pytest_npudump))
    for name in exported:
        assert getattr(pytest_npudump, name).__name__ == name
    for module in set(listed) - {f"pytest_npudump.{name}" for name in exported}:
        importlib.import_module(module)
    told = pytest_npudump.__doc__ or ""
    assert "docs/reference/public-names.md" in told
    assert "pytest_npudump." not in told, "modules are listed by the page alone"
    rooms = rows("contributing.md", "| room | what it is |")
    public = {names(room)[0].strip("/") for room, meaning in rooms if meaning.startswith("public:")}
    assert public
    assert {f"pytest_npudump.{room}" for room in public} <= set(listed)
    with pytest.raises(AttributeError, match="has no attribute 'Session'"):
        pytest_npudump.Session  # noqa: B018 - the access is what is tested


@pytest.mark.e2e
def test_importing_the_package_imports_nothing_else_of_it() -> None:
    code = (
        "import sys, pytest_npudump; heavy = ('pytest_npudump.', 'numpy', 'yaml', 'rich'); "
        "sys.exit(repr([name for name in sys.modules if name.startswith(heavy)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, encoding="utf-8", check=False)
    assert done.stderr.strip() == "[]"


def test_extras_that_pages_install_exist() -> None:
    known = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        asked = re.findall(r"(?:pytest-npudump|\.)\[(\w+)\]", page.read_text(encoding="utf-8"))
        assert set(asked) <= set(known), page


@pytest.fixture(scope="module")
def failure(demonstration: tuple[Path, str]) -> Any:
    """The report.json of the demonstration's failure."""
    (path,) = (demonstration[0] / "output/dumps").glob("*/report.json")
    return json.loads(path.read_text(encoding="utf-8"))


def keys(number: int) -> list[str]:
    return [
        name for cells in rows("reference/json.md", "| key | value |", number) for name in names(cells[0])
    ]


def test_the_keys_of_report_json_are_those_of_the_page(failure: Any) -> None:
    assert list(failure) == keys(0)


def test_the_keys_of_a_comparison_and_of_a_verdict_are_those_of_the_page(failure: Any) -> None:
    assert list(failure["comparison"]) == keys(1)
    verdicts = failure["comparison"]["verdicts"]
    assert [*verdicts[0], "key", "changed", "elements", "pattern"] == keys(2)
    (summary,) = [
        cells[1] for cells in rows("reference/json.md", "| key | value |", 1) if cells[0] == "`summary`"
    ]
    assert names(summary) == list(failure["comparison"]["summary"])
    (told,) = [
        cells[1] for cells in rows("reference/json.md", "| key | value |", 2) if cells[0] == "`status`"
    ]
    assert {verdict["status"] for verdict in verdicts} <= set(names(told))


@pytest.mark.e2e
def test_the_keys_of_the_junit_property_are_on_the_page(
    demonstration: tuple[Path, str], tmp_path: Path, warm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(demonstration[0], tmp_path / "demo")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    options = ("-pnpudump", "-pno:cacheprovider", f"--npudump-output={tmp_path}", "--junitxml=junit.xml")
    warm.run("-mpytest", *options)
    found = ET.parse(folder / "junit.xml").getroot().iter("property")  # noqa: S314 - written by pytest
    properties = {each.attrib["name"]: each.attrib["value"] for each in found}
    told = json.loads(properties.pop("npudump"))
    page = (ROOT / "docs/reference/json.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in properties)
    assert told["status"] == "failed"
    assert set(told) <= set(keys(3))


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#([\w-]+))?\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 20
    for path, anchor in links:
        assert (ROOT / path).is_file(), path
        if anchor:
            headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, (path, anchor)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_golden_that_the_page_shows_is_one() -> None:
    page = DOCS / "reference" / "golden-file.md"
    text = page.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    golden = parse_golden(text, page)
    assert golden.test == "tests/test_ocr.py::test_classifier[fp16]"
    assert golden.producer["soc"] == "Ascend910B3"
    assert [str(key) for key in golden.table.keys] == ["conv1:output.0", "fc:output.0"]


def test_the_page_of_operators_has_the_default_bounds() -> None:
    page = (DOCS / "how-to" / "operators.md").read_text(encoding="utf-8")
    for dtype, default in ULP_BOUNDS.items():
        assert f"| {dtype} | {default.ulps} | {default.source} |" in page
