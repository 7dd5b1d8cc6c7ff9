"""The marker: what ``pytest --markers`` says of it, which tests carry it, and since when.

It has two spellings. A mark that is nearly one of them is taken for a misspelling, and is no mark of another
plugin: its test would pass without having been judged. All that a session without a marked test imports of
the marker.
"""

from __future__ import annotations

import operator
import re
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pytest

from pytest_npudump.errors import said

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


MARKER = "npu_dump"
MARKERS: Final = (MARKER, "npudump")
"""The spellings of the marker; the first one is that of the documentation."""
_MARKS = pytest.StashKey[tuple[pytest.Mark, ...]]()

ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "layers": "operator names or globs; none: every layer",
        "scene": "model (default), op, overflow, watcher or exception",
        "acl_json": "dict of acl.json's own keys, such as {'dump_mode': 'all', 'dump_data': 'tensor'}",
        "data_dump": "further keys of MindSpore's data_dump.json",
        "golden_tensors": "layers whose tensors are kept beside the golden",
        "rtol, atol": "tolerance of floating-point statistics; one alone makes the other 0",
        "preset": "name of a tolerance preset: which bounds hold",
        "tolerances": "rules such as [{'layer': 'conv*', 'rtol': 1e-2, 'atol': 0, 'reason': '...'}]",
        "escalate": "False: no second run with the tensors of failing layers",
        "repeats": "how often the test runs where it is recorded, to know whether it repeats",
        "isolation": "'process' for a child process, the seconds that one may run, or False",
        "reference, map": "ONNX model to compare the layers with, and YAML file of names",
        "graph": "file that tells which tensor feeds which: om, ATC's JSON, GE's text or ONNX",
        "ranks": "goldens of a distributed run: one for 'each' rank, or the 'same' for all",
        "devices": "how many devices the test uses",
    }
)
"""Arguments of the marker, those of one meaning together, and what they say."""


def marker_line(name: str) -> str:
    """Return the text that is registered for the spelling ``name`` of the marker."""
    if name != MARKER:
        return f"{name}(...): another spelling of the marker {MARKER} (pytest-npudump)."
    lines = [f"  {arguments}: {meaning}" for arguments, meaning in ARGUMENTS.items()]
    purpose = "run the test under ACL dump and compare its layers with a golden file (pytest-npudump)."
    return "\n".join([f"{name}(layers=None, *, ...): {purpose} Arguments:", *lines])


def is_marked(item: pytest.Item) -> bool:
    """Whether the test is run under dump: it, its class or its module carried the marker when collected."""
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
    """Return what is to be said of a marker that came after the collection; "" where none did."""
    counted = item.stash.get(_MARKS, ())
    if not _carries_marker(item):
        marks: tuple[pytest.Mark, ...] = ()
    elif text := misspelling(item):
        return text
    else:
        marks = _marks_now(item)
    if _are_the_same(marks, counted):
        return ""
    what = "changed on this test" if counted else "added to this test"
    return (
        f"the marker {MARKER} was {what} while tests were running (by a fixture, a hook or "
        "the test itself), too late to have any effect: the dump begins before a test's "
        "fixtures. Nothing was compared and nothing recorded; decorate the test, or add the "
        "marker in pytest_collection_modifyitems of a conftest.py"
    )


def misspelling(item: pytest.Item) -> str:
    """Return what is to be said of a mark that is nearly the marker; "" where the test has none.

    So is one that differs in case and separators only; else a mark that nobody has registered, does not name
    another processor, and is one edit away (a character more, fewer, other, or two swapped), or two where it
    begins with the marker's name or has an argument of the marker's.
    """
    for mark in item.iter_markers():
        name = getattr(mark, "name", None)
        distance = _distance(name) if isinstance(name, str) and name not in MARKERS else _NEAR + 1
        if distance > _NEAR:
            continue
        if distance:
            plain = _plain(mark.name)
            registered = {re.split(r"[:(]", line)[0].strip() for line in item.config.getini("markers")}
            if mark.name in registered or plain.startswith(_OTHER_PROCESSORS):
                continue
            ours = {name for names in ARGUMENTS for name in names.split(", ")}
            if distance > 1 and not plain.startswith(MARKERS[1]) and ours.isdisjoint(mark.kwargs):
                continue
        told = said(
            "the mark {name} is none that this plugin knows, and the test would not be judged: write "
            "@pytest.mark.{marker}",
            name=mark.name,
            marker=MARKER,
        )
        if not distance:
            return told
        return told + said("; a mark of your own is let be once it is registered under markers")
    return ""


def unread_marks(nodes: Sequence[pytest.Item | pytest.Collector]) -> str:
    """Return what is to be said of the marker in a name that is nearly ``pytestmark``, which nothing reads.

    Args:
        nodes: what was collected of a module or class.
    """
    node = nodes[0] if nodes else None
    owner = getattr(
        node, "module" if isinstance(getattr(node, "parent", None), pytest.Module) else "cls", None
    )
    for name, value in vars(owner).items() if owner is not None else ():
        if name[:2].lower() == "py" and name != "pytestmark" and _distance(name, "pytestmark") <= _NEAR:
            marks = value if isinstance(value, (list, tuple)) else [value]
            if any(getattr(mark, "name", None) in MARKERS for mark in marks):
                return said("{name} marks no test: pytest reads pytestmark", name=name)
    return ""


_NEAR = 2
_OTHER_PROCESSORS = ("apu", "cpu", "dpu", "gpu", "hpu", "ipu", "lpu", "mlu", "tpu", "vpu", "xpu")
"""What a mark begins with that is about another processor, and no misspelling."""


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


@cache
def _distance(name: str, marker: str = MARKERS[1]) -> int:
    """Return how many edits a mark's name is away from the marker's, case and separators aside."""
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
    """Whether the test has a mark that is the marker or may be meant for it."""
    # Every unmarked test of a session is asked five times: a quarter of the time of iter_markers.
    node: pytest.Item | pytest.Collector | None = item
    while node is not None:
        for mark in node.own_markers:
            name = getattr(mark, "name", None)
            if isinstance(name, str) and _distance(name) <= _NEAR:
                return True
        node = node.parent
    return False


def _marks_now(item: pytest.Item) -> tuple[pytest.Mark, ...]:
    return tuple(mark for mark in item.iter_markers() if getattr(mark, "name", None) in MARKERS)


def _are_the_same(some: tuple[pytest.Mark, ...], others: tuple[pytest.Mark, ...]) -> bool:
    # By identity: arguments may be arrays, which have no single answer to whether they are equal.
    return len(some) == len(others) and all(map(operator.is_, some, others))
