"""What a second run showed of a failing tensor, as the report beside its dump has it."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.tensors.picture import BINS, SIDE, Picture
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MEASURES = (
    "max_abs",
    "max_rel",
    "relative_l2",
    "cosine",
    "max_ulp",
    "outside",
    "count",
    "rtol",
    "atol",
    "special_different",
)


@dataclass(frozen=True, slots=True)
class Element:
    """One of the worst elements: its coordinates, both values and their distance, as text or numbers."""

    index: tuple[int, ...]
    golden: float | int | str
    actual: float | int | str
    off: float | int | str


@dataclass(frozen=True, slots=True)
class ElementsView:
    """What is known of one tensor's elements.

    Attributes:
        key: which tensor.
        reproduced: whether the second run did the same; None where it lacks the tensor.
        measures: names and values of distances; none where no golden tensor was kept.
        pattern: what explains the difference, in words; "" for nothing.
        worst: the elements farthest off.
        picture: what can be drawn.
        note: why something is missing.
        path: the dumped file; "" for none.
        now: how the second run's tensor compares with the golden; "" where that is not known.
    """

    key: str
    reproduced: bool | None
    measures: tuple[tuple[str, float | int | str], ...]
    pattern: str
    worst: tuple[Element, ...]
    picture: Picture | None
    note: str
    path: str
    now: str = ""


def read_elements(report: Path, test: str) -> tuple[tuple[ElementsView, ...], str]:
    """Return what a second run showed, and why nothing is known of it; "" where it is.

    Args:
        report: ``report.json`` beside the test's dumps.
        test: its name; a report of another test, left by a later session, is none of this one's.
    """
    try:
        data = json.loads(read_regular(report))
    except OSError:
        return (), _("{report} is not there: pictures of elements need the dumps' folder").format(
            report=report
        )
    except (ValueError, RecursionError):
        return (), _("{report} is no JSON").format(report=report)
    if not isinstance(data, dict) or data.get("test") != test:
        return (), _("{report} is of another test").format(report=report)
    escalation = data.get("escalation")
    if not isinstance(escalation, dict):
        return (), ""
    try:
        return tuple(_view(finding) for finding in escalation["findings"]), str(escalation["problem"] or "")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return (), _("{report} was written by another version: {error!r}").format(report=report, error=error)


def _view(finding: Mapping[str, Any]) -> ElementsView:
    elements, pattern = finding["elements"] or {}, finding["pattern"] or {}
    measures = [(name, elements[name]) for name in _MEASURES if elements.get(name) is not None]
    picture = finding.get("picture")
    return ElementsView(
        key=str(finding["key"]),
        reproduced=finding["reproduced"],
        now=str(finding.get("against_golden") or ""),
        measures=tuple(measures),
        pattern=f"{pattern['where']}: {pattern['what']}" if pattern else "",
        worst=tuple(
            Element(tuple(one["index"]), one["golden"], one["actual"], one["abs"])
            for one in elements.get("worst", ())
        ),
        picture=None if picture is None else picture_from(picture),
        note=str(finding["note"] or ""),
        path=str(finding["path"] or ""),
    )


def picture_from(data: Mapping[str, Any]) -> Picture:
    """Return a picture of its plain data.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    told = {name: data[name] for name in Picture.__slots__}
    for name in ("golden", "actual", "errors"):
        told[name] = tuple(map(int, told[name]))
        if len(told[name]) not in {0, BINS}:
            raise ValueError(f"{name} has {len(told[name])} bins")
    try:
        told["cells"] = base64.b64decode(told["cells"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"cells: {error}") from error
    if len(told["cells"]) != told["rows"] * told["columns"] or max(told["rows"], told["columns"]) > SIDE:
        raise ValueError("the map has not as many cells as it says")
    return Picture(**told)
