"""The marker: its text in ``pytest --markers``, the tests that carry it, and since when.

It has two spellings. A mark that is nearly one of them is taken for a misspelling, and is no mark of another
plugin: its test would pass without having been judged. All that a session without a marked test imports of
the marker.
"""

from __future__ import annotations

import operator
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from pathlib import Path
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, Final

import pytest

from pytest_npudump.errors import said
from pytest_npudump.plugin import _compat

MARKER = "npu_dump"
MARKERS: Final = (MARKER, "npudump")
"""The spellings of the marker; the first one is that of the documentation."""
_MARKS = pytest.StashKey[tuple[pytest.Mark, ...]]()

ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "layers": "operator names or globs; default: all. A name that exists means itself (blk[12]); one "
        "character in brackets is an index (blk[1]). With globs CANN dumps everything, which takes longer",
        "scene": "'model' (default), 'op' for single operators, 'check_op' for operators against a "
        "reference, 'modules' for torch modules or MindSpore cells (no dump), 'overflow', 'watcher' or "
        "'exception'",
        "rtol, atol": "tolerance of this test's floating-point statistics; default of the other: 0",
        "tolerances": "rules: [{'layer': 'conv*', 'rtol': 1e-2, 'atol': 0, 'reason': '...'}]",
        "preset": "tolerance preset, also for the reference",
        "reference, map": "ONNX model to compare with, and a YAML file of layers with other names in it",
        "golden_tensors": "names or globs of layers whose tensors are kept, or 'auto'",
        "acl_json": "dict of acl.json's keys, such as {'dump_mode': 'all', 'dump_data': 'tensor'}",
        "data_dump": "dict of further keys of data_dump.json, for MindSpore",
        "repeats": "runs per recording, in place of npudump_repeats",
        "escalate": "False: no second run",
        "isolation": "'process': a child process per run; a number: the same, with a limit in seconds; False "
        "or 'none': pytest's process",
        "ranks": "'each' rank has its own golden (default), or all share the 'same'",
        "devices": "number of devices",
        "graph": "file with the graph edges, for runtimes without them (TorchAir, eager calls): an om, ATC's "
        ".json, GE's .txt or .pbtxt, or an ONNX model with the dump's names. It changes no verdict",
    }
)
"""Arguments of the marker, those of one meaning together, and what they say."""
_NAMES = frozenset(name for names in ARGUMENTS for name in names.split(", "))


def marker_line(name: str) -> str:
    """Return the text that is registered for the spelling ``name`` of the marker."""
    if name != MARKER:
        return f"{name}(...): another spelling of the marker {MARKER} (pytest-npudump)."
    lines = [f"  {arguments}: {meaning}" for arguments, meaning in ARGUMENTS.items()]
    purpose = "run the test under ACL dump and compare its layers with a golden file (pytest-npudump)."
    return "\n".join([f"{name}(layers=None, *, ...): {purpose} Arguments:", *lines])


def is_marked(item: pytest.Item) -> bool:
    """Return whether the test runs under dump: it, its class or its module had the marker when collected."""
    return _MARKS in item.stash


def marks_of(item: pytest.Item) -> tuple[pytest.Mark, ...]:
    """Return the markers that count for a test, the closest first."""
    return item.stash.get(_MARKS, ())


