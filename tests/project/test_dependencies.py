"""The README's test command installs versions that have been seen, on every Python there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib
from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FILE = ".ci/constraints.txt"
TOML: Any = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = TOML["project"]
PYTHONS = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]


def wanted(*extras: str) -> Iterator[Requirement]:
    """Yield what the package itself and some of its extras ask for, by whatever name of an extra."""
    for text in (*PROJECT["dependencies"], *(t for e in extras for t in PROJECT["optional-dependencies"][e])):
        one = Requirement(text)
        if canonicalize_name(one.name) == PROJECT["name"]:
            yield from wanted(*one.extras)
        else:
            yield one


@pytest.mark.each("python", PYTHONS)
def test_each_dependency_has_one_version_and_one_that_is_allowed(python: str) -> None:
    here = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    lines = (ROOT / FILE).read_text("utf-8").splitlines()
    pins: dict[str, str] = {}
    for line in lines:
        one = Requirement(line.partition("#")[0] or "none; python_version < '3'")
        if one.marker is None or one.marker.evaluate(here):
            [pin] = one.specifier
            assert pin.operator == "=="
            assert one.url is None
            assert pins.setdefault(canonicalize_name(one.name), pin.version) == pin.version
    for one in wanted("dev"):
        assert one.specifier.contains(pins[canonicalize_name(one.name)]), one


def test_the_readme_and_what_ci_runs_install_these_versions() -> None:
    for name in ("README.md", "docs/contributing.md", ".ci/run", ".ci/run-aarch64"):
        assert f"-c {FILE}" in (ROOT / name).read_text("utf-8"), name


@pytest.mark.e2e
def test_ci_can_be_run_with_no_other_choice_of_versions() -> None:
    done = subprocess.run(
        ["bash", str(ROOT / ".ci/run"), "latest"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "run: latest: expected lowest, newest or nothing\n")


def test_an_index_shows_the_readme_without_links_or_with_those_of_an_address() -> None:
    hook = TOML["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    [row] = hook["substitutions"]
    assert (hook["fragments"], PROJECT["dynamic"]) == ([{"path": "README.md"}], ["readme"])
    readme = (ROOT / "README.md").read_text("utf-8")

    def links(text: str) -> list[str]:
        parts = [one for token in MarkdownIt().parse(text) for one in token.children or []]
        return [str(a["href"] if "href" in a else a["src"]) for one in parts if (a := one.attrs) and one.tag]

    assert links(re.sub(row["pattern"], row["replacement"], readme)) == []
    there = re.sub(row["pattern"], r"\1[\2](https://example.org/\3)", readme)
    assert links(there) == [f"https://example.org/{path}" for path in links(readme)]
    assert all((ROOT / path.partition("#")[0]).is_file() for path in links(readme))
