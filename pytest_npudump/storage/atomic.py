"""Replacing a file so that it is whole at every moment: the old content or the new, whatever is killed.

The new content goes to a temporary file beside the old one, is flushed to disk and renamed over it, at once
or when its time has come. Writers of one file exclude each other by a lock beside it, which all of them see
whatever their environment, and which goes when it is released, so that no commit has it. What a killed writer
left is swept by the next one.

What a child process tells its parent is a file of another kind: messages appended, of which a death loses
the last at most.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import stat
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_npudump.errors import GoldenError

Chunk = bytes | memoryview


_LOCK_SECONDS = 60
STALE_SECONDS = 24 * 3600
_PREFIX = ".npudump-"
_SUFFIX = ".tmp"
_LOCK = ".lock"


@contextmanager
def locked(path: Path) -> Iterator[Path]:
    """Exclude other writers of ``path``; gives the file in its folder, whatever links lead to that.

    Missing directories are made, as the lock lies beside the file.

    Raises:
        GoldenError: it is a symbolic link, or the lock cannot be had, or is held for longer than a minute.
    """
    from filelock import Timeout  # noqa: PLC0415 - 25 ms that only writing needs

    refuse_link(path)
    target = _in_real_folder(path)
    lock = lock_file(target)
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(lock, _LOCK_SECONDS))
        except Timeout:
            raise GoldenError(
                f"{path}: another process has held the lock {lock} for {_LOCK_SECONDS} seconds: wait for it "
                f"to end, or remove the lock if nothing is writing"
            ) from None
        except OSError as error:
            raise _unwritable(target, error) from error
        yield target


def lock_file(path: Path) -> Path:
    """Return the file that those who replace ``path`` lock, whatever links lead to its folder."""
    target = _in_real_folder(path)
    return target.with_name(f"{_own_prefix(target)[:-1]}{_LOCK}")


def refuse_link(path: Path) -> None:
    """Refuse to write through a symbolic link, which may lead to a file that is nobody's to replace.

    Raises:
        GoldenError: there is one at ``path``.
    """
    if path.is_symlink():
        raise GoldenError(
            f"{path}: is a symbolic link, through which nothing is written: remove the link, or put what it "
            f"leads to in its place"
        )


def _in_real_folder(path: Path) -> Path:
    return Path(os.path.realpath(path.parent), path.name)


@contextmanager
def held(lock: Path, seconds: float, *, lasting: bool = False) -> Iterator[None]:
    """Hold the lock file ``lock``, whose folder exists, and remove it afterwards.

    Args:
        lock: the file.
        seconds: how long to wait for it.
        lasting: the file stays, where that is supported: to make and to remove it costs most, and it will
            be held again soon.

    Raises:
        filelock.Timeout: another process holds it for longer than ``seconds``.
        OSError: it cannot be made.
    """
    from filelock import FileLock, SoftFileLock  # noqa: PLC0415 - 25 ms that only writing needs

    handle = FileLock(lock)
    with warnings.catch_warnings():
        # The file itself is the lock then: as good while nobody is killed, and of no interest to a user.
        warnings.filterwarnings("ignore", "flock not supported")
        handle.acquire(timeout=seconds)
    try:
        yield
    finally:
        # Who waits for a file that is gone by its turn begins anew, as of filelock 3.24.
        if not lasting and not isinstance(handle, SoftFileLock):
            with suppress(OSError):  # the folder may have gone
                lock.unlink()
        handle.release()


def replace_file(target: Path, chunks: Iterable[Chunk]) -> None:
    """Make ``chunks`` the content of ``target``, wholly or not at all; to be called under :func:`locked`.

    An existing file keeps its permissions. Missing directories are made.

    Raises:
        GoldenError: writing failed (disk full, no permission); an existing file is as it was.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep(target.parent, target)
        write_whole(target, chunks)
    except OSError as error:
        raise _unwritable(target, error) from error


