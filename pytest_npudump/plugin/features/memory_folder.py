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
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.request import DumpRequest
    from pytest_npudump.settings import Settings


SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the folder made there is private and has a name of its own
ROOM = 2 << 30
"""Bytes that have to be free for it to be used."""
_PLACE = ".place"
"""File in the folder that names the link to it, for whoever finds the folder of a session that was killed."""
_NEW = 60
"""Seconds in which a folder that nobody has locked is not taken for one left behind."""
_MEMORY, _GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
_LIMITS = {"memory.max": "memory.current", "memory/memory.limit_in_bytes": "memory/memory.usage_in_bytes"}
"""Files of the limit of a container's memory, and of its use, by both kinds of control groups."""


def feature(_config: pytest.Config, _settings: Settings) -> DumpsInMemory:
    """Return the feature that has dumps in memory."""
    return DumpsInMemory()


class DumpsInMemory:
    """Dumps of little size in memory, for tests on the emulator: statistics, or a small golden's tensors."""

    def __init__(self) -> None:
        self._opened = False
        self._folder: tuple[Path, int] | None = None

    def pytest_npudump_dumps_base(self, base: Path, request: DumpRequest | None) -> Path | None:
        """Return the folder in memory, or one beside it on the disk."""
        if request is None:
            return None
        statistics = request.dump_data in {None, "stats"} and SCENES[request.scene].statistics
        if (statistics or request.chosen) and not request.golden_tensors:
            if not self._opened:
                self._opened, self._folder = True, open_folder(base)
            if self._folder is None or _has_room():
                return base
        return base.with_name(f"{base.name}-disk")

    def pytest_sessionfinish(self) -> None:
        """Put dumps that are in memory, and still there, on the disk."""
        if self._folder is not None:
            (path, descriptor), self._folder = self._folder, None
            settle(path)
            os.close(descriptor)


def open_folder(link: Path) -> tuple[Path, int] | None:
    """Return a new folder in memory that ``link`` leads to, and the descriptor that locks it.

    None where there is no place or no room for one. What sessions that were killed have left is put where it
    belongs.
    """
    if os.path.lexists(link) or not SHARED_MEMORY.is_mount() or not _has_room():
        return None
    prefix = f"npudump-{os.getuid()}-"
    try:
        for left in SHARED_MEMORY.glob(f"{prefix}*"):
            found = left.lstat()
            private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
            if private and found.st_uid == os.getuid() and time.time() - found.st_mtime > _NEW:
                with suppress(OSError):
                    descriptor = _locked(left)
                    try:
                        settle(left)
                    finally:
                        os.close(descriptor)
        link.parent.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=SHARED_MEMORY))
    except OSError:
        return None
    try:
        descriptor = _locked(path)
        (path / _PLACE).write_bytes(os.fsencode(link))
        link.symlink_to(path)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
        return None
    return path, descriptor


def settle(path: Path) -> None:
    """Move the content of a folder in memory to the place of the link to it, or delete it without a link.

    Where the disk has no room for it, it stays in memory.
    """
    link = Path(os.fsdecode((path / _PLACE).read_bytes()))
    if link.is_symlink() and link.resolve() == path.resolve():
        draft = link.with_name(f"{link.name}.moving")
        shutil.rmtree(draft, ignore_errors=True)  # of a session that was killed in this
        try:
            shutil.copytree(path, draft, symlinks=True, ignore=shutil.ignore_patterns(_PLACE))
            link.unlink()
            draft.rename(link)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            return
        with suppress(OSError):
            link.rmdir()  # of a session that has left nothing
    shutil.rmtree(path, ignore_errors=True)


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


def _has_room() -> bool:
    """Return whether the tmpfs, the machine's memory and that of the container all have room."""
    try:
        free = os.statvfs(SHARED_MEMORY)
        available = re.search(r"^MemAvailable:\s+(\d+) kB$", _MEMORY.read_text(), re.MULTILINE)
    except OSError:
        return False
    rooms = [free.f_bavail * free.f_frsize, int(available[1]) << 10 if available else 0]
    for limit, used in _LIMITS.items():
        with suppress(OSError, ValueError):
            rooms.append(int((_GROUP / limit).read_text()) - int((_GROUP / used).read_text()))
    return min(rooms) >= ROOM
