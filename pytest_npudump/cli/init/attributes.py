"""What git is told of goldens: how their text is merged, and whether their tensors are kept by Git LFS."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    told = [line.split("#")[0].split() for line in text.splitlines()]
    added = tuple(_missing(text, told, golden_dir, lfs=lfs))
    if not added:
        return text, ()
    gap = "" if not text or text.endswith("\n") else "\n"
    return text + gap + "".join(f"{line}\n" for line in added), added


def _missing(text: str, told: list[list[str]], golden_dir: str, *, lfs: bool) -> Iterator[str]:
    yaml, tensors = f"{golden_dir}/**/*.yaml", f"{golden_dir}/**/*.safetensors"
    if not any(words[:1] == [yaml] for words in told):
        yield f"{yaml} text eol=lf merge=npudump"
    large = f"{tensors} filter=lfs diff=lfs merge=lfs -text"
    if any(words[:1] == [tensors] and "filter=lfs" in words for words in told):
        return
    if lfs:
        yield large
    elif not any(words[:1] == [tensors] for words in told) and f"# {large}" not in text:
        yield f"{tensors} binary"
        yield f"# {large}"
