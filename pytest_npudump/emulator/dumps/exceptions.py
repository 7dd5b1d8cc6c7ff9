"""Exception dump (``dump_scene: aic_err_...``): what the runtime leaves of an operator that fails.

Rules: ``exception_dumper.cpp`` and ``dump_manager.cpp`` of adump. The first kind that is switched on stays on
until ``aclmdlFinalizeDump``, the detail dump until the end of the process; so does its path.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.config.acl_keys import SCENE_TYPES, exception_path
from pytest_npudump.dump.records import sanitise
from pytest_npudump.emulator.dumps.exception_files import container, core, exception_header
from pytest_npudump.emulator.dumps.writer import append

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_npudump.emulator.dumps.exception_files import Operator

NORM = "EXCEPTION"
BRIEF = "ARGS_EXCEPTION"
DETAIL = "AIC_ERR_DETAIL_DUMP"

_HERE = "./"
_READ_ONLY = 0o400
_FAILURE = 1
_NAME_LIMIT = 255
_MILLISECOND = 1000
_SCENES = ("aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump")
"""Values that ``ASCEND_DUMP_SCENE`` takes."""


@dataclass(frozen=True, slots=True)
class ExceptionDump:
    """An exception dump that is on.

    Attributes:
        kind: :data:`NORM`, :data:`BRIEF` or :data:`DETAIL`.
        base: directory above ``extra-info``; a relative one is that of the failure's working directory.
    """

    kind: str
    base: str

    def write(self, operator: Operator, clock: Callable[[], int]) -> Path:
        """Write the dump of an operator and return its path; a detail dump ends the process.

        Raises:
            OSError: it cannot be written.
        """
        folder = Path(self.base or _HERE).resolve() / "extra-info" / "data-dump" / str(operator.device)
        folder.mkdir(parents=True, exist_ok=True)
        now = clock()
        ids = f"{operator.stream}.{operator.task}"
        op_type, name = sanitise(operator.op_type), sanitise(operator.name)
        if self.kind == DETAIL:
            kernel = f"te_{op_type.lower()}_{name}__kernel0"
            path = folder / f"{kernel}.{ids}.{_stamp(now)}.core"[-_NAME_LIMIT:]
            append(str(path), [core(kernel, operator)])
        else:
            brief = self.kind == BRIEF
            stem = f"exception_info.{ids}" if brief else f"{op_type}.{name}.{operator.task}"
            # the first line of the log (DumpOperator::LogExceptionInfo)
            message = (
                f"[AIC_INFO] node_name:{operator.name}, node_type:{operator.op_type}, "
                f"stream_id:{operator.stream}, task_id:{operator.task}, context_id:4294967295\n"
            )
            header = exception_header(now, operator, brief=brief, message="" if brief else message)
            file = f"{stem}.{_stamp(now)}"
            while len(file) <= _NAME_LIMIT and (folder / file).exists():
                now += _MILLISECOND
                file = f"{stem}.{_stamp(now)}"
            path = Path(append(f"{folder}/{file}", container(header, operator), hashed=file))
        path.chmod(_READ_ONLY)
        if self.kind == DETAIL:
            # ExceptionDumper::Exit: neither atexit handlers nor buffered output outlive it.
            os._exit(_FAILURE)
        return path


def _stamp(now: int) -> str:
    """Return local time to the millisecond, 17 digits."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1_000_000)) + f"{now // 1000 % 1000:03}"


def dumped(dump: ExceptionDump | None, operator: Operator, clock: Callable[[], int]) -> str:
    """Write the dump of an operator, if one is on, and return what the error message says of it."""
    if dump is None:
        return ""
    try:
        return f"; dump exception to file, file: {dump.write(operator, clock)}"
    except OSError as error:
        return f"; its exception dump cannot be written: {error}"


def from_environment(environ: Mapping[str, str]) -> ExceptionDump | None:
    """Return the dump that the environment of a new process switches on, if any.

    ``ASCEND_DUMP_SCENE``, else ``NPU_COLLECT_PATH``, whose directory has to be usable.
    """
    scene = environ.get("ASCEND_DUMP_SCENE", "")
    if scene in _SCENES:
        return ExceptionDump(SCENE_TYPES[scene], exception_path({}, Path.cwd(), environ) or _HERE)
    collect = environ.get("NPU_COLLECT_PATH", "")
    usable = exception_path({}, Path.cwd(), {"ASCEND_DUMP_PATH": collect}) if collect else ""
    return ExceptionDump(NORM, usable) if usable else None
