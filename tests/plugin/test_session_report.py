"""``--npudump-report`` and ``npudump report``: a page of what a session judged."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.cli import main
from tests.plugin.conftest import LAYERS, Project


def tensors(page: Path) -> dict[str, Any]:
    """Return what the page of one test packs for its table."""
    (packed,) = re.findall(
        r'<script type="application/octet-stream">([^<]*)</script>', page.read_text("utf-8")
    )
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return data


@pytest.fixture
def changed(project: Project) -> Project:
    """A project whose model has changed since its golden, with a golden tensor, was recorded."""
    project.model()
    project.recorded("golden_tensors=['*']", change=0.01)
    return project


def test_a_failing_session_has_a_page_with_its_source_and_its_elements(changed: Project) -> None:
    """It is written afterwards from kept results, too."""
    page = changed.path / "report/index.html"
    changed.run("--npudump-output=.", "--npudump-report", shows=f"npudump: report: *{page}")
    text = page.read_text("utf-8")
    assert "If the change is meant, accept it: <code>pytest --npudump-update-golden" in text
    assert text.count("data:image/png;base64,") >= 1
    data = tensors(page)
    report = changed.report()["comparison"]
    assert isinstance(report, dict)
    assert len(data["key"]) == len(report["verdicts"])
    failing = [at for at, verdict in enumerate(report["verdicts"]) if verdict["status"] == "fail"]
    assert [at for at, state in enumerate(data["state"]) if state < 3] == failing
    assert all(data["share"][at] == -1 or data["share"][at] > 1 for at in failing)
    assert sum(state == 0 for state in data["state"]) >= 1
    code, shown, _ = changed.command("report", "results", "-o", "after", "--node-data", "nodes")
    assert code == 0
    assert shown.startswith("page: after/index.html\nnode data: nodes/")
    assert tensors(changed.path / "after/index.html") == tensors(changed.path / "report/index.html")
    (nodes,) = (changed.path / "nodes").iterdir()
    results = json.loads(nodes.read_text("utf-8"))["results"]
    assert max(one["value"] for one in results.values()) > 1
    shutil.rmtree(changed.path / "dumps")
    assert main(["report", "results", "-o", "after"]) == 0
    text = (changed.path / "after/index.html").read_text("utf-8")
    assert "is not there: pictures of elements need the dumps" in text
    assert "data:image/png" not in text
    shutil.rmtree(changed.path / "report")
    assert changed.command("report", "results") == (0, "page: report/index.html\n", "")
    assert (changed.path / "report/index.html").read_text("utf-8") == text


def test_the_source_of_a_page_and_of_the_summary_is_that_of_the_terminal(project: Project) -> None:
    project.recorded(without=LAYERS[1])
    source = f"{LAYERS[1]} (removed), upstream of {LAYERS[2]}:output.0"
    project.run("--npudump-output=.", "--npudump-report", failed=1, shows=f"source: *{source}*")
    data = tensors(project.path / "report/index.html")
    (at,) = [at for at, state in enumerate(data["state"]) if data["states"][state] == "source"]
    assert data["key"][at] == f"{LAYERS[1]}:output.0"
    assert data["words"][data["pair"][2 * at]] == "in the golden"
    summary = (project.path / "summary.md").read_text("utf-8")
    assert f"{LAYERS[1]}, upstream of {LAYERS[2]}:output.0 (" in summary


def test_a_page_is_of_its_session_only(changed: Project) -> None:
    changed.run("--npudump-output=.")
    changed.test_file("@pytest.mark.npu_dump\ndef test_other(npu_dump):\n" + changed.body, "test_other.py")
    changed.run("--npudump-output=.", "--npudump-report", "test_other.py")
    page = changed.path / "report/index.html"
    text = page.read_text("utf-8")
    assert "test_other.py::test_other" in text
    assert "test_small.py" not in text
    changed.test_file("def test_plain():\n    pass\n", "test_other.py")
    changed.run("--npudump-output=.", "--npudump-report", "test_other.py")
    text = page.read_text("utf-8")
    assert "No marked test ran in this session." in text
    assert "npudump-update-golden" not in text
    page.unlink()
    page.parent.rmdir()
    page.parent.write_text("a file", encoding="utf-8")
    words = "npudump: no report: *report*cannot be written*"
    changed.run("--npudump-output=.", "--npudump-report", "test_small.py", shows=words)


def test_without_jinja2_the_session_does_not_start(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.model()
    project.marked()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = project.run("--npudump-output=.", "--npudump-report")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--npudump-report needs*pip install 'pytest-npudump[[]report]'*"])


def test_the_page_is_chinese_from_the_session_and_from_the_command(changed: Project) -> None:
    changed.run("--npudump-output=.", "--npudump-report", "-onpudump_lang=zh")
    folder = changed.path
    nodes = {}
    for language in ("en", "zh"):
        target = folder / language
        options = ["-o", str(target), "--node-data", str(target / "nodes"), "--lang", language]
        assert main(["report", str(folder / "results"), "--root", str(folder), *options]) == 0
        nodes[language] = [path.read_bytes() for path in sorted((target / "nodes").iterdir())]
    assert nodes["zh"] == nodes["en"] != []
    assert '<html lang="en">' in (folder / "en/index.html").read_text("utf-8")
    for page in (folder / "report/index.html", folder / "zh/index.html"):
        text = page.read_text("utf-8")
        assert '<html lang="zh-CN">' in text
        assert "若变更符合预期，则接受：<code>pytest --npudump-update-golden" in text
        assert "源头：      block/conv.2:output.0" in text
        assert not any(words in text for words in ("to accept", "If the change is meant", "What next"))


def test_every_line_of_a_session_is_as_wide_as_the_terminal(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for paths and commands; a pipe without COLUMNS has whole lines."""
    source = (
        "@pytest.mark.npu_dump\n@pytest.mark.parametrize('of', ['a', '{}'])\ndef test_small(npu_dump, of):\n"
    )
    project.test_file(source.format("a_case_with_a_name_as_long_as_they_are") + project.body)
    expect = ("-onpudump_expect=9", "-onpudump_escalate=off")
    project.record()
    project.model(change=0.01)
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        for options in (expect, ("--npudump-update-golden", *expect)):
            lines = project.run(*options).outlines
            ours = [line for line in lines if line.startswith(("npudump: ", " " * 9))]
            assert max(map(len, ours)) <= columns
            assert [line for line in ours if "tests were not compared" in line or "were compared" in line]
        project.model(change=0.02)
    monkeypatch.delenv("COLUMNS")
    lines = project.run("--npudump-update-golden", *expect).outlines
    assert any(line.endswith("this run updates goldens (--npudump-update-golden)") for line in lines)


@pytest.mark.parametrize("colour", ["yes", "no"])
def test_a_session_below_its_rootdir_ends_as_others_do(project: Project, colour: str) -> None:
    """pytest shows tests relative to where it was started."""
    project.recorded()
    project.model(change=0.01)
    (below := project.path / "below").mkdir()
    project.patch.chdir(below)
    result = project.run(f"--color={colour}", "--rootdir=..", "../test_small.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "INTERNALERROR" not in result.stderr.str() + result.stdout.str()
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in result.outlines]
    assert any(line.startswith("FAILED ../test_small.py::test_small - block/conv.2: ") for line in lines)


def test_a_misspelt_layer_is_told_before_there_is_a_golden(project: Project) -> None:
    project.marked("layers=['blokk/*', '*conv*']")
    project.model()
    words = "layer 'blokk/[*]', named in the marker, is not in the dump; did you mean block/[*][?]"
    project.run(failed=1, shows=f"*{words}*", hides="*to create:*")
    project.marked("layers=['block/*', '*conv*']")
    project.run(failed=1, shows="npudump: no golden file golden/test_small/test_small.yaml")
