"""Turns of tests on devices.

Under pytest-xdist the controller looks for the devices once, and each worker takes turns on them. The process
of an isolated test has those that its parent holds for it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import DeviceError, NpudumpError
from pytest_npudump.language.text import inert
from pytest_npudump.plugin.features.devices.pool import DevicePool, lock_folder
from pytest_npudump.plugin.runtest.item_case import only_setup
from pytest_npudump.plugin.session_runtime import DEVICES, number_of_devices, own_device
from pytest_npudump.plugin.terminal.reporter import CHILD
from pytest_npudump.ranks.rank import current_rank
from pytest_npudump.runtime.inventory import Inventory, take_inventory

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_npudump.settings import Settings


_KEY = "npudump_devices"
"""What controller and workers tell each other by."""
_PROBLEM = pytest.StashKey[str]()


def device_turns(config: pytest.Config, settings: Settings, given: str) -> DeviceTurns | HeldByParent:
    """Return what gives the tests of this process their devices.

    Args:
        config: of the session.
        settings: its options.
        given: which devices there are: ids, or ``auto``.

    Raises:
        NpudumpError: the devices cannot be found or locked, or are named to one rank of several.
    """
    if config.pluginmanager.has_plugin(CHILD):
        return HeldByParent(tuple(map(int, given.split(","))))
    if (rank := current_rank()) is not None:
        words = f"this is {rank}, which has the device of its LOCAL_RANK"
        if given != "auto":
            raise DeviceError(f"--npudump-devices: {words}: leave the option out")
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
        item.stash[DEVICES] = self._devices


class DeviceTurns:
    """Takes devices for each test that uses some.

    Args:
        config: of the session.
        settings: the options.
        inventory: the devices there are.
    """

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
            return own_device(self._settings)
        if self._pool.own is None:
            raise DeviceError(
                "npu_device: nothing holds a device for this test: name the fixture among its arguments, or "
                "among those of a fixture that it names"
            )
        return self._pool.own

    def pytest_report_header(self) -> str:
        """Say which devices there are."""
        ids = ", ".join(map(str, self._inventory.devices))
        words = [f"devices {ids}, each locked while a test uses it"] if ids else []
        return f"npudump: {'; '.join(filter(None, [*words, self._inventory.note]))}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of pytest-xdist which devices there are."""
        node.workerinput[_KEY] = [*self._inventory.devices.items()]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Hold devices for all runs of a test, whoever runs it again."""
        pool, number = self._pool, number_of_devices(item)
        if pool is None or not number or only_setup(item):
            return (yield)
        try:
            item.stash[DEVICES] = pool.take(number, item.nodeid)
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
        options["npudump_devices"] = ",".join(str(i) for i in item.stash.get(DEVICES, ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Give everything back, and tell the controller of it."""
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
        """Remember what a worker used."""
        told = getattr(node, "workeroutput", {}).get(_KEY)
        if told is not None:
            self._workers.append(told)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how processes shared the devices, where that took time."""
        used = [told for told in self._workers if told["own"] is not None]
        waited = sum(told["waited"] for told in used)
        if waited >= 1:
            ids = ", ".join(map(str, sorted({told["own"] for told in used})))
            processes = "process" if len(used) == 1 else "processes"
            terminalreporter.write_line(
                f"npudump: {len(used)} {processes} waited {waited:.0f} s in all for devices ({ids})"
            )

    def _say(self, words: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and not hasattr(self._config, "workerinput"):
            reporter.ensure_newline()
            reporter.write_line(f"npudump: {words}")
            return
        capture: Any = self._config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled():
            name = os.environ.get("PYTEST_XDIST_WORKER", "")
            print(f"npudump: {name}: {words}", file=sys.stderr, flush=True)  # noqa: T201 - seen at once


def _number(config: pytest.Config) -> int:
    """Return the number of this process among the workers."""
    worker: Any = getattr(config, "workerinput", {}).get("workerid", "gw0")
    digits = "".join(filter(str.isdecimal, str(worker)))
    return int(digits or 0)
