"""A session in Chinese: what people read of it, and what programs read of it, which stays as it is."""

from __future__ import annotations

import re
import shutil
import unicodedata
from textwrap import dedent
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = """
from pathlib import Path
import pytest

HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
    "Negative Inf Count,Positive Inf Count\\n"
)

@pytest.mark.npu_dump
@pytest.mark.parametrize("number", range(3))
def test_model(npu_dump, number):
    folder = Path(npu_dump.config["dump"]["dump_path"]) / "20260101010101" / "0"
    folder.mkdir(parents=True)
    text = HEADER + f"Output,0,16,DT_FLOAT,ND,4,{Path('maximum').read_text()},-1,0.25,4,0,0,0\\n"
    for layer in ("conv", "层/卷积", "softmax"):
        (folder / f"MatMul.{layer.replace('/', '_')}.1.2.1795228705885133.csv").write_text(text)
"""


@pytest.fixture
def regressed(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project whose goldens say 1 where its dumps say 1.5."""
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\nnpudump_runtime = emulator\n")
    pytester.makepyfile(test_it=dedent(PROJECT))
    maximum = pytester.path / "maximum"
    maximum.write_text("1")
    recorded = pytester.runpytest_inprocess("--npudump-update-golden", "--npudump-lang=zh")
    assert recorded.ret == 0, recorded.stdout.str()
    maximum.write_text("1.5")
    return pytester


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_durations(path: Path) -> str:
    text = re.sub(r' (time|timestamp|hostname)="[^"]*"', "", path.read_text("utf-8"))
    ET.fromstring(text)  # noqa: S314 - pytest's own file
    return text


def test_the_failure_and_the_summary_are_chinese(regressed: pytest.Pytester) -> None:
    result = regressed.runpytest_inprocess("--npudump-lang=zh", "-k", "0")
    result.assert_outcomes(failed=1, deselected=2)
    result.stdout.fnmatch_lines(
        [
            "npudump: * 有差异：max 为 1.5，应为 1*",
            "首个差异:   * 是第一个不匹配的张量*",
            "标杆:       *3 个张量中有 3 个不通过",
            "  层 * 类型 * 张量 * 统计量 * 标杆 * 实际 * 允许 * 偏差",
            "详情:       *report.txt",
            "批准:       pytest --npudump-update-golden 'test_it.py::test_model[[]0]'",
            "npudump: 1 个用例中 0 个正常*首个差异 *",
            "FAILED test_it.py::test_model[[]0] - npudump: *有差异*",
        ]
    )


def test_columns_align_where_characters_are_two_cells_wide(regressed: pytest.Pytester) -> None:
    result = regressed.runpytest_inprocess("--npudump-lang=zh", "-k", "0")
    head = next(at for at, line in enumerate(result.outlines) if line.startswith("  层"))
    starts = {cells(line, "output.0") for line in result.outlines[head + 1 : head + 4]}
    assert starts == {cells(result.outlines[head], "张量")}


def cells(line: str, word: str) -> int:
    """Cells of a terminal before a word, by Unicode's own table."""
    before = line[: line.index(word)]
    return sum(2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1 for letter in before)


def test_later_failures_are_chinese_in_short_too(regressed: pytest.Pytester) -> None:
    result = regressed.runpytest_inprocess("--npudump-lang=zh")
    result.assert_outcomes(failed=3)
    assert sum(line.startswith("批准:") for line in result.outlines) == 3
    assert sum(line.startswith("标杆:") for line in result.outlines) < 3
    assert not [line for line in result.outlines if line.startswith("to approve:")]


def test_the_locale_decides_where_no_option_does(
    regressed: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    regressed.runpytest_inprocess("-k", "0").stdout.fnmatch_lines(["首个差异:*"])
    regressed.runpytest_inprocess("-k", "0", "--npudump-lang=en").stdout.fnmatch_lines(["first: *"])


@pytest.mark.e2e
def test_workers_of_xdist_tell_the_controller(regressed: pytest.Pytester) -> None:
    result = regressed.runpytest_inprocess("--npudump-lang=zh", "-n1", "-k", "0")
    result.stdout.fnmatch_lines(["首个差异:*", "npudump: *"])


def test_isolated_tests_speak_too(regressed: pytest.Pytester) -> None:
    result = regressed.runpytest_inprocess("--npudump-lang=zh", "--npudump-isolation=process", "-k", "0")
    result.stdout.fnmatch_lines(["首个差异:*", "npudump: *"])


def test_what_programs_read_is_the_same_in_every_language(regressed: pytest.Pytester) -> None:
    written = {}
    for language in ("en", "zh"):
        shutil.rmtree("dumps", ignore_errors=True)
        result = regressed.runpytest_inprocess(
            f"--npudump-lang={language}",
            f"--junitxml={language}.xml",
            "--npudump-dump-dir=dumps",
            f"--npudump-summary={language}.md",
        )
        data = [path.read_bytes() for path in sorted((regressed.path / "dumps").rglob("report.json"))]
        assert len(data) == 3
        junit = without_durations(regressed.path / f"{language}.xml")
        summary = (regressed.path / f"{language}.md").read_text("utf-8")
        golden = files(regressed.path / "golden")
        written[language] = (result.ret, junit, summary, golden, data)
    english, chinese = written["en"], written["zh"]
    assert chinese[0] == english[0] == 1
    for there, here in zip(chinese[1:4], english[1:4], strict=True):
        assert there == here


def test_goldens_are_the_same_in_every_language(regressed: pytest.Pytester) -> None:
    before = files(regressed.path / "golden")
    (regressed.path / "maximum").write_text("1")
    regressed.runpytest_inprocess("--npudump-update-golden", "--npudump-lang=en").assert_outcomes(passed=3)
    assert files(regressed.path / "golden") == before


def test_what_refuses_a_run_or_a_test_is_chinese_and_english_in_junit(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\nnpudump_runtime = emulator\n")
    pytester.makepyfile(
        test_fixture="def test_it(npu_dump): pass",
        test_marker="import pytest\n@pytest.mark.npu_dump(rtol='a')\ndef test_it(): pass",
    )
    refused = pytester.runpytest_inprocess("--npudump-reason=why", "--npudump-lang=zh")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    assert "而本次运行不更新：请给出 --npudump-update-golden" in refused.stderr.str()
    failed = pytester.runpytest_inprocess("--npudump-lang=zh", "--junit-xml=it.xml", "test_fixture.py")
    assert "npudump: test_fixture.py::test_it 使用了 fixture npu_dump 却没有标记" in failed.stdout.str()
    assert "uses the fixture npu_dump without the marker" in (pytester.path / "it.xml").read_text("utf-8")
    marked = pytester.runpytest_inprocess("--npudump-lang=zh", "test_marker.py")
    assert "rtol：不允许 'a'，应为 不小于 0 的有限数" in marked.stdout.str()
    english = pytester.runpytest_inprocess("test_marker.py")
    assert "rtol: 'a' is not allowed, expected a finite number, 0 or greater" in english.stdout.str()
