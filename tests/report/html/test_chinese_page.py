"""The page in Chinese: its own words, and none of what it shows."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pytest_npudump.language.translation import speaking
from pytest_npudump.report.html.page import page

if TYPE_CHECKING:
    from pytest_npudump.report.view import SessionView


def text_of(session: SessionView, language: str) -> str:
    with speaking(language):
        return page(session)


def test_the_page_says_its_language_and_speaks_it(session: SessionView) -> None:
    text = text_of(session, "zh")
    assert '<html lang="zh-CN">' in text
    for words in ("精度回归报告", "误差与容差之比", "源头", "偏差最大的元素", "终端输出", "npudump 报告"):
        assert words in text
    for words in ("Numerical regression report", "Worst elements", "Skip to the tests"):
        assert words not in text


def test_the_script_gets_its_texts_as_data(session: SessionView) -> None:
    (data,) = re.findall(
        r'<script type="application/json" id="translations">(.*?)</script>', text_of(session, "zh"), re.DOTALL
    )
    words = json.loads(data)
    assert words["All tensors"] == "全部张量"
    assert words["source"] == "源头"
    assert "<" not in data


def test_an_english_page_has_no_catalogue(session: SessionView) -> None:
    text = text_of(session, "en")
    assert text == page(session)
    assert '<html lang="en">' in text
    assert 'translations">' not in text


def test_states_keep_their_names_for_the_style_sheet(session: SessionView) -> None:
    assert '<i class="source"' in text_of(session, "zh")
    assert 'class="源头"' not in text_of(session, "zh")
