"""What a command is given, read: a dump's directory, or one file of it; nothing unread is passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import to_stderr
from pytest_npudump.cli.common.progress import progress
from pytest_npudump.dump.files.mapping import read_mapping
from pytest_npudump.dump.names import parse_name
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.reader_files import Job, read_job
from pytest_npudump.dump.records import Dump
from pytest_npudump.dump.tree import mindspore
from pytest_npudump.dump.tree.converted import parse_converted
from pytest_npudump.dump.tree.find import MAPPING, STATISTIC
from pytest_npudump.dump.tree.keys import records_of
from pytest_npudump.dump.tree.places import DumpFile, context, read_place
from pytest_npudump.errors import DumpError, FormatError
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_npudump.cli.common.executors import Workers

_TLV_MAGIC = b"\x5a\x5a\x5a\x5a"
_PROTOBUF_START = b"\x0a\x03"
_CSV_START = b"Input/Output"
_NPY_START = b"\x93NUMPY"
_START = 12


def read_source(
    path: Path,
    workers: Workers,
    *,
    stats: bool,
    acl: bool = False,
    latest: bool = False,
    overflow: bool = False,
) -> Dump:
    """Read a dump's directory or one file of a dump; files that cannot be read are its ``problems``.

    Args:
        path: the directory or file.
        workers: who reads.
        stats: compute the statistics of tensors.
        acl: compute them as ACL's device-side writer does.
        latest: of several runs in the directory take the last.
        overflow: a dump of nothing but overflow records, which its notes name, is good enough.

    Raises:
        DumpError: there is no such path, it is no dump, or it holds no tensor and nothing unreadable.
    """
    path = path.absolute() if workers.remote else path
    if path.is_file():
        with progress(f"reading {path}"):
            dump = _read_file(path, stats=stats, acl=acl)
    else:
        # Headers and tables cost less to read here than to hand over: threads would wait for Python's lock.
        executor = workers.executor if stats else None
        with progress(f"reading {path}") as report:
            dump = read_dump(
                path,
                stats=stats,
                acl=acl,
                latest=latest,
                executor=executor,
                workers=workers.count,
                progress=report,
            )
    if not (dump.records or dump.problems or (overflow and dump.notes)):
        raise DumpError(f"{path} holds no tensors" + "".join(f"; {note}" for note in dump.notes))
    return dump


def _read_file(path: Path, *, stats: bool, acl: bool = False) -> Dump:
    """Read one file of a dump as a dump of its own; ``stats`` and ``acl`` as for :func:`read_source`.

    Raises:
        DumpError: it is no dump file, or an overflow record.
    """
    file = locate(path)
    if file.name is not None and file.name.kind == "opdebug":
        raise DumpError(f"{path} is an overflow record, which holds no tensor: npudump overflow {path}")
    if path.name == STATISTIC:
        executions, problems = mindspore.statistic_executions(file)
    else:
        executions, problems = read_job(Job(file), stats=stats, acl=acl)
    records, notes = records_of(executions)
    raw = bool(executions) and all(execution.raw for execution in executions)
    return Dump(path, records, tuple(problems), tuple(notes), raw)


def locate(path: Path) -> DumpFile:
    """Return what the name and the directories of one dump file say.

    Raises:
        DumpError: neither its name nor its first bytes are those of a dump file.
    """
    directory = path.resolve().parent
    place = read_place(context(directory.parts))
    mapping = read_mapping(directory / MAPPING) if (directory / MAPPING).is_file() else {}
    whole = mapping.get(path.name, path.name)
    name = parse_name(whole) or parse_converted(whole)
    if name is None and path.name != STATISTIC and not _is_container(path):
        raise DumpError(f"{path} is no dump file: {_what(path)}")
    return DumpFile(path, place, name)


def report_problems(problems: Iterable[FormatError]) -> None:
    """Name every file that could not be read on standard error."""
    for problem in problems:
        to_stderr(f"npudump: unreadable: {problem}")


def _is_container(path: Path) -> bool:
    start = _start(path)
    return start[8:] == _TLV_MAGIC or start[8:10] == _PROTOBUF_START


def _what(path: Path) -> str:
    """Say what to do about a file that is no dump file by name or content."""
    start = _start(path)
    if start == _CSV_START[:_START]:
        return f"statistics, but the name tells no operator, and no {MAPPING} beside it does"
    if start.startswith(_NPY_START):
        return "npy, but not under a name of MindSpore or TorchAir, which tells the operator and the slot"
    return "neither its name nor its first bytes are those of one"


def _start(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(_START)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error
