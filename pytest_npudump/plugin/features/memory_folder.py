"""The folder for the dumps of the emulator in memory, under the name that it has on the disk.

A test on the emulator writes, reads and deletes a file an operator within a fraction of a second, of which a
disk's file system makes more work than the model. So the folder is a link into a tmpfs (``/dev/shm``) for as
long as the session lasts; what is left then, the dumps of tests that failed, takes the link's place.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.record.run_folder import is_dump
from pytest_npudump.scene import SCENES
from pytest_npudump.storage.archive import pack
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.request import DumpRequest
    from pytest_npudump.settings import Settings


SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the folder made there is private and has a name of its own
ROOM = 2 << 30
"""Bytes that have to be free for it to be used."""
_PLACE = ".place"
"""File in the folder that names the link to it, for whoever finds the folder of a session that was killed."""
_PRIVATE = 0o077
_NEW = 60
"""Seconds in which a folder that nobody has locked is not taken for one left behind."""
_MEMORY = Path("/proc/meminfo")
_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUP_FILES = {
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""Limit and use of a control group's memory, by its controllers: of the second kind none are named."""


def feature(_config: pytest.Config, _settings: Settings) -> DumpsInMemory:
    """Return the feature that has dumps in memory."""
    return DumpsInMemory()


class DumpsInMemory:
    """Dumps of little size in memory, for tests on the emulator: statistics, or a small golden's tensors."""

    def __init__(self) -> None:
        self._opened = False
        self._folder: MemoryFolder | None = None

    @pytest.hookimpl
    def pytest_npudump_dumps_base(self, base: Path, request: DumpRequest | None) -> Path | None:
        """Return the folder in memory, or one beside it on the disk."""
        if request is None:
            return None
        statistics = request.dump_data in {None, "stats"} and SCENES[request.scene].statistics
        if (statistics or request.chosen) and not request.golden_tensors:
            if not self._opened:
                self._opened, self._folder = True, MemoryFolder.open(base)
            if self._folder is None or _has_room():
                return base
        return base.with_name(f"{base.name}-disk")

    def pytest_sessionfinish(self) -> None:
        """Put dumps that are in memory, and still there, on the disk."""
        if self._folder is not None:
            self._folder.close()


@dataclass(frozen=True, slots=True)
class MemoryFolder:
    """A folder in memory.

    Attributes:
        link: the name it goes by.
        path: where it is.
    """

    link: Path
    path: Path
    _descriptor: int

    @classmethod
    def open(cls, link: Path) -> MemoryFolder | None:
        """Return a new folder that ``link`` leads to; None where there is no place or no room for one.

        What sessions that were killed have left is put where it belongs.
        """
        if os.path.lexists(link) or not _is_tmpfs(SHARED_MEMORY) or not _has_room():
            return None
        try:
            for left in _private_folders():
                with suppress(OSError):
                    descriptor = _locked(left)
                    try:
                        _settle(left, Path(os.fsdecode((left / _PLACE).read_bytes())))
                    finally:
                        os.close(descriptor)
            link.parent.mkdir(parents=True, exist_ok=True)
            path = Path(tempfile.mkdtemp(prefix=_prefix(), dir=SHARED_MEMORY))
        except OSError:
            return None
        try:
            descriptor = _locked(path)
            (path / _PLACE).write_bytes(os.fsencode(link))
            link.symlink_to(path)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            return None
        return cls(link, path, descriptor)

    def close(self) -> None:
        """Move the rest to the link's place; where the disk has no room for it, it stays in memory."""
        if not self.path.is_dir():
            return  # the session ends twice: what has the descriptor's number now is not ours
        _settle(self.path, self.link)
        os.close(self._descriptor)


def _settle(path: Path, link: Path) -> None:
    """Move the content of ``path`` to the place of ``link``; delete it where no link leads there any more."""
    if not link.is_symlink() or link.resolve() != path.resolve():
        shutil.rmtree(path, ignore_errors=True)
        return
    draft = link.with_name(f"{link.name}.moving")
    shutil.rmtree(draft, ignore_errors=True)  # of a session that was killed in this
    try:
        if any(entry.name != _PLACE for entry in path.iterdir()):
            _copy(path, draft)
            draft.joinpath(_PLACE).unlink(missing_ok=True)
        link.unlink()
        if draft.exists():
            draft.rename(link)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        return
    shutil.rmtree(path, ignore_errors=True)


def _copy(folder: Path, target: Path) -> None:
    """Copy a folder, each dump below it as one file unless it has more than files."""
    target.mkdir()
    with os.scandir(folder) as entries:
        for found in entries:
            entry, place = Path(found.path), target / found.name
            if found.is_symlink():
                place.symlink_to(entry.readlink())
            elif not found.is_dir():
                with open_regular(entry) as source, place.open("xb", buffering=0) as copy:
                    shutil.copyfileobj(source, copy)
                    status = os.fstat(source.fileno())
                    os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode))
                    os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
            elif is_dump(entry):
                try:
                    pack(entry, place)
                except OSError:
                    place.with_name(f"{place.name}.tar").unlink(missing_ok=True)
                    shutil.copytree(entry, place, symlinks=True)
            else:
                _copy(entry, place)
    shutil.copystat(folder, target)


def _prefix() -> str:
    return f"npudump-{os.getuid()}-"


def _locked(path: Path) -> int:
    """Return a descriptor that holds a lock on a folder; it ends with the process, whatever ends that.

    Raises:
        OSError: another process holds it, or has deleted the folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.stat()
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _private_folders() -> Iterator[Path]:
    """Yield the folders of this user's sessions, but those that another one may be about to lock."""
    for path in SHARED_MEMORY.glob(f"{_prefix()}*"):
        found = path.lstat()
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & _PRIVATE
        if private and found.st_uid == os.getuid() and time.time() - found.st_mtime > _NEW:
            yield path


def _is_tmpfs(path: Path) -> bool:
    """Return whether a folder is a tmpfs of its own that everybody may write to but nobody rename in."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        found = path.lstat()
    except OSError:
        return False
    kinds = [mount[mount.index("-") + 1] for mount in mounts if mount[4] == str(path)]
    own = bool(found.st_mode & stat.S_ISVTX) or found.st_uid == os.getuid()
    return bool(kinds) and kinds[-1] == "tmpfs" and own and os.access(path, os.W_OK | os.X_OK)


def _has_room() -> bool:
    """Return whether the tmpfs, the machine's memory and that of the control group all have room."""
    try:
        free = os.statvfs(SHARED_MEMORY)
        available = re.search(r"^MemAvailable:\s+(\d+) kB$", _MEMORY.read_text(), re.MULTILINE)
    except OSError:
        return False
    rooms = [free.f_bavail * free.f_frsize, int(available[1]) << 10 if available else 0]
    for limit, used in _group_limits():
        with suppress(OSError, ValueError):
            rooms.append(int(limit.read_text()) - int(used.read_text()))
    return min(rooms) >= ROOM


def _group_limits() -> Iterator[tuple[Path, Path]]:
    """Yield the files of limit and use of this process's control groups, the outermost first.

    In a container its own group is the outermost one, whatever it is called outside.
    """
    try:
        lines = [line.split(":", 2) for line in _OWN_GROUPS.read_text().splitlines()]
    except OSError:
        lines = []
    paths = {controllers: path for _, names, path in lines for controllers in names.split(",")}
    for controllers, (limit, used) in _GROUP_FILES.items():
        folder = _GROUPS / controllers
        inner = Path(paths.get(controllers, "/")).parts[1:]
        for depth in range(len(inner) + 1):
            group = folder.joinpath(*inner[:depth])
            yield group / limit, group / used
