"""The marker: what ``pytest --markers`` says of it, which tests carry it, and since when.

All that a session without a marked test imports of the marker.
"""

from __future__ import annotations

import operator
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


MARKER = "npu_dump"
_MARKS = pytest.StashKey[tuple[pytest.Mark, ...]]()

ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "layers": "operator names or globs; none: every layer",
        "scene": "model (default), op, overflow, watcher or exception",
        "dump_scene": "which exception dump, with scene='exception'",
        "model_name, dump_mode, dump_level, dump_step, dump_data, dump_stats, dump_kernel_data, "
        "optype_blacklist, opname_blacklist, opname_range, watcher_nodes": "as in acl.json",
        "golden_tensors": "layers whose tensors are kept beside the golden",
        "rtol, atol": "tolerance of floating-point statistics; one alone makes the other 0",
        "preset": "name of a tolerance preset",
        "numerics": "'same', 'other' or 'hf32': the bounds that the preset 'default' stands for",
        "tolerances": "rules such as [{'layer': 'conv*', 'rtol': 1e-2, 'atol': 0, 'reason': '...'}]",
        "escalate": "False: no second run with the tensors of failing layers",
        "repeats": "how often the test runs where it is recorded, to know whether it repeats",
        "isolation, timeout": "'process' for a child process or 'none', and the seconds it may run",
        "reference, reference_map": "ONNX model to compare the layers with, and YAML file of names",
        "graph": "file that tells which tensor feeds which: om, ATC's JSON, GE's text or ONNX",
        "data_dump": "further keys of MindSpore's data_dump.json",
        "ranks": "goldens of a distributed run: one for 'each' rank, or the 'same' for all",
        "devices": "how many devices the test uses",
    }
)
"""Arguments of the marker, those of one meaning together, and what they say."""


def marker_line(name: str) -> str:
    """Return the text that is registered for the marker ``name``."""
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
        The tests whose markers are other than at the last time, each with one at least.
    """
    changed = []
    for item in items:
        marks = tuple(item.iter_markers(MARKER)) if _carries_marker(item) else ()
        if not marks:
            if _MARKS in item.stash:
                del item.stash[_MARKS]
        elif not _are_the_same(marks, item.stash.get(_MARKS, ())):
            item.stash[_MARKS] = marks
            changed.append(item)
    return changed


def late_marker(item: pytest.Item) -> str:
    """Return what is to be said of a marker that came after the collection; "" where none did."""
    counted = item.stash.get(_MARKS, ())
    if not counted and not _carries_marker(item):
        return ""
    if _are_the_same(tuple(item.iter_markers(MARKER)), counted):
        return ""
    what = "changed on this test" if counted else "added to this test"
    return (
        f"the marker {MARKER} was {what} while tests were running (by a fixture, a hook or "
        "the test itself), too late to have any effect: the dump begins before a test's "
        "fixtures. Nothing was compared and nothing recorded; decorate the test, or add the "
        "marker in pytest_collection_modifyitems of a conftest.py"
    )


def _carries_marker(item: pytest.Item) -> bool:
    # Every unmarked test of a session is asked five times: a quarter of the time of iter_markers.
    node: pytest.Item | pytest.Collector | None = item
    while node is not None:
        for mark in node.own_markers:
            if getattr(mark, "name", None) == MARKER:
                return True
        node = node.parent
    return False


def _are_the_same(some: tuple[pytest.Mark, ...], others: tuple[pytest.Mark, ...]) -> bool:
    # By identity: arguments may be arrays, which have no single answer to whether they are equal.
    return len(some) == len(others) and all(map(operator.is_, some, others))
