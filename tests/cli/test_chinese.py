"""Commands in Chinese: people read it, and programs read the same as in English."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytest_npudump
from pytest_npudump.language.translation import catalogue, speaking
from pytest_npudump.report.summary import PAGE, summary_line
from tests.cli.conftest import dump_file

Run = Callable[..., Any]
TWO_WORDS = re.compile(r"[A-Za-z]{2,}[,;:]? [A-Za-z]{2,}")
FACTS = re.compile(
    r"Type output|\(preset \w+\)|环境：.*|规律：.*|npudump: |npudump golden diff TEST"
    r"|pytest --npudump-\S+ \S+"
)
"""Rules, facts of producers, patterns and commands, which are English everywhere."""


@pytest.fixture
def folder(tmp_path: Path, kept: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Dumps ``a`` and ``b``, kept results ``one`` and ``two``, and the golden of their test."""
    for root, last in (("a", 1.0), ("b", 9.0)):
        dump_file(tmp_path / root, "conv", np.array([1.0, 2.0], np.float32), number=1)
        dump_file(tmp_path / root, "relu", np.array([0.5, last, np.nan], np.float32), number=2)
    for name, value in (("one", 1.0), ("two", 2.0)):
        status = "passed" if name == "one" else "failed"
        folder = kept(name, {"conv": 1.0, "relu": value}, status=status, outcome=status)
        record = next((folder / "records").rglob("*.yaml"))
        if name == "one":
            (tmp_path / "golden" / "test_a").mkdir(parents=True)
            shutil.copy(record, tmp_path / "golden" / "test_a" / "test_x.yaml")
    (tmp_path / "test_a.py").touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


GOLDEN = "golden/test_a/test_x.yaml"
LISTINGS = (
    ("ls", "a"),
    ("ls", "--stats", "a"),
    ("compare", "a", "b", "--preset", "exact"),
    ("compare", "a", "a"),
    ("compare", "one", "two"),
    ("check", "two", "--root", "."),
    ("golden", "show", "--tolerances=", GOLDEN),
    ("golden", "show", GOLDEN),
    ("golden", "status", "--no-collect", "golden"),
    ("golden", "diff", "--results", "two", "--root", "."),
)


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_what_people_read_is_chinese_and_what_programs_read_stays(
    words: tuple[str, ...], folder: Path, run: Run
) -> None:
    assert folder.is_dir()
    english = run(*words)
    chinese = run("--lang", "zh", *words)
    assert chinese.code == english.code
    assert re.search("[\u4e00-\u9fff]", chinese.out)
    assert TWO_WORDS.findall(FACTS.sub("", chinese.out)) == []
    assert run("--lang", "zh", *words, "--json", "-").json == run(*words, "--json", "-").json


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ls", "none"), "none"),
        (("compare", "none", "a"), "npudump: none 既不是标杆文件也不是 dump 目录：它不存在\n"),
        (("compare", "a", "b", "--rtol", "nan"), "npudump: --rtol nan：应为不小于 0 的有限数\n"),
        (("golden", "status", "--no-collect", "none"), "npudump: none：没有这个文件或文件夹："),
        (("report", "none"), "npudump: none/results.jsonl：读不到结果："),
    ],
)
def test_what_is_wrong_is_told_in_chinese(words: tuple[str, ...], says: str, folder: Path, run: Run) -> None:
    assert folder.is_dir()
    done = run("--lang", "zh", *words)
    assert done.code == 2
    assert says in done.err


def test_the_page_on_failures_quotes_what_sessions_print() -> None:
    page = (Path(pytest_npudump.__file__).parent / "report/failures.zh.md").read_text("utf-8")
    told = {"status": "failed", "runtime": "emulator", "expected": 259, "compared": 259}
    with speaking("zh"):
        line = summary_line([{**told, "first": "Conv@21:output.0"}], page=PAGE)
    assert line in page
    words = tuple(catalogue("zh").values())
    labels = re.findall("`(\\w+：)`", page.partition("## 各行")[2])
    assert len(labels) > 10
    assert [label for label in labels if not any(word.startswith(label) for word in words)] == []
    assert "录制" not in page


def test_node_data_are_the_same_in_both_languages(folder: Path, run: Run) -> None:
    written = []
    for language in ("en", "zh"):
        assert run("--lang", language, "report", "two", "--root", ".", "--node-data", language).code == 0
        written.append({path.name: path.read_bytes() for path in (folder / language).iterdir()})
    assert written[0] == written[1]
    assert len(written[0]) == 1


@pytest.mark.parametrize("words", ["doctor", "config check a.json", "init --dry-run", "convert a -o out"])
def test_what_sets_up_a_machine_or_makes_things_is_english(words: str, folder: Path, run: Run) -> None:
    (folder / "a.json").write_text("{}")
    assert re.search("[\u4e00-\u9fff]", run("--lang", "zh", *words.split()).out) is None
