"""A folder as one file, which is read like the folder: a tar, whose elements any system unpacks.

A dump has a file an operator: copying 20,000 of them takes 2.5 times as long as packing them.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import shutil
import tarfile
import tempfile
from functools import cache
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from pytest_npudump.errors import DumpError
from pytest_npudump.storage.regular_file import regular_descriptor

_SUFFIX = ".tar"
_BLOCK, _NAME, _LARGE = 512, 100, 1 << 33
"""Bytes of a header, of a name in it, and of a file whose size is written in another way."""


def pack(folder: Path, place: Path) -> None:
    """Write the files of a folder to one that is called like ``place``, with ``.tar`` behind it.

    Raises:
        OSError: something cannot be read, is no file, or is written meanwhile; or that cannot be written.
    """
    with _file_of(place).open("xb") as packed:
        _add(packed, os.fspath(folder), len(os.fsencode(folder)) + 1)
        packed.write(bytes(2 * _BLOCK))


def _add(packed: BinaryIO, folder: str, above: int) -> None:
    """Add a folder's files by name, then its folders; a name begins behind so many bytes of a path."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=attrgetter("name"))
    folders = [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
    for path in [entry.path for entry in found if not entry.is_dir(follow_symlinks=False)]:
        descriptor, size = regular_descriptor(path)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            packed.write(_header(os.fsencode(path)[above:], size, int(os.fstat(descriptor).st_mtime)))
            end = packed.tell() + size
            shutil.copyfileobj(file, packed)
            if packed.tell() != end:
                raise OSError(errno.EBUSY, "the file is being written", path)
            packed.write(bytes(-size % _BLOCK))
    for path in folders:
        _add(packed, path, above)


def _header(name: bytes, size: int, time: int) -> bytes:
    """Return a file's header in the archive; :mod:`tarfile` makes the same of a short name in 100 us."""
    if len(name) > _NAME or size >= _LARGE or not 0 <= time < _LARGE:
        told = tarfile.TarInfo(os.fsdecode(name))
        told.size, told.mtime, told.mode = size, time, 0o600
        return told.tobuf(tarfile.GNU_FORMAT, errors="surrogateescape")
    before = b"%b0000600\0%b%011o\0%011o\0" % (name.ljust(_NAME, b"\0"), b"0000000\0" * 2, size, time)
    behind = b"0%bustar  \0" % bytes(100)
    total = sum(before) + sum(behind) + 8 * ord(" ")
    return (b"%b%06o\0 %b" % (before, total, behind)).ljust(_BLOCK, b"\0")


def unpacked(path: Path) -> Path:
    """Return where the content of a path lies, of one that was packed, or is inside of one, in another place.

    Raises:
        DumpError: what was packed is damaged.
    """
    if path.suffix == _SUFFIX and path.is_file():
        return _opened(path)
    for place in (path, *path.parents):
        if not place.name or place.exists():  # what is below a folder that is there was not packed
            break
        if (file := _file_of(place)).is_file():
            return _opened(file) / path.relative_to(place)
    return path


def with_runs_unpacked(path: Path) -> Path:
    """Unpack as :func:`unpacked` does, or copy a run's or test's folder with its dumps unpacked.

    Raises:
        DumpError: what was packed is damaged.
    """
    folder = path.resolve()  # which has a name
    here = [*folder.glob("dump*.tar")] if re.fullmatch(r"run\d+", folder.name) else []
    if not (files := [*here, *folder.glob("run[0-9]*/dump*.tar")]):
        return unpacked(path)
    copy = temporary_folder() / folder.name
    shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns("*.tar"))
    for file in files:
        _unpack(file, copy / file.relative_to(folder).with_suffix(""))
    return copy


def _file_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{_SUFFIX}")


def temporary_folder() -> Path:
    """Return a new folder that goes with the process."""
    folder = tempfile.mkdtemp(prefix="npudump-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _opened(file: Path) -> Path:
    status = file.stat()
    return _content(file.resolve(), status.st_ino, status.st_mtime_ns)


@cache
def _content(file: Path, *_version: int) -> Path:
    _unpack(file, folder := temporary_folder() / file.stem)
    return folder


def _unpack(file: Path, folder: Path) -> None:
    """Write the files of a tar, whose names may be anybody's, to a new folder."""
    folder.mkdir()
    try:
        with tarfile.open(file, "r:") as packed:
            for told in packed:
                name = PurePosixPath(told.name)
                if told.isdir():
                    continue
                if told.type != tarfile.REGTYPE or told.sparse or name.is_absolute() or ".." in name.parts:
                    raise DumpError(f"{file}: cannot be unpacked: {told.name!r} is no file below a folder")
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                source = packed.extractfile(told)
                assert source is not None  # noqa: S101 - a regular file
                with target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, MemoryError) as error:
        raise DumpError(f"{file}: cannot be unpacked: {error}: run the test again") from error
