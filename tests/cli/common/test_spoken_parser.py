"""The command line in the language asked for."""

from __future__ import annotations

import argparse
import io
import re
from pathlib import Path

import pytest

import pytest_npudump
from pytest_npudump.cli import ls, main
from pytest_npudump.cli.common.spoken_parser import SpokenParser, asked_language
from pytest_npudump.language.text import width
from pytest_npudump.language.translation import is_english, speaking

PAGES = Path(pytest_npudump.__file__).parent / "report"


@pytest.mark.each(
    ("words", "language"),
    [
        ([], "auto"),
        (["ls", "."], "auto"),
        (["--lang", "zh", "ls"], "zh"),
        (["ls", "--lang=zh"], "zh"),
        (["--lang", "zh", "ls", "--lang", "en"], "en"),
        (["ls", "--lang"], "auto"),
        (["--lang", "xx"], "auto"),
        (["--language", "zh"], "auto"),
    ],
)
def test_the_language_is_found_before_the_words_are_parsed(words: list[str], language: str) -> None:
    assert asked_language(words) == language


def test_help_is_chinese_where_it_is_asked_for_or_the_locale_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for words in (["--lang", "zh", "ls", "-h"], ["ls", "--lang=zh", "--help"]):
        with pytest.raises(SystemExit, match=r"^0$"):
            main(words)
        text = capsys.readouterr().out
        assert text.startswith("用法：npudump ls [-h] ")
        assert "按执行顺序列出 dump 中的张量" in text
        assert "options" not in text
        assert max(map(width, text.splitlines())) <= 60
        assert is_english()
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    for words, start in (["--help"], "用法："), (["--lang", "en", "--help"], "usage: "):
        with pytest.raises(SystemExit):
            main(words)
        assert capsys.readouterr().out.startswith(start)


def test_a_wrong_call_is_told_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    for words, error in (
        (["--lang", "zh", "compare", "a"], "npudump compare：错误：缺少必需的参数：ACTUAL"),
        (["--lang", "zh", "ls", "a", "b"], "npudump ls：错误：无法识别的参数：b"),
        (["ls", "--lang", "zh", "a", "--json"], "npudump ls：错误：参数 --json：需要一个参数"),
    ):
        with pytest.raises(SystemExit, match=r"^2$"):
            main(words)
        assert capsys.readouterr().err.splitlines()[-1] == error
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["--lang", "fr", "ls", "."])  # which there is not
    assert "argument --lang: expected auto, en, zh" in capsys.readouterr().err


def test_the_work_speaks_as_asked_and_an_abbreviated_option_is_refused_with_the_right_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ls, "run", lambda _: 0 if is_english() else 1)
    assert [main(words) for words in (["ls", "."], ["--lang", "zh", "ls", "."])] == [0, 1]
    for words, option in (
        (["ls", "--sta", "."], "--stats"),
        (["golden", "accept", "--al"], "--allow-in-ci"),
        (["golden", "status", "--prun", "--yes"], "--prune"),
    ):
        with pytest.raises(SystemExit, match=r"^2$"):
            main(words)
        assert f"did you mean {option}?" in capsys.readouterr().err


def test_the_page_of_failures_is_shown_without_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    for words, title in (([], "Causes"), (["--lang", "zh"], "原因")):
        with pytest.raises(SystemExit, match=r"^0$"):
            main([*words, "--explain"])
        shown = capsys.readouterr().out
        assert title in shown
        assert "second-run.md" not in shown
        assert 60 < max(map(width, shown.splitlines())) <= 72
        assert "pytest_npudump.errors" not in shown


def test_the_page_of_failures_has_the_same_parts_in_both_languages() -> None:
    pages = [
        (PAGES / name).read_text("utf-8").partition("\n## Errors")[0]
        for name in ("failures.md", "failures.zh.md")
    ]
    for part in (r"^## ", r"^\* ", r"^\d\. ", r"^\| ", r"^```"):
        english, chinese = (len(re.findall(part, page, re.MULTILINE)) for page in pages)
        assert english == chinese, part


def test_argparse_has_its_own_words_back_and_a_stream_that_has_no_chinese_gets_escapes() -> None:
    before = vars(argparse)["_"], vars(argparse)["ngettext"]
    with pytest.raises(SystemExit):
        main(["--lang", "zh", "--help"])
    assert (vars(argparse)["_"], vars(argparse)["ngettext"]) == before
    stream = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    with speaking("zh"):
        SpokenParser(prog="x", description="positional arguments").print_help(stream)
    stream.seek(0)
    assert "\\u4f4d\\u7f6e" in stream.read()
