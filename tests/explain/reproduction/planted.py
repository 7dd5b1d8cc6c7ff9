"""A plugin of pytest: an operator of the emulator that computes wrongly, ``FAULT=layer=factor``."""

import os

import pytest

from pytest_npudump.emulator import faults


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    layer, _, factor = os.environ.get("FAULT", "").partition("=")
    if layer:
        faults.distort("net", layer, factor=float(factor))
