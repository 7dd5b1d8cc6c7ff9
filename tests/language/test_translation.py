"""What is spoken, and when."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pytest_npudump.language import chosen, mark
from pytest_npudump.language.translation import gettext, is_english, ngettext, speaking


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
        assert (gettext("passed"), mark("passed")) == ("通过", "passed")
        with speaking("en"):
            assert is_english()
            assert gettext("passed") == "passed"
        assert not is_english()
        assert gettext("no such message") == "no such message"
        assert ngettext("one thing", "{count} things", 2) == "{count} things"
    assert gettext("passed") == "passed"


def test_a_failure_inside_leaves_english() -> None:
    with pytest.raises(LookupError), speaking("zh"):
        raise LookupError
    assert is_english()


def test_a_plural_has_the_form_of_its_number() -> None:
    forms = [ngettext("{count} layer", "{count} layers", count).format(count=count) for count in (0, 1, 2)]
    assert forms == ["0 layers", "1 layer", "2 layers"]
    with speaking("zh"):
        assert ngettext("{count} layer", "{count} layers", 1).format(count=1) == "1 层"


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
from pytest_npudump.language.translation import catalogue
assert "rich" not in sys.modules
assert not catalogue.cache_info().currsize
"""
    english = {**os.environ, "LC_ALL": "C.UTF-8"}
    subprocess.run([sys.executable, "-c", code], check=True, env=english, stdout=subprocess.DEVNULL)
