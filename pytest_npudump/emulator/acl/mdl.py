"""``acl.mdl``: models, their descriptions, datasets, execution and the dump."""

from __future__ import annotations

from typing import NoReturn

from pytest_npudump.emulator.acl import _datasets, _execution, _gears, _load, _model_descs, _system
from pytest_npudump.emulator.acl._calls import MDL
from pytest_npudump.emulator.unsupported import missing

del _datasets, _execution, _gears, _load, _model_descs, _system
_QUEUES = "a model with queues takes its data from the device's own scheduler"

globals().update(MDL.calls, __all__=[*MDL.calls])


def __getattr__(name: str) -> NoReturn:
    missing("acl.mdl", name, _QUEUES if name == "load_from_file_with_q" else "")
