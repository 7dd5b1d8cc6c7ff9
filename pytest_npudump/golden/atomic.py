"""Replacing a file so that it is whole at every moment: the old content or the new, whatever is killed.

The new content goes to a temporary file beside the old one, is flushed to disk and renamed over it. Writers
of one file exclude each other by a lock that lies in the user's temporary directory, named by a hash of the
path: locks beside goldens would end up in commits. What a killed writer left is swept by the next one.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.errors import GoldenError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Chunk = bytes | memoryview

_LOCK_SECONDS = 60
_STALE_SECONDS = 24 * 3600
_ATTEMPTS = 10
_PREFIX = ".npudump-"
_SUFFIX = ".tmp"


@contextmanager
def locked(path: Path) -> Iterator[Path]:
    """Exclude other writers of ``path``; gives the file itself where ``path`` is a symbolic link.

    Raises:
        GoldenError: the lock cannot be had, or is held for longer than a minute.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - 25 ms that only writing needs

    target = Path(os.path.realpath(path))
    lock = lock_file(target)
    try:
        with FileLock(lock, timeout=_LOCK_SECONDS):
            yield target
    except Timeout:
        raise GoldenError(
            f"{path}: another process has held the lock {lock} for {_LOCK_SECONDS} seconds: wait for it to "
            f"end, or remove the lock if nothing is writing"
        ) from None


def lock_file(path: Path) -> Path:
    """Return the file that those who replace ``path`` lock; links to one file share it.

    Raises:
        GoldenError: there is no directory for locks.
    """
    return _lock_directory() / f"{_digest(os.path.normcase(os.path.realpath(path)))}.lock"


def replace_file(target: Path, chunks: Iterable[Chunk]) -> None:
    """Make ``chunks`` the content of ``target``, wholly or not at all; to be called under :func:`locked`.

    An existing file keeps its permissions. Missing directories are made.

    Raises:
        GoldenError: writing failed (disk full, no permission); an existing file is as it was.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        temporary = _write(target, chunks)
        try:
            _rename(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_directory(target.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise GoldenError(
            f"{target}: cannot be written: {reason}; what was there before is untouched, free space or "
            f"correct the permissions and approve again"
        ) from error


def _write(target: Path, chunks: Iterable[Chunk]) -> Path:
    temporary = target.with_name(f"{_own_prefix(target)}{os.urandom(4).hex()}{_SUFFIX}")
    # The mode is left to the umask, as for any file of the repository; mkstemp would make it 0600.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(chunks)
            file.flush()
            with suppress(FileNotFoundError):
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _rename(temporary: Path, target: Path) -> None:
    """Rename over ``target``; Windows refuses while a scanner or an editor has the file open for a moment."""
    for attempt in range(1, _ATTEMPTS if os.name == "nt" else 1):
        with suppress(PermissionError):
            temporary.replace(target)
            return
        time.sleep(0.05 * attempt)
    temporary.replace(target)


def _sync_directory(directory: Path) -> None:
    """Flush the rename itself; where directories cannot be opened, the file system does it in its time."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(target: Path) -> None:
    """Remove what killed writers left: of this target at once, as its lock is held; of others by age."""
    own, before = _own_prefix(target), time.time() - _STALE_SECONDS
    for path in target.parent.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):
            if path.name.startswith(own) or path.lstat().st_mtime < before:
                path.unlink()


def _own_prefix(target: Path) -> str:
    return f"{_PREFIX}{_digest(target.name)}-"


def _digest(text: str) -> str:
    return blake2b(os.fsencode(text), digest_size=8).hexdigest()


def _lock_directory() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    directory = Path(tempfile.gettempdir()) / f"npudump-locks-{user}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise GoldenError(f"{directory}: no directory for locks: {error}; set TMPDIR to one") from error
    if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != user):
        raise GoldenError(f"{directory}: not a directory of this user's; remove it, or set TMPDIR to another")
    return directory
