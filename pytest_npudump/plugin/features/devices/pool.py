"""Turns on the devices of a pool, for one process, and the lock files that all users of the machine share.

The locks are the kernel's (``flock``): it lifts them when their owner is gone, however it went. The files
stay; what they say tells who holds a device and is for messages only, since any user may write there.

A process stays with the device of its first turn, since what it has loaded lies there. It claims that
device for as long as it lives, so that others choose another; a claim is a wish. What excludes is the turn:
it is taken for a test and given back behind it, or a worker of pytest-xdist that waits for its next test
would keep another from its own.

There is no deadlock: who needs one device waits while holding none. Who needs several keeps what it has got
so far, or tests that need one would always come first; of those there is one at a time on a machine.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import stat
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.errors import DeviceError, joined
from pytest_npudump.language.text import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


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


_PAUSE = 0.01
_PATIENCE = 2.0
_AGAIN = 60.0


class DevicePool:
    """Devices that one process uses in turns with others.

    Args:
        devices: by the id that CANN takes, what the machine calls each.
        folder: of the lock files.
        first: number of this process among those of its run; they begin with different devices.
        say: told why there is a wait, after 2 seconds and then each minute.

    Attributes:
        own: the device of this process, None before its first turn.
        waited: seconds, in all.
    """

    def __init__(
        self, devices: Mapping[int, int], folder: Path, first: int = 0, say: Callable[[str], None] = print
    ) -> None:
        ids = [*devices]
        at = first % len(ids)
        self._order = [*ids[at:], *ids[:at]]
        self._turns = {i: DeviceLock(folder / f"npu{devices[i]}.lock") for i in ids}
        self._claims = {i: DeviceLock(folder / f"npu{devices[i]}.claim") for i in ids}
        self._gate = DeviceLock(folder / "several.lock")
        self._say = say
        self.own: int | None = None
        self.waited = 0.0

    def __len__(self) -> int:
        """Return how many devices there are."""
        return len(self._order)

    def take(self, number: int, owner: str) -> tuple[int, ...]:
        """Wait for ``number`` devices and return their ids; the first is the same each time.

        Args:
            number: of devices.
            owner: for whom; shown to those who wait.

        Raises:
            DeviceError: the pool has fewer, or a lock cannot be taken.
        """
        if number > len(self):
            raise DeviceError(f"the test needs {number} devices, and --npudump-devices gives {len(self)}")
        started = time.monotonic()
        try:
            own = self._choose(owner)
            if number == 1:
                self._wait(lambda: self._turns[own].take(owner), (own,))
                return (own,)
            self._wait(lambda: self._gate.take(owner), ())
            try:
                return self._several(own, number, owner)
            finally:
                self._gate.give_back()
        except BaseException:
            self.give_back()
            raise
        finally:
            self.waited += time.monotonic() - started

    def give_back(self) -> None:
        """End the turn on all devices; the claim on the own one stays."""
        for turn in self._turns.values():
            turn.give_back()

    def close(self) -> None:
        """Give everything back."""
        self.give_back()
        for claim in self._claims.values():
            claim.give_back()

    def _choose(self, owner: str) -> int:
        """Return the own device: one that nobody claims, else the one at which this process begins."""
        if self.own is None:
            self.own = next((i for i in self._order if self._claims[i].take(owner)), self._order[0])
        else:
            self._claims[self.own].take(owner)  # whoever claimed it may have gone
        return self.own

    def _several(self, own: int, number: int, owner: str) -> tuple[int, ...]:
        self._wait(lambda: self._turns[own].take(owner), (own,))
        held, others, free = [own], [i for i in self._order if i != own], set()
        for i in others:
            if self._claims[i].take(""):
                self._claims[i].give_back()
                free.add(i)
        others.sort(key=lambda i: i not in free)  # those that nobody claims first

        def more() -> bool:
            for i in others:
                if len(held) < number and i not in held and self._turns[i].take(owner):
                    held.append(i)
            return len(held) == number

        self._wait(more, others)
        return tuple(held)

    def _wait(self, taken: Callable[[], bool], devices: Sequence[int]) -> None:
        started, told = time.monotonic(), _PATIENCE
        while not taken():
            waited = time.monotonic() - started
            if waited >= told:
                told = waited + _AGAIN
                turns = [(i, self._turns[i]) for i in devices]
                held = [f"device {i}, held by {turn.holder()}" for i, turn in turns if not turn.is_ours]
                whom = f"{self._gate.holder()}, whose test gathers several devices"
                whom = joined("; ", held) if turns else whom
                self._say(f"waiting for {whom}, {waited:.0f} s so far")
            time.sleep(_PAUSE)
