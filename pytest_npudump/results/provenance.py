"""Of which revision a test's file was."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@lru_cache(maxsize=1024)
def file_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, read once a process; None where it cannot be read."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
