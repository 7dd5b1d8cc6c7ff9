"""What errors, notes and reasons say is known again, and said in the language of who reads it."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

import pytest
from babel.messages.pofile import read_po

import pytest_npudump
from pytest_npudump.compare.patterns.likely_places import Place, place_words
from pytest_npudump.compare.patterns.pattern_search import Pattern
from pytest_npudump.errors import said
from pytest_npudump.language.catalogue import catalogue
from pytest_npudump.language.sentences import known_again
from pytest_npudump.language.translation import speaking, spoken

if TYPE_CHECKING:
    from collections.abc import Mapping


PACKAGE = Path(pytest_npudump.__file__).parent
PATH = PACKAGE / "language" / "catalogues" / "zh.sentences.po"
_MARKS = frozenset({"_", "gettext", "mark", "said", "ngettext", "Option"})
"""Functions that mark a message, and what makes an option of pytest, whose help stands among pytest's own."""
_ENGLISH = frozenset(
    {
        *("cli", "report", "notebook", "language"),  # what these say is marked where it is said
        *("emulator", "onnxmodels"),  # what the emulated driver answers, as CANN's own does
        *("testing", "strategies"),  # what programmers of tests and runtimes read
        *("demo", "explain/reproduction"),  # files that are written, and what stands beside them
    }
)
"""Of rooms no catalogue has the sentences: why; docs/reference/chinese.md says so."""


def _sources() -> Any:
    """Return the module beside this file; in importlib mode no folder of tests is on the path."""
    spec = importlib.util.spec_from_file_location(
        "npudump_sentences", Path(__file__).with_name("sentence_sources.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCES = _sources()


@pytest.fixture(scope="module")
def found() -> Mapping[str, str]:
    """Return every sentence with the first file that has it."""
    told: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if _ENGLISH.isdisjoint({place.parts[0], place.parent.as_posix(), place.as_posix()}):
            for one in SOURCES.sentences(path.read_text("utf-8"), _MARKS):
                told.setdefault(one, f"pytest_npudump/{place}")
    return told


@pytest.fixture(scope="module")
def not_said() -> frozenset[str]:
    """Return what looks like a sentence and is none that people are told: data, code, headings of columns."""
    lines = Path(__file__).with_name("not_said.txt").read_text("utf-8").splitlines()
    return frozenset(map(ast.literal_eval, lines))


def entries() -> dict[str, str]:
    file = read_po(io.BytesIO(PATH.read_bytes()), locale="zh_CN", abort_invalid=True)
    assert [one.id for one in file if one.id and (one.fuzzy or not str(one.string).strip())] == []
    return {str(one.id): str(one.string) for one in file if one.id}


def test_the_catalogue_has_every_sentence_and_no_other(
    found: Mapping[str, str], not_said: frozenset[str]
) -> None:
    known = entries()
    lacking = "".join(
        f'\n\n#: {place}\nmsgid {json.dumps(one, ensure_ascii=False)}\nmsgstr ""'
        for one, place in found.items()
        if not (one in known or one in not_said or one in catalogue("zh"))
    )
    assert not lacking, f"entries to add to {PATH.name}, or to not_said.txt:{lacking}"
    assert sorted(known.keys() - found.keys()) == [], f"entries to remove from {PATH.name}"
    assert sorted(not_said - found.keys()) == [], "lines to remove from not_said.txt"


def _names(message: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(message) if name is not None}


def test_a_translation_has_the_placeholders_of_its_sentence() -> None:
    assert [one for one, told in entries().items() if _names(one) != _names(told)] == []


def test_each_sentence_is_known_again_whatever_its_values_are() -> None:
    values = {
        **dict.fromkeys(("number", "length", "total", "begin", "end"), "7"),
        "one_line": "row",
        "several_lines": "rows",
        "plural": "rows",
        "lines_along": "rows",
    }
    other = []
    for english, chinese in entries().items():
        told = {name: values.get(name, f"X{at}") for at, name in enumerate(sorted(_names(english)))}
        words = {name: "行" if value.startswith("row") else value for name, value in told.items()}
        again = known_again(english.format(**told), "zh")
        if again is None or sorted(again) != sorted(chinese.format(**words)):
            other.append((english, again))
    assert other == []


_PLACES = [
    (Place((40, 37), ((1, range(32, 37)),)), ""),
    (Place((4, 16, 24, 8), ((1, (3, 4, 9)), (2, range(4)))), "NCHW"),
    (Place((9, 8, 4), ((0, range(3, 5)),)), "ND"),
    (Place((9, 8, 4), ((0, (1, 2, 7)),)), "ND"),
    (Place((40, 37), ((1, range(5, 6)),)), ""),
    (Place((40, 32), ((1, range(16, 32)),)), ""),
    (Place((40, 8), ((1, range(0, 8, 2)),)), ""),
    (Place((4, 25), (), (75, 100)), ""),
    (Place((4, 25), (), (3, 17)), ""),
    (Place((4, 25), (), (3, 4)), ""),
    (Place((4, 25), ()), ""),
]


@pytest.mark.each(("place", "layout"), _PLACES)
def test_a_place_in_a_tensor_is_known_again_in_whole(place: Place, layout: str) -> None:
    pattern = Pattern("factor", place_words(place, layout), "multiplied by 2", 0.95)
    with speaking("zh"):
        told = spoken(str(pattern))
    assert "乘以了 2" in told
    assert "95 %" in told
    words = "".join(sign if sign.isascii() and sign.isalpha() else " " for sign in told).split()
    assert set(words) <= {"nd", "th"}, told


def test_a_layer_named_like_words_stays_as_it_is() -> None:
    with speaking("zh"):
        assert spoken("conv1 of row") == "conv1 of row"
        told = spoken(
            "layer rows in columns, named in the marker, is not in the dump; the dump has 1 layers: x"
        )
    assert told == "标记中指定的层 rows in columns 不在 dump 中；dump 有 1 层：x"


def test_what_a_child_process_or_a_file_had_meanwhile_is_known_again() -> None:
    why = said("the process that asked {ended}: {reason}", ended="ended with 3", reason="no such device")
    with speaking("zh"):
        assert spoken(json.loads(json.dumps(why))) == "用于询问的进程以 3 结束：no such device"


def test_a_list_within_a_sentence_is_no_end_of_it() -> None:
    with speaking("zh"):
        assert spoken('write one of "all", "input", "output"') == '请写 "all", "input", "output" 之一'


def test_ranks_are_numbered_from_zero_in_any_language() -> None:
    with speaking("zh"):
        assert spoken("rank 1 of 2") == "rank 1（共 2 个）"


def test_many_braces_and_long_texts_take_no_time() -> None:
    with speaking("zh"):
        text = "{" * 5000 + ": " * 500 + " of a is b, c; d" * 50
        assert isinstance(spoken(text), str)


@pytest.mark.e2e
def test_english_knows_no_sentences() -> None:
    code = """
import sys
from pytest_npudump.language.translation import spoken
assert spoken("the file is empty") == "the file is empty"
assert not {"pytest_npudump.language.sentences", "pytest_npudump.language.sentences"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
