"""Reader of a command's input: a dump's directory or one file of it; unread files become problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import to_stderr
from pytest_npudump.cli.common.work import Workers, progress
from pytest_npudump.dump.files.formats import (
    BY_NAME,
    START_BYTES,
    Job,
    format_of_name,
    plain_format,
    start_of,
)
from pytest_npudump.dump.names import MAPPING, DumpFile, Place, context, name_of, read_mapping, read_place
from pytest_npudump.dump.reader import read_dump, read_job
from pytest_npudump.dump.records import Dump
from pytest_npudump.dump.tree.find import format_by_content
from pytest_npudump.dump.tree.keys import records_of
from pytest_npudump.errors import DumpError, FormatError, mapped
from pytest_npudump.language.text import typed
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.storage.archive import with_runs_unpacked
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def read_source(
    path: Path,
    workers: Workers,
    *,
    stats: bool,
    acl: bool = False,
    projections: bool = False,
    latest: bool = False,
    overflow: bool = False,
    raw: str = "",
) -> Dump:
    """Read a dump's directory or one file of a dump; files that cannot be read are its ``problems``.

    Args:
        path: the directory or file.
        workers: who reads.
        stats: compute the statistics of tensors.
        acl: compute them as ACL's device-side writer does.
        projections: compute these with them.
        latest: of several runs in the directory take the last.
        overflow: a dump of nothing but overflow records, or one of these, is good enough.
        raw: type and shape of ``.bin`` files of nothing but elements, such as ``float16:1x3``; "" for none.

    Raises:
        DumpError: there is no such path, it is no dump, or it holds no tensor and nothing unreadable.
    """
    given = path.absolute() if workers.remote else path
    path = with_runs_unpacked(given)
    bins = [] if not raw else [path] if path.suffix == ".bin" else sorted(path.rglob("*.bin"))
    try:
        if bins:
            dump = _read_bins(path, bins, raw, stats=stats, acl=acl, projections=projections)
        elif path.is_file():
            with progress(_("reading {path}").format(path=given)):
                dump = _read_file(path, stats=stats, acl=acl, projections=projections, overflow=overflow)
        else:
            # Headers and tables cost less to read here than to hand over, as threads wait for Python's lock.
            executor = workers.executor if stats else None
            with progress(_("reading {path}").format(path=given)) as report:
                asked: Any = {"stats": stats, "acl": acl, "projections": projections, "latest": latest}
                dump = read_dump(path, executor=executor, workers=workers.count, progress=report, **asked)
    except DumpError as error:
        _place(error, path, given)
        raise
    for problem in dump.problems:
        _place(problem, path, given)
    if not (dump.records or dump.problems or (overflow and (dump.notes or dump.overflow))):
        raise DumpError(
            _("{path} has no tensors").format(path=given) + "".join(f"; {note}" for note in dump.notes)
        )
    return dump


def _place(error: DumpError, path: Path, given: Path) -> None:
    """Have an error name the path that was given; what was unpacked is not there when it is read."""
    if path != given:
        error.args = (
            *(mapped(text, lambda told: told.replace(str(path), str(given))) for text in error.args),
        )


def _read_bins(root: Path, paths: list[Path], raw: str, *, stats: bool, acl: bool, projections: bool) -> Dump:
    """Read files of nothing but elements, all of one type and shape; the rest as for :func:`read_source`.

    Tensors in other files of a directory are problems, as they would be left out.
    """
    from pytest_npudump.dump.files.plain import executions, named, raw_bin  # noqa: PLC0415 - only where asked for

    others = () if root.is_file() else [path for path in sorted(root.rglob("*")) if path.suffix != ".bin"]
    problems = [
        FormatError(path, "not read with --bin: put it in a folder without .bin files")
        for path in others
        if path.is_file() and plain_format(path, start_of(path)) is not None
    ]
    found = []
    for path in paths:
        try:
            tensor = raw_bin(path, raw)
        except FormatError as error:
            problems.append(error)
            continue
        place = read_place(path.parent.relative_to(root).parts) if path != root else Place()
        file = DumpFile(path, place, None, "plain")
        more, failed = executions(named(file, [tensor]), path, stats=stats, acl=acl, projections=projections)
        found += more
        problems += failed
    records, notes = records_of(found)
    return Dump(root, records, tuple(problems), tuple(notes), raw_names=True)


_OVERFLOW = "Node_OpDebug"
"""CANN's name of the operator whose output an overflow record is, whatever its file is called."""


def _read_file(path: Path, *, stats: bool, acl: bool, projections: bool, overflow: bool) -> Dump:
    """Read one file of a dump as a dump of its own; the rest as for :func:`read_source`.

    Raises:
        DumpError: it is no dump file, or one that holds no tensor of the model.
    """
    file = locate(path)
    format_ = BY_NAME[file.format]
    if overflow and format_.part == "overflow":
        return Dump(path, (), overflow=(path,))
    if format_.instead:
        what = format_.instead.format(path=typed(path))
        raise DumpError(_("{path} is {what}").format(path=path, what=what))
    executions, problems = read_job(Job(file), stats=stats, acl=acl, projections=projections)
    records, notes = records_of(executions)
    if overflow and {record.key.layer for record in records} == {_OVERFLOW}:
        return Dump(path, (), tuple(problems), overflow=(path,))
    raw = bool(executions) and all(execution.raw for execution in executions)
    return Dump(path, records, tuple(problems), tuple(notes), raw)


def locate(path: Path) -> DumpFile:
    """Parse the name and the directories of one dump file.

    Raises:
        DumpError: neither its name nor its first bytes are those of a dump file.
    """
    directory = path.resolve().parent
    place = read_place(context(directory.parts))
    mapping = read_mapping(directory / MAPPING) if (directory / MAPPING).is_file() else {}
    whole = mapping.get(path.name, path.name)
    name = name_of(whole)
    format_ = format_of_name(whole, name)
    if format_ is None:
        try:
            with open_regular(path) as file:
                start = file.read(START_BYTES)
        except OSError as error:
            raise FormatError(path, _("cannot be read: {error}").format(error=error.strerror)) from error
        found = format_by_content(path, start)
        if found is None or (isinstance(found, FormatError) and path.suffix != ".bin"):
            found = plain_format(path, start) or found
        if isinstance(found, FormatError):
            raise DumpError(
                _("{path} cannot be read as a dump file: {reason}").format(path=path, reason=found.reason)
            )
        if found is None:
            raise DumpError(
                _("{path} is no dump file: neither its name nor its first bytes are those of one").format(
                    path=path
                )
            )
        format_ = found
    return DumpFile(path, place, name, format_.name)


_SHOWN = 20


def problem_lines(problems: Sequence[FormatError]) -> Iterator[str]:
    """Yield a line for each of the first files that could not be read, and the number of the others."""
    for problem in problems[:_SHOWN]:
        yield _("unreadable: {problem}").format(problem=problem)
    if len(problems) > _SHOWN:
        yield _("... and {left} more").format(left=len(problems) - _SHOWN)


def report_problems(problems: Sequence[FormatError]) -> None:
    """Name the files that could not be read on standard error."""
    for line in problem_lines(problems):
        to_stderr(f"npudump: {line}")
