"""A lock file for each device, in a folder that all users of the machine share.

The locks are the kernel's (``flock``): it lifts them when their owner is gone, however it went. The files
stay; what they say tells who holds a device and is for messages only, since any user may write there.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import stat
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.errors import DeviceError
from pytest_npudump.language.excerpt import cut

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "NPUDUMP_DEVICE_LOCKS"
"""Variable that names the folder: for containers that share devices, or where ``/tmp`` is each user's own."""

_DEFAULT = "/tmp/npudump-devices"  # noqa: S108 - shared on purpose: not below TMPDIR, which may be a user's own
_ALL = 0o666
_STICKY = 0o1777
_LARGEST = 4096


def lock_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the locks, made where it is missing, for all users to write to.

    Raises:
        DeviceError: it cannot be made or used, or is no folder.
    """
    folder = Path(environ.get(FOLDER) or _DEFAULT)
    try:
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(_STICKY)
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise DeviceError(f"{folder}: is no folder, and the locks of devices lie there; {_remedy()}")
    except OSError as error:
        raise DeviceError(
            f"{folder}: the folder of device locks cannot be made: {error.strerror}; {_remedy()}"
        ) from error
    return folder


def _remedy() -> str:
    return f"set {FOLDER} to a folder that all users of these devices can write to"


class DeviceLock:
    """A lock file; held by one process at a time, for as long as it lives or until it gives it back.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this process holds it."""
        return self._descriptor is not None

    def take(self, owner: str) -> bool:
        """Take the lock if it is free; return whether it is ours.

        Args:
            owner: for whom; shown to those who wait.

        Raises:
            DeviceError: the file cannot be opened or locked.
        """
        if self._descriptor is not None:
            return True
        try:
            descriptor = _opened(self._path)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise self._unusable(error) from error
        self._descriptor = descriptor
        _note(descriptor, owner)
        return True

    def give_back(self) -> None:
        """Unlock the file; processes forked meanwhile do not hold it on."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def holder(self) -> str:
        """Return who has taken the lock last, in words; it is not known whether this is true."""
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                told = json.loads(file.read(_LARGEST))
            words = f"process {int(told['pid'])} of {told['user']} since {told['since']} ({told['owner']})"
            return cut("".join(filter(str.isprintable, words)), 200)
        return "another process"

    def _unusable(self, error: OSError) -> DeviceError:
        return DeviceError(f"{self._path}: cannot be locked: {error.strerror or error}; {_remedy()}")


def _opened(path: Path) -> int:
    """Open a lock file, maybe another user's, for which the kernel refuses O_CREAT (protected_regular)."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        with suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, _ALL)
            os.fchmod(descriptor, _ALL)  # whatever the umask
            return descriptor


def _note(descriptor: int, owner: str) -> None:
    """Write down who has the lock; without room on the disk it is held all the same."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = f"user {os.getuid()}"
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    content = {"pid": os.getpid(), "user": user, "since": since, "owner": owner[:200]}
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(content).encode(), 0)
