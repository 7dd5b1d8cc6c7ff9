"""A report in two files: text for people, and the same content as JSON, an item of a list in a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_npudump.errors import NpudumpError
from pytest_npudump.storage.atomic import write_whole


def json_text(data: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return ``data`` as JSON, with a newline behind it.

    Lists of a million verdicts are what takes time: :mod:`json` lays out with ``indent`` in Python alone, at
    ten times the cost. NaN and infinities are written as that module does: ``NaN``, ``Infinity``.

    Args:
        data: plain data.
        default: makes plain data of anything else; None where there is nothing else.

    Raises:
        TypeError: something is no plain data.
    """
    return _laid_out(data, json.JSONEncoder(default=default).encode, "\n") + "\n"


def _laid_out(data: Any, encode: Callable[[Any], str], newline: str) -> str:
    if not data or not isinstance(data, dict | list):
        return encode(data)
    inner = f"{newline} "
    if isinstance(data, list):
        return f"[{inner}{f',{inner}'.join(map(encode, data))}{newline}]"
    lines = [f"{encode(str(name))}: {_laid_out(value, encode, inner)}" for name, value in data.items()]
    return f"{{{inner}{f',{inner}'.join(lines)}{newline}}}"


def write_files(files: Mapping[Path, bytes], failure: Callable[[object], str]) -> list[Path]:
    """Write files, and the folders that they are in; return their paths.

    Args:
        files: their content.
        failure: makes words of the reason why one cannot be written.

    Raises:
        NpudumpError: one cannot be written.
    """
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, [content])
    except OSError as error:
        raise NpudumpError(failure(error.strerror or error)) from error
    return [*files]


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

    def write(self, what: str, lines: Iterable[str] | None, data: Any) -> ReportFiles:
        """Write both, each whole or not at all, over those of an earlier time.

        Args:
            what: what they hold, for the problem.
            lines: the text; a name in a dump may be no UTF-8, and is escaped. None to write none.
            data: plain data; anything else in it is written as text.
        """
        encoded = (f"{line}\n".encode("utf-8", "backslashreplace") for line in lines or ())
        try:
            self.text.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
            write_whole(self.data, [json_text(data, default=str).encode()])
            if lines is not None:
                write_whole(self.text, encoded)
        except OSError as error:
            return replace(self, problem=f"{what} could not be written: {error}")
        return self
