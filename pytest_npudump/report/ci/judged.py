"""What a report for a CI service is made of: one marked test that was reported, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.regression.outcome import GOOD

if TYPE_CHECKING:
    from collections.abc import Mapping

_COUNTS = (
    ("fail", "outside"),
    ("missing", "missing"),
    ("extra", "extra"),
    ("changed", "changed within tolerance"),
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A test as its last report tells of it.

    Attributes:
        result: as :func:`pytest_npudump.report.result_json.result_json` makes it.
        failed: whether pytest counts the test as failed.
        file: the test's file, relative to the root of the repository where it lies in one, with ``/``.
        line: of the marker, from 1.
    """

    result: Mapping[str, Any]
    failed: bool
    file: str
    line: int

    @property
    def test(self) -> str:
        """The test as a user types it."""
        return str(self.result.get("test", ""))

    @property
    def status(self) -> str:
        """What became of it."""
        return str(self.result["status"])

    @property
    def good(self) -> bool:
        """Whether it passed its comparison, and the test with it."""
        return not self.failed and self.status in GOOD


def sources_of(result: Mapping[str, Any]) -> str:
    """Return the sources, or else the first that fails; "" where none does."""
    sources = result.get("sources")
    if not sources or not sources["first"]:
        return str(result.get("first") or result.get("operator") or "")
    names = []
    for source in sources["first"]:
        least = "at least " * (source["explains"] < result.get("fail", 0))  # not all edges need be known
        names.append(f"{source['key']} ({least}{source['explains'] - 1} downstream)")
    left = sources["in_all"] - len(names)
    return ", ".join(names) + (f" and {left} more" if left > 0 else "")


def counts_of(result: Mapping[str, Any]) -> str:
    """Return ``6 of 6 compared, 1 outside``; "" where nothing was compared."""
    if "expected" not in result:
        return ""
    told = [f"{result[name]} {words}" for name, words in _COUNTS if result.get(name)]
    return ", ".join([f"{result['compared']} of {result['expected']} compared", *told])
