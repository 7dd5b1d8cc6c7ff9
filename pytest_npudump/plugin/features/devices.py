"""Devices for tests: taken from a pool before anything of a test runs, and given back behind it.

Under pytest-xdist the controller looks for the devices once, and each worker takes turns on them. The process
of an isolated test has those that its parent holds for it.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import stat
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import DeviceError, NpudumpError
from pytest_npudump.language.text import cut, inert, number_of
from pytest_npudump.plugin.features import DEVICES
from pytest_npudump.plugin.item_case import HELD_DEVICES, number_of_devices, only_setup
from pytest_npudump.plugin.reporter import CHILD
from pytest_npudump.plugin.terminal import fitted
from pytest_npudump.ranks.rank import current_rank, own_device
from pytest_npudump.runtime.inventory import Inventory, take_inventory

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from pytest_npudump.settings import Settings


_KEY = "npudump_devices"
"""Key of devices between controller and workers."""
_PROBLEM = pytest.StashKey[str]()


def feature(config: pytest.Config, settings: Settings) -> DeviceTurns | HeldByParent:
    """Return the provider of devices for the tests of this process.

    Raises:
        NpudumpError: the devices cannot be found or locked, or are named to one rank of several.
    """
    given: str = DEVICES.of(settings)
    if config.pluginmanager.has_plugin(CHILD):
        return HeldByParent(tuple(map(int, given.split(","))))
    if (rank := current_rank()) is not None:
        words = f"this is {rank}, which has the device of its LOCAL_RANK"
        if given != "auto":
            raise DeviceError(f"npudump_devices: {words}: leave it out")
        return DeviceTurns(config, settings, Inventory({}, f"{words}: nothing is locked"))
    told: Any = getattr(config, "workerinput", {}).get(_KEY)
    return DeviceTurns(config, settings, take_inventory(given) if told is None else Inventory(dict(told)))


class HeldByParent:
    """The devices of a process that runs one test, whose parent holds them."""

    def __init__(self, devices: tuple[int, ...]) -> None:
        self._devices = devices

    @pytest.fixture(scope="session")
    def npu_device(self) -> int:
        """Give the id of the NPU that this process has: the first that its parent holds."""
        return self._devices[0]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Hand the devices on."""
        item.stash[HELD_DEVICES] = self._devices


