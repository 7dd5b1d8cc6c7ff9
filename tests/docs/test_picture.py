"""The picture of a failure shows what the demonstration prints."""

from __future__ import annotations

import html
import importlib.util
import math
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
HEADLINE = r"Conv@21:output\.0 \w+ (\S+), expected (\S+) \((\S+)x tolerance\)"


def load(name: str) -> Any:
    """Return a module that makes a picture."""
    spec = importlib.util.spec_from_file_location(name, PICTURES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(PICTURES))  # as for a script, which finds the modules beside it
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(PICTURES))
    return module


@pytest.fixture(scope="module")
def script() -> Any:
    """The module that makes the picture of a failure."""
    return load("make_failure")


def text_of(svg: str) -> str:
    """Return the words of a picture, line by line from the top, each line from the left."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):  # noqa: S314 - our own file
        if "y" in element.attrib and "clip-path" in element.attrib:
            row = rows.setdefault(float(element.attrib["y"]), [])
            row.append((float(element.attrib["x"]), html.unescape(element.text or "")))
    return "\n".join(" ".join(word for _, word in sorted(rows[y])) for y in sorted(rows))


def words(text: str) -> list[str]:
    """Return words without numbers, whose last digits depend on the machine, and without ruled lines."""
    text = re.sub(r"[=_]{3,}", " ", text)
    return NUMBER.sub("#", text).split()


def test_the_picture_shows_what_the_demonstration_prints_today(
    script: Any, demonstration: tuple[Path, str]
) -> None:
    committed = text_of(script.PICTURE.read_text(encoding="utf-8"))
    made = text_of(script.picture(demonstration[1]))
    assert words(committed) == words(made), "run python docs/pictures/make_failure.py"
    shown, printed = (re.search(HEADLINE, " ".join(text.split())) for text in (committed, made))
    assert shown is not None
    assert printed is not None
    for one, other in zip(shown.groups(), printed.groups(), strict=True):
        assert math.isclose(float(one), float(other), rel_tol=0.02)


def test_the_picture_loads_nothing_from_elsewhere() -> None:
    svg = load("make_failure").PICTURE.read_text(encoding="utf-8")
    assert not re.search(r"url\((?!#)|@import|<script|href=", svg)
