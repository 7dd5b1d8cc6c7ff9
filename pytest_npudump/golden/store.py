"""Golden files on disk: read with a reason for everything that is wrong, written whole or not at all."""

from __future__ import annotations

import stat
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pytest_npudump.errors import GoldenError, GoldenMissingError
from pytest_npudump.golden.overlay import as_written, base_name, laid_over
from pytest_npudump.record.text import parse, render
from pytest_npudump.storage.atomic import locked, refuse_link, replace_file, stage_file
from pytest_npudump.storage.regular_file import open_regular, read_regular

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.record.record import Record

LARGEST = 1 << 28
"""Bytes a golden file may have: a million tensors take half of it."""


def read_golden(path: Path) -> Record:
    """Read the golden file at ``path``; of a variant that holds only what differs, all that it stands for.

    Raises:
        GoldenMissingError: there is no such file.
        GoldenError: it cannot be read, is not a golden file, or is damaged; names the line.
    """
    own = _read_alone(path)
    name = base_name(own)
    if not name:
        return own
    base = _read_alone(path.with_name(name))
    if base_name(base):
        raise GoldenError(
            f"{path}: differs from {name}, which is a variant itself; restore the common golden"
        )
    return laid_over(own, base)


def _read_alone(path: Path) -> Record:
    content = _read(path)
    return replace(parse(_decode(content, path), path), digest=content_digest(content))


def content_digest(content: bytes) -> str:
    """Return what tells one content of a golden file from another."""
    return sha256(content).hexdigest()


def is_there(path: Path) -> bool:
    """Whether anything lies at ``path``; what cannot be looked at does, and reading it tells why not."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class StagedGolden:
    """A golden that is to be the content of a file.

    Attributes:
        file: what is to replace the file, beside it; None where the golden is its content already.
        digest: of that content.
    """

    file: Path | None
    digest: str


def stage_golden(path: Path, golden: Record) -> StagedGolden:
    """Write what is to replace the file at ``path`` beside it.

    Raises:
        GoldenError: the golden cannot be written; the old file is as it was.
    """
    refuse_links(replace(golden, path=path))
    content = _content(golden)
    digest = content_digest(content)
    if _holds(path, content):  # asked before the lock, which a folder that is read-only has no place for
        return StagedGolden(None, digest)
    with locked(path) as target:
        refuse_others(target)
        held = _holds(target, content)
        return StagedGolden(None if held else stage_file(target, [content], digest[:16]), digest)


def _content(golden: Record) -> bytes:
    """Return the bytes of a golden's file.

    Raises:
        GoldenError: it cannot be written, or what it is to differ from is another golden meanwhile.
    """
    base = golden.base
    if base is not None and not has_digest(base.path, base.digest):
        raise GoldenError(
            f"{base.path}: was written meanwhile, and {golden.path.name} differs from it: run again"
        )
    return render(as_written(golden)).encode()


def has_digest(path: Path, digest: str) -> bool:
    """Whether the content of the file at ``path`` is that of :attr:`StagedGolden.digest`."""
    try:
        return content_digest(read_regular(path)) == digest
    except OSError:
        return False


def write_golden(path: Path, golden: Record, *, replacing: str | None = None) -> bool:
    """Make ``golden`` the content of the file at ``path``, atomically.

    Args:
        path: the file.
        golden: its new content.
        replacing: digest of the content that it is to replace, "" for no file; None for any.

    Returns:
        Whether the content changed; where it did not, the file is not touched.

    Raises:
        GoldenError: the golden cannot be written, or would replace another one; the old file is as it was.
    """
    refuse_links(replace(golden, path=path))
    content = _content(golden)
    if _holds(path, content):  # as above
        return False
    with locked(path) as target:
        refuse_others(target)
        changed = not _holds(target, content)
        if changed:
            refuse_change(target, replacing)
            replace_file(target, [content])
    return changed


def refuse_links(golden: Record) -> None:
    """Refuse to write a golden through a symbolic link below the folder of goldens, which may be one itself.

    Raises:
        GoldenError: the file, or a folder that stands for a part of its test's file, is a link.
    """
    folders = len(PurePosixPath(golden.test.partition("::")[0]).parts)
    for place in (golden.path, *golden.path.parents[:folders]):
        refuse_link(place)


def refuse_change(target: Path, replacing: str | None) -> None:
    """Refuse to replace a file whose content is not the one that is to be replaced; its lock is held.

    Args:
        target: the file.
        replacing: digest of that content, "" for no file; None for any.

    Raises:
        GoldenError: it has other content.
    """
    if replacing is None:
        return
    found = content_digest(_read(target)) if is_there(target) else ""
    if found != replacing:
        raise GoldenError(f"{target}: was written meanwhile: it is as it is; look again at what differs")


def _holds(path: Path, content: bytes) -> bool:
    try:
        return read_regular(path) == content
    except OSError:
        return False


def refuse_others(target: Path) -> None:
    """Refuse to replace what is no file: a directory has content, a link may lead to a device.

    Raises:
        GoldenError: there is something else than a file at ``target``.
    """
    if kind := _kind(target):
        raise GoldenError(f"{target}: cannot be written: it is {kind}; move it elsewhere and approve again")


def _kind(path: Path) -> str:
    """Return what is at ``path`` where it is something else than a file, "" for files and for nothing."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if stat.S_ISREG(mode):
        return ""
    return "a directory" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"


def _read(path: Path) -> bytes:
    if kind := _kind(path):
        raise GoldenError(f"{path}: the golden file cannot be read: it is {kind}; move it elsewhere")
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise GoldenMissingError(
            f"{path}: the golden file does not exist; look at the values with --npudump-update-golden, which "
            f"writes it, and commit it"
        ) from None
    except OSError as error:
        raise GoldenError(f"{path}: the golden file cannot be read: {error.strerror or error}") from error
    if len(content) > LARGEST:
        raise GoldenError(f"{path}: more than {LARGEST} bytes, which is no golden file of ours")
    return content


def _decode(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise GoldenError(
            f"{path}, line {line}: byte {error.start} is not UTF-8; restore the file from version control"
        ) from None
