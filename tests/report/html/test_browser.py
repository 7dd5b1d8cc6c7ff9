"""The page in a real Chromium: it loads without a word on the console, sorts, filters, and unfolds."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.language.translation import speaking
from pytest_npudump.report.html.page import page
from pytest_npudump.report.view import BAD, OUTSIDE, SessionView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


BROWSER, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
PROMISED = os.environ.get("NPUDUMP_TEST_BROWSER") == "1"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (BROWSER and DRIVER) and not PROMISED,
        reason="chromium and chromedriver (Debian's packages chromium, chromium-driver) are not installed",
    ),
]
READY = (
    "return [...document.querySelectorAll('details[open] > .body > .tensors')].every(e => e.dataset.ready)"
)
ROWS = "return [...document.querySelectorAll('.list tbody tr[data-at] .key')].map(e => e.textContent)"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    assert BROWSER, "NPUDUMP_TEST_BROWSER=1 promises chromium"
    assert DRIVER, "NPUDUMP_TEST_BROWSER=1 promises chromedriver"
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    profile = tmp_path_factory.mktemp("profile")
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def shown(chromium: Any, tmp_path: Path) -> Callable[..., Any]:
    """Show a session in a window of a width, once its tables are there."""

    def show(view: SessionView, width: int = 1280, language: str = "en") -> Any:
        from selenium.webdriver.support.wait import WebDriverWait

        path = tmp_path / "index.html"
        with speaking(language):
            path.write_text(page(view), encoding="utf-8")
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        chromium.get(path.as_uri())
        WebDriverWait(chromium, 30).until(lambda driver: driver.execute_script(READY))
        return chromium

    return show


def click(driver: Any, selector: str) -> None:
    driver.execute_script("document.querySelector(arguments[0]).click()", selector)


def test_a_chinese_page_is_chinese_to_its_last_button(
    shown: Callable[..., Any], session: SessionView
) -> None:
    driver = shown(session, language="zh")
    assert driver.get_log("browser") == []
    heads = driver.execute_script(
        "return [...document.querySelectorAll('.list thead')[0].innerText.split(/\\s+/)]"
    )
    assert {"标杆", "容差"} <= {*heads}
    options = driver.execute_script("return [...document.querySelector('select').options].map(o => o.text)")
    assert options[0] == "全部张量"
    assert "仅源头" in options
    click(driver, ".list .key")
    left = driver.execute_script("return document.querySelector('.tools').innerText")
    assert "显示" in left
    assert driver.get_log("browser") == []


def test_loads_without_errors_requests_and_scripts_of_names_and_sorts_by_a_column_and_back(
    shown: Callable[..., Any], session: SessionView
) -> None:
    driver = shown(session)
    assert driver.get_log("browser") == []
    assert driver.title == "npudump report"
    assert driver.execute_script("return performance.getEntriesByType('resource').length") <= 1  # the map
    first = driver.execute_script(ROWS)
    assert first[0].startswith("</script><script>document.title='owned'</script>")
    for reverse in (False, True):
        click(driver, ".list th:nth-child(2) button")
        ordered = sorted(first, key=lambda text: text.encode("utf-16-be"), reverse=reverse)
        assert driver.execute_script(ROWS) == ordered
    click(driver, ".list th:last-child button")
    cells = "document.querySelectorAll('.list tr[data-at] td:last-child')"
    shares = driver.execute_script(f"return [...{cells}].map(e => e.textContent)")
    assert shares[0] == "∞"
    numbers = [float(text[:-1]) for text in shares[1:]]
    assert numbers == sorted(numbers, reverse=True)


def test_light_and_dark_are_chosen_or_the_systems_and_long_names_break_no_type(
    shown: Callable[..., Any], session: SessionView
) -> None:
    driver = shown(session)
    ground = "return getComputedStyle(document.body).backgroundColor"
    found = {"system": driver.execute_script(ground)}
    for name in ("light", "dark"):
        click(driver, "#theme")
        assert driver.find_element("css selector", "#theme").text == f"Theme: {name}"
        found[name] = driver.execute_script(ground)
    click(driver, "#theme")
    assert found["light"] != found["dark"]
    assert found["system"] in {found["light"], found["dark"]}
    driver.execute_script(
        "document.querySelector('.list .key').textContent = 'long/name_of.a-layer/'.repeat(30)"
    )
    heights = driver.execute_script(
        "return [...document.querySelectorAll('.list tbody tr[data-at] td:nth-child(3)')]"
        ".map(e => { const r = document.createRange(); r.selectNodeContents(e);"
        "return r.getClientRects().length; })"
    )
    assert set(heights) == {1}


def test_totals_show_tests_of_their_kind_and_keys_go_from_test_to_test(
    shown: Callable[..., Any], session: SessionView
) -> None:
    driver = shown(session)
    words = "return [...document.querySelectorAll('.test:not([hidden]), tr[data-word]:not([hidden])')]"
    words += ".map(e => e.dataset.word)"
    every = driver.execute_script(words)
    click(driver, ".total.bad")
    assert {*driver.execute_script(words)} == {"bad"} < {*every}
    press = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'j', bubbles: true}));"
    at = driver.execute_script(f"{press} return document.activeElement.closest('.test').id")
    first = "return document.querySelector('.test:not([hidden])').id"
    assert at == driver.execute_script(first)
    click(driver, ".total.bad")
    assert driver.execute_script(words) == every
    assert driver.get_log("browser") == []


def test_filters_by_state_and_searches_names(shown: Callable[..., Any], session: SessionView) -> None:
    driver = shown(session)
    set_filter = (
        "const s = document.querySelector('.tools select'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('change'));"
    )
    failing = driver.execute_script(ROWS)
    driver.execute_script(set_filter, "all")
    assert len(driver.execute_script(ROWS)) == len(session.tests[0].tensors) > len(failing)
    driver.execute_script(set_filter, "0")
    assert len(driver.execute_script(ROWS)) == 1
    driver.execute_script(set_filter, "all")
    driver.find_element("css selector", ".tools input").send_keys("卷积")
    assert driver.execute_script(ROWS) == ["层/卷积:output.0"]
    assert "1 of 1 shown" in driver.find_element("css selector", ".shown").text


def test_the_keyboard_unfolds_both_statistics_and_a_bar_of_the_strip_leads_to_its_tensor(
    shown: Callable[..., Any], session: SessionView
) -> None:
    driver = shown(session)
    driver.find_element("css selector", ".list .key").send_keys("\ue007")
    detail = driver.find_element("css selector", ".detail")
    assert detail.find_element("css selector", ".detail table tbody tr").text.split()[:2] == ["max", "1.5"]
    assert driver.switch_to.active_element.get_attribute("aria-expanded") == "true"
    driver.switch_to.active_element.send_keys("\ue007")
    assert driver.find_elements("css selector", ".detail") == []
    click_bar = "new MouseEvent('click', {bubbles: true})"
    driver.execute_script(f"document.querySelector('.strip .changed rect').dispatchEvent({click_bar})")
    assert driver.execute_script(ROWS) == ["net/layer_8:output.0"]
    assert driver.find_elements("css selector", ".detail")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [1280, 400])
def test_no_window_is_too_narrow_for_rows_overview_words_and_numbers(
    shown: Callable[..., Any], session: SessionView, width: int, language: str
) -> None:
    driver = shown(session, width, language)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    numbers = driver.execute_script(
        "return [...document.querySelector('.list > tbody > tr').querySelectorAll('.number')]"
        ".map(e => e.innerText.length * e.offsetWidth)"
    )
    assert len(numbers) == 4
    assert all(numbers)
    assert driver.execute_script(
        "const e = document.querySelector('.rows'); return e.scrollWidth <= e.clientWidth"
    )
    sides, left, words, lines = driver.execute_script(
        "const frame = document.querySelector('.strip-frame');"
        "const places = (root, what) => [...root.querySelectorAll(what)].map(e => e.getBoundingClientRect());"
        "return [places(document, '.overview td').map(e => e.right),"
        "frame.getBoundingClientRect().left, places(frame, '.tick').map(e => e.left),"
        "[...document.querySelectorAll('details[open] .card td')].map(e => e.getClientRects()[0].height)]"
    )
    assert sides
    assert max(sides) <= width
    assert words
    assert min(words) >= left
    assert lines
    assert max(lines) < 45


def test_on_paper_ink_is_dark_and_graphs_are_whole(shown: Callable[..., Any], session: SessionView) -> None:
    driver = shown(session)
    driver.execute_script("document.documentElement.dataset.theme = 'dark'")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 700, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    try:
        ink, *rights = driver.execute_script(
            "return [getComputedStyle(document.body).color,"
            "...[...document.querySelectorAll('svg, .card img')]"
            ".filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect().right)]"
        )
        buttons = driver.execute_script(
            "return [...document.querySelectorAll('button')].filter(e => e.checkVisibility())"
            ".filter(e => !e.matches('.key, th *')).map(e => e.textContent)"
        )
        headings = driver.execute_script(
            "return [...document.querySelectorAll('details[open] .list th button')]"
            ".filter(e => e.checkVisibility()).length"
        )
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert ink == "rgb(27, 30, 36)"
    assert rights
    assert max(rights) <= 700
    assert buttons == []
    assert headings


def test_ten_thousand_layers_are_found_by_name(
    shown: Callable[..., Any], large: Callable[[str], SessionView]
) -> None:
    driver = shown(large(OUTSIDE))
    assert len(driver.execute_script(ROWS)) == 100
    driver.find_element("css selector", ".tools input").send_keys("layers.125/source")
    assert driver.execute_script(ROWS) == [".../layers.125/source:output.0"]
    said = driver.find_element("css selector", ".tensors").text
    assert "names that start with .../ begin with model/decoder/" in said
    assert driver.get_log("browser") == []


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (400, 800)])
def test_the_first_screen_has_where_how_bad_why_and_what_next_of_the_first_failure(
    shown: Callable[..., Any], session: SessionView, width: int, height: int, language: str
) -> None:
    why = (
        "second run: reproduced",
        "recomputed: 216 operators match angle_classifier.onnx on the same inputs: Conv@21, Conv@0, 214 more",
        f"elements:   {'Conv@21:output.0: 4608 of 4608 out of tolerance of the golden tensor; ' * 2}",
    )
    line = "Conv@21: weights changed (1 of 108 operators with weights); first mismatch: Conv@21:output.0"
    out = ("to accept:  pytest --npudump-update-golden test_angle_classifier.py::test_angle",)
    failed = next(test for test in session.tests if test.tensors)
    tests = [
        replace(
            failed,
            name=f"test_angle_classifier.py::test_angle[{at}]",
            word=BAD,
            headline=line,
            why=why,
            ways_out=out,
        )
        for at in range(6)
    ]
    driver = shown(SessionView(tuple(tests)), width, language)
    ends = driver.execute_script(
        "return [...document.querySelectorAll('#first .where, #first .measures, #first .why, #first .next')]"
        ".map(e => e.getBoundingClientRect().bottom)"
    )
    assert len(ends) == 4
    assert max(ends) <= height
    assert driver.execute_script("return document.querySelectorAll('.answers').length") == len(tests)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_one_test_needs_no_overview(shown: Callable[..., Any], session: SessionView) -> None:
    driver = shown(SessionView(session.tests[:1]))
    assert driver.find_elements("css selector", "#overview, #first") == []
    assert driver.find_elements("css selector", ".test .answers")
