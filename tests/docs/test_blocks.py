"""Every console and Python block of README and docs does what its page says.

A page is a story: its blocks run in order, in one folder, by one test. What a block is:

* a Python, YAML, TOML or ini block is the file that its first line, a comment, names; Python has to be run;
* a console block is one session of bash, and each line behind ``$`` a command. Lines below it have to be its
  output, all of it unless a line ``...`` says where there is more; ``...`` inside a line stands for any text,
  and numbers with a fraction may differ by 1 %. A command that shows no output has to end with 0;
* ``<!-- skip: next "why" -->`` before a block keeps it from being run, and the reason is this suite's.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import SkipTest

import pytest
from sybil.document import Document
from sybil.parsers.myst import CodeBlockParser, SkipParser

from pytest_npudump.settings import CI_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sybil import Example


pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILES = ("python", "yaml", "ini", "toml")
RUN = ("console", *FILES)
OTHER = (
    "text",
    "json",
    "{toctree}",
    "{eval-rst}",
    "{help}",
    "{presets}",
    "{image}",
    "{include}",
    "{literalinclude}",
)
"""Kinds of blocks that are nothing to run: excerpts, and what Sphinx is told."""
MOST_SKIPPED = 12
FENCE = re.compile(r"^ *(?:`{3,}|~{3,})[ \t]*(\S*)", re.MULTILINE)
COMMAND = re.compile(r"^\$ ", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])(-?\d+\.\d+(?:e[-+]?\d+)?)(?![\w.])")
END = "-- end of command"
LINKED = "[`test_classifier.py`](../index.md)"
"""How a page says that it goes on with the test of the home page."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def parse(path: Path, evaluate: dict[str, Callable[[Example], None]]) -> Document:
    parsers = [CodeBlockParser(language, evaluator) for language, evaluator in evaluate.items()]
    return Document.parse(str(path), SkipParser(), *parsers)


def nothing(_: Example) -> None:
    """Run no block."""


def skipped(example: Example) -> str:
    """Evaluate a block; return why it was not, "" where it was."""
    try:
        example.evaluate()
    except SkipTest as reason:
        return str(reason)
    return ""


def skipped_blocks() -> Iterator[object]:
    """Yield page, line and reason of each block that is not run."""
    for path in PAGES:
        for example in parse(path, dict.fromkeys(RUN, nothing)).examples():
            if reason := skipped(example):
                yield pytest.param(reason, id=f"{page_name(path)}:{example.line}")


SKIPPED = list(skipped_blocks())


def file_name(source: str) -> str:
    match = re.match(r"# ([\w./-]+\.\w+)\n", source)
    return match[1] if match else ""


def alike(shown: str, printed: str) -> bool:
    """Whether a printed line is the shown one, but for ``...``, white space and digits of numbers."""
    parts = NUMBER.split(" ".join(shown.split()))
    pattern = "".join(
        NUMBER.pattern if index % 2 else re.escape(part).replace(r"\.\.\.", ".*")
        for index, part in enumerate(parts)
    )
    match = re.fullmatch(pattern, " ".join(printed.split()))
    return match is not None and all(
        math.isclose(float(one), float(other), rel_tol=0.01)
        for one, other in zip(parts[1::2], match.groups(), strict=True)
    )


def first_missing(shown: list[str], printed: list[str]) -> str | None:
    """Return the first shown line that does not stand where it should; None where all do."""
    place, anywhere = 0, False
    for line in shown:
        if line.strip() == "...":
            anywhere = True
            continue
        ends = len(printed) if anywhere else place + 1
        found = next((n for n in range(place, min(ends, len(printed))) if alike(line, printed[n])), None)
        if found is None:
            return line
        place, anywhere = found + 1, False
    return None if anywhere or place == len(printed) else f"the end, but there is {printed[place]!r}"


_NOT_OF_A_USER = {*CI_VARIABLES, "PYTHONUNBUFFERED"}
"""Variables that change what commands do, or in which order what they print arrives."""


_PLUGINS = "-p npudump -p no:cacheprovider"


