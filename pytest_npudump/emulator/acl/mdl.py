"""``acl.mdl``: models, their descriptions, datasets, execution and the dump."""

from __future__ import annotations

from typing import NoReturn

from pytest_npudump.emulator.acl import _datasets, _execution, _gears, _load, _model_descs, _system
from pytest_npudump.emulator.acl._calls import CODE, MDL
from pytest_npudump.emulator.process import callback
from pytest_npudump.emulator.process.state import process
from pytest_npudump.emulator.unsupported import missing

del _datasets, _execution, _gears, _load, _model_descs, _system
_QUEUES = "a model with queues takes its data from the device's own scheduler"

MDL.table(
    {
        "dump_reg_callback": (
            "Oi",
            CODE,
            lambda *of: callback.register(process(), *of),
        ),  # the function gets one dict a chunk
        "dump_unreg_callback": ((), None, lambda: callback.unregister(process())),
    }
)

globals().update(MDL.calls, __all__=[*MDL.calls])


def __getattr__(name: str) -> NoReturn:
    missing("acl.mdl", name, _QUEUES if name == "load_from_file_with_q" else "")
