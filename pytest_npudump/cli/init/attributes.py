"""What git is told of goldens: how their text is merged, and whether their tensors are kept by Git LFS."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FILE = ".gitattributes"
DRIVER = (
    'git config merge.npudump.name "npudump golden"',
    'git config merge.npudump.driver "npudump golden merge %O %A %B %P"',
)
"""What each clone needs besides, since git takes no commands from a repository."""


def with_goldens(text: str, golden_dir: str = "golden", *, lfs: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return the text of a ``.gitattributes`` with what it lacks, and the lines that were added.

    Args:
        text: as it is; "" for a new file.
        golden_dir: the folder of goldens, relative to the repository's root.
        lfs: whether tensors are kept by Git LFS; else that line is there as a comment.
    """
    added = tuple(_missing(text, golden_dir, lfs=lfs))
    if not added:
        return text, ()
    gap = "" if not text or text.endswith("\n") else "\n"
    return text + gap + "".join(f"{line}\n" for line in added), added


def _missing(text: str, golden_dir: str, *, lfs: bool) -> Iterator[str]:
    yaml, tensors = _pattern(golden_dir, "*.yaml"), _pattern(golden_dir, "*.safetensors")
    lines = [line.strip() for line in text.splitlines()]
    if not _told(lines, yaml):
        yield f"{yaml} text eol=lf merge=npudump"
    large = f"{tensors} filter=lfs diff=lfs merge=lfs -text"
    of_tensors = _told(lines, tensors)
    if any("filter=lfs" in words.split() for words in of_tensors):
        return
    if lfs:
        yield large
    elif not of_tensors and f"# {large}" not in text:
        yield f"{tensors} binary"
        yield f"# {large}"


def _told(lines: Sequence[str], pattern: str) -> list[str]:
    """Return the attributes of the lines that have a pattern."""
    return [line[len(pattern) :] for line in lines if re.match(rf"{re.escape(pattern)}(?:\s|$)", line)]


def _pattern(folder: str, name: str) -> str:
    """Return what git takes for the files of a name in a folder, whatever characters that has."""
    own = "" if folder == "." else re.sub(r"([\\*?\[\]!#])", r"\\\1", folder) + "/"
    pattern = f"{own}**/{name}"
    if not re.search(r'[\s"]', pattern):
        return pattern
    escaped = pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