class DeviceTurns:
    """Takes devices for each test that uses some."""

    def __init__(self, config: pytest.Config, settings: Settings, inventory: Inventory) -> None:
        self._config = config
        self._settings = settings
        self._inventory = inventory
        self._pool: DevicePool | None = None
        self._workers: list[dict[str, Any]] = []
        if inventory.devices:
            self._pool = DevicePool(inventory.devices, lock_folder(), _number(config), self._say)

    @pytest.fixture(scope="session")
    def npu_device(self) -> int:
        """Give the id of the NPU that this process has: one of the pool."""
        try:
            return self._own()
        except NpudumpError as error:
            pytest.fail(f"npudump: {error}", pytrace=False)

    def _own(self) -> int:
        if self._pool is None:
            return own_device()
        if self._pool.own is None:
            raise DeviceError(
                "npu_device: nothing holds a device for this test: name the fixture among its arguments, or "
                "among those of a fixture that it names"
            )
        return self._pool.own

    def pytest_report_header(self) -> list[str]:
        """Describe the devices."""
        ids = ", ".join(map(str, self._inventory.devices))
        words = [f"devices {ids}, each locked while a test uses it"] if ids else []
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        return fitted(reporter, f"npudump: {'; '.join(filter(None, [*words, self._inventory.note]))}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass the devices to a worker of pytest-xdist."""
        node.workerinput[_KEY] = [*self._inventory.devices.items()]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Hold devices for all runs of a test."""
        pool, number = self._pool, number_of_devices(item)
        if pool is None or not number or only_setup(item):
            return (yield)
        try:
            item.stash[HELD_DEVICES] = pool.take(number, item.nodeid)
        except DeviceError as error:
            item.stash[_PROBLEM] = str(error)
        try:
            return (yield)
        finally:
            pool.give_back()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test that cannot have its devices."""
        if _PROBLEM in item.stash:
            raise pytest.fail.Exception(inert(f"npudump: {item.stash[_PROBLEM]}"), pytrace=False)

    def pytest_npudump_child_options(self, item: pytest.Item, options: dict[str, Any]) -> None:
        """Hand the devices of a test on to the process that it runs in."""
        ids = ",".join(str(i) for i in item.stash.get(HELD_DEVICES, ()))
        options["override_ini"] = [*(options.get("override_ini") or ()), f"{DEVICES.dest}={ids}"]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Give everything back, and report it to the controller."""
        if self._pool is None:
            return
        self._pool.close()
        told = {"own": self._pool.own, "waited": self._pool.waited}
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_KEY] = told
        else:
            self._workers.append(told)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Remember the devices of a worker."""
        if (told := getattr(node, "workeroutput", {}).get(_KEY)) is not None:
            self._workers.append(told)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Report how processes shared the devices, where that took time."""
        used = [told for told in self._workers if told["own"] is not None]
        if (waited := sum(told["waited"] for told in used)) >= 1:
            ids = ", ".join(map(str, sorted({told["own"] for told in used})))
            processes = "process" if len(used) == 1 else "processes"
            words = f"npudump: {len(used)} {processes} waited {waited:.0f} s in all for devices ({ids})"
            for line in fitted(terminalreporter, words):
                terminalreporter.write_line(line)

    def _say(self, words: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and not hasattr(self._config, "workerinput"):
            reporter.ensure_newline()
            for line in fitted(reporter, f"npudump: {words}"):
                reporter.write_line(line)
            return
        capture: Any = self._config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled():
            name = os.environ.get("PYTEST_XDIST_WORKER", "")
            print(f"npudump: {name}: {words}", file=sys.stderr, flush=True)  # noqa: T201 - seen at once


def _number(config: pytest.Config) -> int:
    """Return the number of this process among the workers."""
    worker: Any = getattr(config, "workerinput", {}).get("workerid", "gw0")
    return int("".join(filter(str.isdecimal, str(worker))) or 0)


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
    """A lock file; held by one process at a time, for as long as it lives or until it gives it back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

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
        """Return the last known holder of the lock, in words; it may not be true."""
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                told = file.read(_LARGEST).decode("utf-8", "replace")
            if words := "".join(filter(str.isprintable, told)):
                return cut(words, 200)
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
    """Write down the lock's holder; without room on the disk it is held all the same."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = f"user {os.getuid()}"
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    words = f"process {os.getpid()} of {user} since {since} ({owner})"
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, words.encode("utf-8", "replace"), 0)


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
        self._numbers = devices
        self._turns = {i: DeviceLock(folder / f"npu{devices[i]}.lock") for i in ids}
        self._claims = {i: DeviceLock(folder / f"npu{devices[i]}.claim") for i in ids}
        self._say = say
        self.own: int | None = None
        self.waited = 0.0

    def take(self, number: int, owner: str) -> tuple[int, ...]:
        """Wait for ``number`` devices and return their ids; the first is the same each time.

        Of several the rest are those behind it. All are taken in the order of the machine, by every process,
        so that none waits for one that waits for it.

        Args:
            number: of devices.
            owner: for whom; shown to those who wait.

        Raises:
            DeviceError: the pool has fewer, or a lock cannot be taken.
        """
        if number > len(self._order):
            needed = number_of(number, "device")
            raise DeviceError(f"the test needs {needed}, and npudump_devices gives {len(self._order)}")
        started = time.monotonic()
        try:
            at = self._order.index(self._choose(owner))
            ids = (*self._order[at:], *self._order[:at])[:number]
            for i in sorted(ids, key=self._numbers.__getitem__):
                self._wait(i, owner)
        except BaseException:
            self.give_back()
            raise
        finally:
            self.waited += time.monotonic() - started
        return ids

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

    def _wait(self, device: int, owner: str) -> None:
        turn, started, told = self._turns[device], time.monotonic(), _PATIENCE
        while not turn.take(owner):
            if (waited := time.monotonic() - started) >= told:
                told = waited + _AGAIN
                self._say(f"waiting for device {device}, held by {turn.holder()}, {waited:.0f} s so far")
            time.sleep(_PAUSE)