def stage_file(target: Path, chunks: Iterable[Chunk], name: str) -> Path:
    """Write a new version of ``target`` beside it, under :func:`locked`; earlier staged ones go.

    Args:
        target: the file.
        chunks: its new content.
        name: the same for the same content: whoever stages that too shares the file.

    Returns:
        The file, for :func:`move_file`, or to be deleted.

    Raises:
        GoldenError: writing failed (disk full, no permission); nothing is left of it.
    """
    try:
        sweep(target.parent, target)
        return _write(target, chunks, name)
    except OSError as error:
        raise _unwritable(target, error) from error


def write_whole(target: Path, chunks: Iterable[Chunk]) -> None:
    """Make ``chunks`` the content of ``target``, wholly or not at all; a link is replaced, not followed.

    An existing file keeps its permissions. Of several writers the last one's content stays.

    Raises:
        OSError: writing failed; an existing file is as it was.
    """
    temporary = _write(target, chunks, os.urandom(4).hex())
    try:
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _unwritable(target: Path, error: OSError) -> GoldenError:
    return GoldenError(
        f"{target}: cannot be written: {error.strerror or error}; what was there before is untouched; free "
        f"space or correct the permissions and accept again"
    )


def move_file(source: Path, target: Path) -> None:
    """Give the file ``source`` the place of ``target``, in the same directory, and its permissions.

    Raises:
        GoldenError: the file system refuses; both are as they were.
    """
    try:
        with suppress(OSError):
            source.chmod(_readable_mode(target))
        source.replace(target)
        _sync_directory(target.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise GoldenError(f"{target}: cannot be replaced by {source.name} beside it: {reason}") from error


def _readable_mode(path: Path) -> int:
    """Permissions of ``path``, with those of its owner to read and write: nobody wants a file that is not."""
    return stat.S_IMODE(path.stat().st_mode) | stat.S_IRUSR | stat.S_IWUSR


def _write(target: Path, chunks: Iterable[Chunk], name: str) -> Path:
    temporary = target.with_name(f"{_own_prefix(target)}{name}{_SUFFIX}")
    # The mode is left to the umask, as for any file of the repository; mkstemp would make it 0600.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(chunks)
            file.flush()
            with suppress(OSError):
                temporary.chmod(_readable_mode(target))
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync_directory(directory: Path) -> None:
    """Flush the rename itself."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path, locked_file: Path | None = None) -> None:
    """Remove leftovers of killed writers: of a file whose lock is held at once, of others by age."""
    before = time.time() - STALE_SECONDS
    own = _own_prefix(locked_file) if locked_file is not None else None
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):
            if (own is not None and path.name.startswith(own)) or path.lstat().st_mtime < before:
                path.unlink()


def _own_prefix(target: Path) -> str:
    return f"{_PREFIX}{blake2b(os.fsencode(target.name), digest_size=8).hexdigest()}-"


_LENGTH = 8


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """Return a read-only view: the type of these has a name that pickle does not find."""
    return MappingProxyType(content)


class _Pickler(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table.copy()
    dispatch_table[MappingProxyType] = lambda proxy: (_read_only, (dict(proxy),))


def dump_bytes(content: object) -> bytes:
    """Return ``content`` pickled, read-only mappings included.

    Raises:
        Exception: whatever an object raises that cannot be pickled.
    """
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(content)
    return buffer.getvalue()


def load_bytes(data: bytes) -> Any:
    """Restore the data of :func:`dump_bytes`; only for files that this user's own processes wrote."""
    return pickle.loads(data)  # noqa: S301 - from a folder that only this user can write to


def post(path: Path, kind: str, content: object) -> None:
    """Append one message; it is with the operating system when this returns, whatever ends the process."""
    data = dump_bytes((kind, content))
    with path.open("ab") as file:
        file.write(len(data).to_bytes(_LENGTH, "little") + data)


def messages(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield every whole message in order; nothing where there is no file."""
    data = path.read_bytes() if path.exists() else b""
    position = 0
    while position + _LENGTH <= len(data):
        length = int.from_bytes(data[position : position + _LENGTH], "little")
        position += _LENGTH
        if position + length > len(data):
            return
        yield load_bytes(data[position : position + length])
        position += length
