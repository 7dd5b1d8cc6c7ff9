"""Files that no format of ours fits and one of another package does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.files.format import Format
from pytest_npudump.dump.files.mapping import is_short_name
from pytest_npudump.dump.files.registry import format_of

if TYPE_CHECKING:
    from pathlib import Path


def _begins(path: Path, start: bytes) -> bool:
    return not is_short_name(path) and format_of(path, start) is not None


FORMAT = Format("offered", begins=_begins)
