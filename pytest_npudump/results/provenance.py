"""Of which revision a test was: of its repository, and of its file."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SECONDS = 10


@lru_cache(maxsize=4)
def revision(folder: Path) -> str | None:
    """Return git's name of the commit that is checked out around a folder; None where there is none."""
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return None
    command = ("git", "-C", str(folder), "rev-parse", "--verify", "-q", "HEAD")
    try:
        done = subprocess.run(  # noqa: S603 - git, of the user's own path
            command, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


@lru_cache(maxsize=1024)
def file_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, read once a process; None where it cannot be read."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
