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
from pytest_npudump.emulator.dumps.exception_files import brief_header, container, core, norm_header
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

    @property
    def permanent(self) -> bool:
        """Whether ``aclmdlFinalizeDump`` leaves it on."""
        return self.kind == DETAIL

    def write(self, operator: Operator, clock: Callable[[], int]) -> Path:
        """Write the dump of an operator and return its path; a detail dump ends the process.

        Raises:
            OSError: it cannot be written.
        """
        folder = Path(self.base or _HERE).resolve() / "extra-info" / "data-dump" / str(operator.device)
        folder.mkdir(parents=True, exist_ok=True)
        path = self._write(folder, operator, clock())
        path.chmod(_READ_ONLY)
        if self.kind == DETAIL:
            # ExceptionDumper::Exit: neither atexit handlers nor buffered output outlive it.
            os._exit(_FAILURE)
        return path

    def _write(self, folder: Path, operator: Operator, now: int) -> Path:
        if self.kind == NORM:
            stem = f"{sanitise(operator.op_type)}.{sanitise(operator.name)}.{operator.task}"
            header = norm_header(now, operator, message=_message(operator))
            return _append(folder, stem, now, container(header, operator))
        if self.kind == BRIEF:
            stem = f"exception_info.{operator.stream}.{operator.task}"
            return _append(folder, stem, now, container(brief_header(now, operator), operator))
        kernel = f"te_{sanitise(operator.op_type).lower()}_{sanitise(operator.name)}__kernel0"
        stem = f"{kernel}.{operator.stream}.{operator.task}"
        path = folder / f"{stem}.{_stamp(now)}.core"[-_NAME_LIMIT:]
        append(str(path), [core(kernel, operator)])
        return path


def dumped(dump: ExceptionDump | None, operator: Operator, clock: Callable[[], int]) -> str:
    """Write the dump of an operator, if one is on, and return what the error message says of it."""
    if dump is None:
        return ""
    try:
        return f"; dump exception to file, file: {dump.write(operator, clock)}"
    except OSError as error:
        return f"; its exception dump cannot be written: {error}"


def _append(folder: Path, stem: str, now: int, pieces: list[bytes]) -> Path:
    name = f"{stem}.{_stamp(now)}"
    while (folder / name).exists() if len(name) <= _NAME_LIMIT else False:
        now += _MILLISECOND
        name = f"{stem}.{_stamp(now)}"
    return Path(append(f"{folder}/{name}", pieces, hashed=name))


def _stamp(now: int) -> str:
    """Return local time to the millisecond, 17 digits."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1_000_000)) + f"{now // 1000 % 1000:03}"


def _message(operator: Operator) -> str:
    """Return the first line of the log that the norm dump carries (``DumpOperator::LogExceptionInfo``)."""
    return (
        f"[AIC_INFO] node_name:{operator.name}, node_type:{operator.op_type}, "
        f"stream_id:{operator.stream}, task_id:{operator.task}, context_id:4294967295\n"
    )


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