def take_marks(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Take the markers that the tests carry now for those that count.

    Returns:
        The tests whose markers are other than at the last time, each with one at least, and those with a mark
        that is a misspelt one.
    """
    changed = []
    for item in items:
        carries = _carries_marker(item)
        marks = _marks_now(item) if carries else ()
        if not marks and _MARKS in item.stash:
            del item.stash[_MARKS]
        elif not _are_the_same(marks, item.stash.get(_MARKS, ())):
            item.stash[_MARKS] = marks
            changed.append(item)
            continue
        if carries and misspelling(item):
            changed.append(item)
    return changed


def late_marker(item: pytest.Item) -> str:
    """Describe a marker that came after the collection; "" for none."""
    counted, carries = item.stash.get(_MARKS, ()), _carries_marker(item)
    if carries and (text := misspelling(item)):
        return text
    if _are_the_same(_marks_now(item) if carries else (), counted):
        return ""
    what = "changed on this test" if counted else "added to this test"
    return (
        f"the marker {MARKER} was {what} while tests were running (by a fixture, a hook or "
        "the test itself), too late to have any effect: the dump begins before a test's "
        "fixtures. Nothing was compared and nothing recorded; decorate the test, or add the "
        "marker in pytest_collection_modifyitems of a conftest.py"
    )


def unknown_fixture(item: pytest.Item) -> str:
    """Describe a fixture that is meant for the plugin's; "" for none."""
    for name in getattr(item, "fixturenames", ()):
        if name != MARKER and _plain(name) == MARKERS[1] and not _compat.has_fixture(item, name):
            return said("there is no fixture {name}: the plugin's is {fixture}", name=name, fixture=MARKER)
    return ""


def misspelling(item: pytest.Item) -> str:
    """Describe a mark that is meant for the marker; "" where the test has none.

    So is one that differs in case and separators only; else a mark that nobody has registered and that is no
    other processor's, if it is one edit away (a character more, fewer, other, or two swapped), or two and
    begins with ``np`` or has no other letters, or is its beginning, or has the marker's words, or ``dump``
    and another name of the platform, or one of its words and an argument of the marker's by name.
    """
    for mark in item.iter_markers():
        name = getattr(mark, "name", None)
        if not isinstance(name, str) or name in MARKERS or not _may_be_meant(name, mark):
            continue
        told = said(
            "unknown mark {name}, with which the test would not be compared: write @pytest.mark.{marker}",
            name=name,
            marker=MARKER,
        )
        plain = _plain(name)
        if plain == MARKERS[1]:
            return told
        of_another = plain.startswith(_OTHER_PROCESSORS) and MARKERS[1] not in plain
        if of_another or name in _registered(*item.config.getini("markers")):
            continue
        if not _resembles(name):
            arguments = ", ".join(sorted(_NAMES.intersection(mark.kwargs)))
            told += said(", whose arguments it has: {arguments}", arguments=arguments)
        return told + said("; register a mark of your own under markers")
    return ""


def unread_marks(
    collector: pytest.Collector, collected: Sequence[pytest.Item | pytest.Collector]
) -> Iterator[str]:
    """Describe each use of the marker that nothing reads.

    That is a name that is nearly ``pytestmark``, in a module or class or one that it inherits from,
    ``pytestmark`` in the package around the module, a marked function within a test that is not marked, and
    a marked function or class that is no test by its name.
    """
    own = type(collector) in {pytest.Module, pytest.Class}
    if not own and not any(isinstance(node, (pytest.Function, pytest.Class)) for node in collected):
        return
    owner: Any = getattr(collector, "obj", None)
    for one in owner.__mro__ if isinstance(owner, type) else [owner]:
        others = (name for name in _names_of_marker(one) if name != "pytestmark")
        yield from (said("{name} marks no test: pytest reads pytestmark", name=name) for name in others)
    rules = ("python_functions", "python_classes")
    for name in _uncollected(owner, collected) if own else ():
        yield said(
            "{name} has the marker, and pytest collects no test of it ({rules}); __test__ = False says so",
            name=name,
            rules=", ".join(f"{rule}: {' '.join(collector.config.getini(rule))}" for rule in rules),
        )
    for node in collected:
        if isinstance(node, pytest.Function) and not _marks_now(node) and _wraps_marked(node.obj):
            yield said(
                "{name} is not marked: a decorator hides the marks of the function that it wraps; use "
                "functools.wraps in it, or put the marker above it",
                name=node.name,
            )
    package = "" if isinstance(owner, type) else str(getattr(owner, "__name__", ""))
    while package := package.rpartition(".")[0]:
        yield from _unread_in(sys.modules.get(package), collector.config)


def _uncollected(owner: Any, collected: Sequence[pytest.Item | pytest.Collector]) -> Iterator[str]:
    """Yield names in a module or class of what has the marker, and is neither a test nor a base of one."""
    marked = {
        name: function
        for name, value in vars(owner).items()
        if isinstance(function := getattr(value, "__func__", value), (FunctionType, type))
        and _has_marker(vars(function).get("pytestmark"))
        and getattr(function, "__test__", True)
        and (isinstance(owner, type) or function.__module__ == owner.__name__)  # else another module's
    }
    whole = isinstance(owner, type) and not collected and _has_marker(vars(owner).get("pytestmark"))
    if whole and not owner.__subclasses__() and getattr(owner, "__test__", True):
        yield owner.__name__
    if not marked:
        return
    names = {getattr(node, "originalname", None) or node.name for node in collected}
    objects = [getattr(node, "obj", None) for node in collected]
    known = {id(one) for test in objects for one in (test, getattr(test, "__wrapped__", None))}
    for value in vars(owner).values():
        known.update(map(id, value.__mro__[1:]) if isinstance(value, type) else ())
    yield from (name for name, one in marked.items() if name not in names and id(one) not in known)


def unread_in_conftests(config: pytest.Config) -> Iterator[str]:
    """Describe each ``pytestmark`` in a conftest.py, which pytest does not read."""
    for plugin in config.pluginmanager.get_plugins():
        if isinstance(plugin, ModuleType) and Path(plugin.__file__ or "").name == "conftest.py":
            yield from _unread_in(plugin, config)


def _wraps_marked(function: Any, depth: int = 8) -> bool:
    """Return whether a function calls one that has the marker, as decorators and ``functools.partial`` do."""
    inner = [getattr(function, "func", None)]
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # empty as yet
            inner.append(cell.cell_contents)
    return any(
        _has_marker(getattr(one, "pytestmark", None)) or (depth > 0 and _wraps_marked(one, depth - 1))
        for one in inner
        if isinstance(one, (FunctionType, partial))
    )


def _unread_in(module: ModuleType | None, config: pytest.Config) -> Iterator[str]:
    for name in _names_of_marker(module):
        file = Path(getattr(module, "__file__", None) or "")
        inside = file.is_relative_to(config.rootpath)
        yield said(
            "{name} in {path} marks no test: pytest reads pytestmark in test modules and classes only",
            name=name,
            path=(file.relative_to(config.rootpath) if inside else file).as_posix(),
        )


def _names_of_marker(owner: object) -> Iterator[str]:
    """Yield the names in a module or class that are ``pytestmark``, or nearly, and have the marker."""
    for name, value in vars(owner).items() if owner is not None else ():
        if type(value) not in _KINDS_OF_MARKS or not isinstance(name, str):
            continue
        # What begins otherwise and is two edits away is a name of its own, such as test_mark.
        edits = _NEAR if name[:2].lower() == "py" else 1
        if _distance(name, "pytestmark") <= edits and _has_marker(value):
            yield name


def _has_marker(marks: Any) -> bool:
    """Return whether the marker is among what ``pytestmark`` holds: one mark, or some."""
    some = marks if isinstance(marks, (list, tuple)) else [marks]
    return any(getattr(mark, "name", None) in MARKERS for mark in some)


def for_all_spellings(expression: str) -> str:
    """Return an expression of ``-m`` that takes every spelling where it names one of them."""

    def every(found: re.Match[str]) -> str:
        if found["name"] not in MARKERS:
            return found[0]
        return f"({' or '.join(name + (found['call'] or '') for name in MARKERS)})"

    return _NAME_IN_EXPRESSION.sub(every, expression)


_NAME_IN_EXPRESSION = re.compile(
    r"""(?:and|or|not)(?![\w:+\-.\[\]\\/])"""
    r"""|(?P<name>[\w:+\-.\[\]\\/]+)(?P<call>\s*\((?:'[^']*'|"[^"]*"|[^()'"])*\))?"""
)
"""A word of an expression of ``-m``; a mark, with the arguments that it is to have (pytest 8.3)."""
_KINDS_OF_MARKS = frozenset({pytest.MarkDecorator, pytest.Mark, list, tuple})
_NEAR = 2
_LETTERS = Counter(f"{MARKERS[1]}s")
_WORDS = ("npu", "dump")
_PLATFORMS = ("npu", "ascend", "cann", "acl")
_OTHER_PROCESSORS = ("apu", "cpu", "dpu", "gpu", "hpu", "ipu", "lpu", "mlu", "tpu", "vpu", "xpu")
"""Beginnings of marks about another processor, which are no misspellings."""


@lru_cache(maxsize=1)
def _registered(*lines: str) -> frozenset[str]:
    return frozenset(re.split(r"[:(]", line)[0].strip() for line in lines)


def _may_be_meant(name: str, mark: pytest.Mark) -> bool:
    # Marks of other plugins have arguments of the same names: rtol, timeout, devices.
    related = any(word in _plain(name) for word in _WORDS)
    return _resembles(name) or (related and not _NAMES.isdisjoint(getattr(mark, "kwargs", ())))


@cache
def _resembles(name: str) -> bool:
    """Return whether the name of a mark is the marker's, near to it, or made of its words."""
    plain, edits = _plain(name), _distance(name)
    if edits < _NEAR or (edits == _NEAR and (plain.startswith("np") or not Counter(plain) - _LETTERS)):
        return True
    words = set(re.split(r"[\W_]+", name.casefold()))
    if len(plain) > _NEAR + 1 and MARKERS[1].startswith(plain):
        return True
    return any(f"{one}dump" in plain or f"dump{one}" in plain or {one, "dump"} <= words for one in _PLATFORMS)


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


@cache
def _distance(name: str, marker: str = MARKERS[1]) -> int:
    """Count the edits between a mark's name and the marker's, case and separators aside."""
    name = _plain(name)
    if abs(len(name) - len(marker)) > _NEAR:
        return _NEAR + 1
    rows: list[list[int]] = [[*range(len(marker) + 1)]]
    for at, one in enumerate(name, 1):
        row = [at]
        for place, other in enumerate(marker, 1):
            row.append(min(rows[-1][place] + 1, row[-1] + 1, rows[-1][place - 1] + (one != other)))
            if at > 1 and place > 1 and (one, name[at - 2]) == (marker[place - 2], other):
                row[-1] = min(row[-1], rows[-2][place - 2] + 1)
        rows.append(row)
    return rows[-1][-1]


def _carries_marker(item: pytest.Item) -> bool:
    """Return whether the test has a mark that is the marker or may be meant for it."""
    # Every unmarked test of a session is asked five times: a quarter of the time of iter_markers.
    node: pytest.Item | pytest.Collector | None = item
    while node is not None:
        for mark in node.own_markers:
            name = getattr(mark, "name", None)
            if isinstance(name, str) and _may_be_meant(name, mark):
                return True
        node = node.parent
    return False


def _marks_now(item: pytest.Item) -> tuple[pytest.Mark, ...]:
    return tuple(mark for mark in item.iter_markers() if getattr(mark, "name", None) in MARKERS)


def _are_the_same(some: tuple[pytest.Mark, ...], others: tuple[pytest.Mark, ...]) -> bool:
    # By identity: arguments may be arrays, which have no single answer to whether they are equal.
    return len(some) == len(others) and all(map(operator.is_, some, others))
