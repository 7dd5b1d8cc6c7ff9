"""Devices for tests: taken from a pool before anything of a test runs, and given back behind it.

``pool`` has locks and turns, ``turns`` takes them for tests; ``runtime/inventory.py`` finds those there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.errors import RequestError
from pytest_npudump.settings import Option

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.plugin.features.devices.turns import DeviceTurns, HeldByParent
    from pytest_npudump.settings import Settings


_DEVICES = Option(
    "devices",
    default="",
    help="device ids, or (auto) all that are there and healthy, which processes use in turns: each has "
    "one of its own, locked for all users of the machine while a test runs; without it nothing is locked",
    metavar="auto|IDS",
)
OPTIONS = (_DEVICES,)


def at_start(config: pytest.Config, settings: Settings) -> DeviceTurns | HeldByParent | None:
    """Return what gives the tests of this process their devices, where the option says which.

    Raises:
        NpudumpError: the devices cannot be found or locked, or are named to one rank of several.
    """
    given = _DEVICES.of(settings)
    if not given:
        return None
    if settings.device is not None:
        raise RequestError("--npudump-device and --npudump-devices exclude each other: leave one out")
    from pytest_npudump.plugin.features.devices.turns import device_turns  # noqa: PLC0415 - only where asked for

    return device_turns(config, settings, given)
