"""What is spoken, and when."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pytest_npudump.language import chosen
from pytest_npudump.language.translation import gettext, is_english, mark, ngettext, speaking


@pytest.mark.each(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW"}, "zh"),
        ({"LANG": "en_GB.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, "zh"),
    ],
)
def test_auto_is_what_the_locale_says(environment: dict[str, str], language: str) -> None:
    assert chosen("auto", environment) == language
    assert chosen("en", environment) == "en"
    assert chosen("zh", environment) == "zh"


def test_chinese_is_spoken_inside_and_english_around_it() -> None:
    assert gettext("passed") == "passed"
    with speaking("zh"):
        assert gettext("passed") == "通过"
        with speaking("en"):
            assert is_english()
            assert gettext("passed") == "passed"
        assert not is_english()
    assert gettext("passed") == "passed"


def test_a_failure_inside_leaves_english() -> None:
    def fail() -> None:
        with speaking("zh"):
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert is_english()


def test_what_no_catalogue_has_stays_as_it_is() -> None:
    with speaking("zh"):
        assert gettext("no such message") == "no such message"
        assert ngettext("one thing", "{count} things", 2) == "{count} things"


def test_a_plural_has_the_form_of_its_number() -> None:
    forms = [ngettext("{count} layer", "{count} layers", count).format(count=count) for count in (0, 1, 2)]
    assert forms == ["0 layers", "1 layer", "2 layers"]
    with speaking("zh"):
        assert ngettext("{count} layer", "{count} layers", 1).format(count=1) == "1 层"


def test_what_is_marked_is_not_translated_where_it_is() -> None:
    with speaking("zh"):
        assert mark("passed") == "passed"


@pytest.mark.e2e
def test_the_plugin_and_the_command_read_no_catalogue_in_english() -> None:
    code = """
import sys
import pytest_npudump.plugin
assert "pytest_npudump.language.translation" not in sys.modules
from pytest_npudump.cli import main
try:
    main(["compare", "--help"])
except SystemExit:
    pass
assert not {"pytest_npudump.language.catalogue", "rich"} & sys.modules.keys()
"""
    english = {**os.environ, "LC_ALL": "C.UTF-8"}
    subprocess.run([sys.executable, "-c", code], check=True, env=english, stdout=subprocess.DEVNULL)


def test_a_line_that_asks_is_in_the_language_that_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_npudump.cli.golden import waiting

    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "a"

    monkeypatch.setattr("builtins.input", answer)
    with speaking("zh"):
        assert waiting._line(gettext(waiting._QUESTION)) == "a"
    assert asked[0].startswith("a 接受，r 拒绝")
