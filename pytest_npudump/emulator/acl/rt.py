"""``acl.rt``: devices, contexts, streams, events, callbacks and memory."""

from __future__ import annotations

from typing import NoReturn

from pytest_npudump.emulator.acl import _devices, _events, _memory_calls, _reports, _streams
from pytest_npudump.emulator.acl._calls import RT
from pytest_npudump.emulator.unsupported import missing

del _devices, _events, _memory_calls, _reports, _streams
globals().update(RT.calls, __all__=[*RT.calls])


def __getattr__(name: str) -> NoReturn:
    missing("acl.rt", name)