class Story:
    """A page whose blocks are run one after the other."""

    def __init__(self, folder: Path, demonstration: tuple[Path, str], commands: Path) -> None:
        self.folder = self.here = folder
        self.demonstration = demonstration
        self.unused: set[str] = set()
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in _NOT_OF_A_USER},
            "PATH": os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": _PLUGINS,
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(folder.parent),
            "COLUMNS": "112",
            "LC_ALL": "C.UTF-8",
        }

    @property
    def runs(self) -> dict[str, Callable[[Example], None]]:
        """What runs a block of each kind."""
        return {"console": self.console, **dict.fromkeys(FILES, self.file)}

    def file(self, example: Example) -> None:
        """Write a block as the file that its first line names."""
        source = str(example.parsed)
        name = file_name(source)
        assert name, f"{example.path}:{example.line}: the first line names no file, as in # tolerances.yaml"
        (self.here / name).write_text(source, encoding="utf-8")
        if name.endswith(".py") and name != "conftest.py":
            self.unused.add(name)

    def console(self, example: Example) -> None:
        """Run each command of a block, and hold what it prints against what the block shows."""
        before, *texts = COMMAND.split(str(example.parsed))
        assert not before.strip(), f"{example.path}:{example.line}: a block begins with a command"
        told = [text.rstrip("\n").split("\n") for text in texts]
        done = self.run([command.partition("  # ")[0] for command, *_ in told])
        for (command, *shown), (code, printed) in zip(told, done, strict=True):
            where = f"{example.path}:{example.line}: $ {command}"
            if not shown:
                assert code == 0, f"{where} ended with {code}\n{printed}"
                continue
            assert set(shown) != {"..."}, f"{where} shows nothing; it prints\n{printed}"
            missing = first_missing(shown, printed.splitlines())
            assert missing is None, f"{where} does not print\n{missing}\nit prints\n{printed}"

    def run(self, commands: list[str]) -> list[tuple[int, str]]:
        """Run commands in one shell, where the last block ended; return what each ended with and printed."""
        for command in commands:
            by_pytest = re.search(r"\bpytest\b", command)
            self.unused -= {
                name for name in self.unused if name in command or (by_pytest and "test_" in name)
            }
        if commands[0].startswith("npudump demo"):
            shutil.copytree(self.demonstration[0], self.here / "npudump-demo")
            return [
                (0, COLOUR.sub("", self.demonstration[1])),
                *(self.run(commands[1:]) if commands[1:] else []),
            ]
        script = "".join(f"{command}\ncode=$?; echo; echo {END} $code\n" for command in commands)
        loaded = {"PYTEST_ADDOPTS": f"{_PLUGINS} -p xdist"} if "pytest -n " in script else {}
        done = subprocess.run(
            ["bash", "-c", f"{script}pwd > {self.folder}/.here"],
            cwd=self.here,
            env={**self.environment, **loaded},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=True,
        )
        self.here = Path((self.folder / ".here").read_text(encoding="utf-8").strip())
        parts = re.split(rf"^{END} (\d+)\n", done.stdout, flags=re.MULTILINE)
        return [
            (int(code), COLOUR.sub("", text).rstrip())
            for text, code in zip(parts[::2], parts[1::2], strict=False)
        ]


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_a_page_does_what_it_says(
    path: Path, stocked: Callable[[], Path], demonstration: tuple[Path, str], commands: Path
) -> None:
    story = Story(stocked(), demonstration, commands)
    document = parse(path, story.runs)
    if LINKED in document.text:
        home = next(iter(parse(ROOT / "docs" / "index.md", {"python": nothing}).examples()))
        (story.here / "test_classifier.py").write_text(str(home.parsed), encoding="utf-8")
    for example in document.examples():
        skipped(example)
    assert not story.unused, "no console block of the page runs these files"


@pytest.mark.each("reason", SKIPPED)
def test_a_block_that_does_not_run_here_says_why(reason: str) -> None:
    pytest.skip(reason)


def test_few_blocks_are_not_run() -> None:
    assert len(SKIPPED) <= MOST_SKIPPED


@pytest.mark.each("path", PAGES, ids=page_name)
def test_no_block_escapes(path: Path) -> None:
    """Counted by the fences alone: the parser finds every one with something to run."""
    text = path.read_text(encoding="utf-8")
    fences = FENCE.findall(text)
    opened = fences[::2]
    examples = parse(path, dict.fromkeys(RUN, nothing)).examples()
    found = [example for example in examples if example.region.evaluator is nothing]
    assert not any(fences[1::2]), "a fence inside of another"
    assert {kind for kind in opened if kind not in (*RUN, *OTHER)} == set(), "kinds that nobody knows"
    assert len(found) == sum(kind in RUN for kind in opened)
    told = re.findall(r"^ *(`{3,})text\n(.*?)^ *\1", text, re.DOTALL | re.MULTILINE)
    assert not [block for _, block in told if COMMAND.search(block)], "a command in a block that is not run"
    assert not re.search(r"^(?: {4}|\t)\$ ", text, re.MULTILINE), "a console block without a fence"
