"""A report in two files: text for people, and the same content as JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.report.json_text import json_text
from pytest_npudump.storage.atomic import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """The two files of a report.

    Attributes:
        text: for people.
        data: JSON with the same content.
        problem: why they could not be written, or removed; "" if they were.
    """

    text: Path
    data: Path
    problem: str = ""

    @classmethod
    def named(cls, directory: Path, name: str) -> ReportFiles:
        """Return the files of a report called ``name`` in a directory, which need not exist."""
        return cls(directory / f"{name}.txt", directory / f"{name}.json")

    def write(self, what: str, lines: Iterable[str], data: Any) -> ReportFiles:
        """Write both, each whole or not at all, over those of an earlier time.

        Args:
            what: what they hold, for the problem.
            lines: the text; a name in a dump may be no UTF-8, and is escaped.
            data: plain data; anything else in it is written as text.
        """
        encoded = (f"{line}\n".encode("utf-8", "backslashreplace") for line in lines)
        try:
            self.text.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
            write_whole(self.data, [json_text(data, default=str).encode()])
            write_whole(self.text, encoded)
        except OSError as error:
            return replace(self, problem=f"{what} could not be written: {error}")
        return self

    def remove(self) -> ReportFiles:
        """Remove both; nothing happens where there are none."""
        try:
            self.data.unlink(missing_ok=True)
            self.text.unlink(missing_ok=True)
        except OSError as error:
            return replace(self, problem=f"{self.text}, of an earlier session, cannot be removed: {error}")
        return self
