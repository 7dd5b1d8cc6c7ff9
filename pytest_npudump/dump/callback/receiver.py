"""A dump that comes to a function instead of into files: ``acldumpRegCallback`` of CANN.

CANN hands over each file in chunks of up to 128 MiB, under the path the file would have had. pyACL calls the
function with a dict: ``file_name``, ``data_buf`` (the address of the bytes, valid during the call),
``buf_len``, ``is_last_chunk``, ``offset`` (-1 for "append", which pyACL shows as 2**64 - 1) and ``flag``
(reserved). It ignores what the function returns, and loses what it raises.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.arrays.decode import too_short, why_opaque
from pytest_npudump.dump.callback.container_stream import ContainerStream
from pytest_npudump.dump.files.container.executions import executions_of
from pytest_npudump.dump.reader import dump_of
from pytest_npudump.dump.stats.tensor import ACL_TYPES
from pytest_npudump.dump.tree.find import tree_of
from pytest_npudump.dump.tree.runs import select_run
from pytest_npudump.errors import EmptyDumpError, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_npudump.dump.callback.container_stream import RecordReading
    from pytest_npudump.dump.execution import Execution
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.dump.places import DumpFile
    from pytest_npudump.dump.records import Dump, Stats
    from pytest_npudump.dump.tree.find import Tree

_APPEND = (-1, (1 << 64) - 1)
_SNIFFED = 12
_TAKEN, _REFUSED = 0, -1
_POLL_SECONDS = 0.01


class _File:
    """One file on its way.

    Attributes:
        path: where it would have been written.
        start: its first bytes.
        size: bytes that have arrived.
        complete: whether the last chunk so far was called the last one.
        problem: why the rest of it cannot be made sense of; None while all is well.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start = b""
        self.size = 0
        self.complete = False
        self.problem: FormatError | None = None
        self.lock = threading.Lock()
        self._stream = ContainerStream(path)

    def take(self, chunk: Mapping[str, Any]) -> None:
        """Take a chunk; nothing is made of those behind one that was lost.

        Raises:
            FormatError: it does not continue the file, or its bytes cannot be had.
        """
        if self.problem is not None:
            return
        try:
            self._take(_bytes(chunk, self.path), int(chunk["offset"]), last=bool(chunk["is_last_chunk"]))
        except FormatError as error:
            self.problem = error
            raise
        except BaseException as error:
            reason = f"a chunk was lost: {type(error).__name__}: {error}"
            self.problem = FormatError(self.path, reason, offset=self.size)
            if isinstance(error, Exception):
                raise self.problem from error
            raise

    def _take(self, data: np.ndarray, offset: int, *, last: bool) -> None:
        if offset not in {*_APPEND, self.size}:
            raise self._misplaced(offset, data.size)
        if len(self.start) < _SNIFFED:
            self.start += data[: _SNIFFED - len(self.start)].tobytes()
        self._stream.feed(data)
        self.size += data.size
        self.complete = last
        if last:
            self._stream.flush()

    def _misplaced(self, offset: int, nbytes: int) -> FormatError:
        what = "the bytes before it are missing" if offset > self.size else "it came before"
        return FormatError(
            self.path,
            f"a chunk of {nbytes} bytes came for byte {offset}, where byte {self.size} was next: {what}; run "
            f"the test again, or with transport='files'",
            offset=self.size,
        )

    def readings(self) -> Iterable[RecordReading]:
        """Yield the records of the whole file.

        Raises:
            FormatError: it is incomplete or damaged.
        """
        if self.problem is not None:
            raise self.problem
        if not self.complete:
            raise FormatError(
                self.path,
                f"the last chunk never came, {self.size} bytes have: the process was ended early, or a chunk "
                f"was lost (see the plog); run the test again, or with transport='files'",
                offset=self.size,
            )
        yield from self._stream.readings(self.size)


class DumpReceiver:
    """The function that a dump is handed to, from any number of threads: statistics instead of files.

    Args:
        dump_path: the key of acl.json, below which the files would have been written.
    """

    def __init__(self, dump_path: Path) -> None:
        self.dump_path = dump_path
        self._roots = (dump_path, dump_path.resolve())
        self._lock = threading.Lock()
        self._files: dict[Path, _File] = {}
        self._problems: list[FormatError] = []
        self._running = 0
        self._latest = time.monotonic()

    def __call__(self, chunk: Mapping[str, Any], *_: object) -> int:
        """Take a chunk. Nothing is raised, as pyACL would lose it: what goes wrong is a problem of the dump.

        Returns:
            0, or -1 where the chunk could not be taken.
        """
        with self._lock:
            self._running += 1
        try:
            self._take(chunk)
        except FormatError as error:
            self._add_problem(error)
            return _REFUSED
        except Exception as error:  # noqa: BLE001 - whatever it is, a chunk was lost
            name = chunk.get("file_name", "?") if hasattr(chunk, "get") else "?"
            reason = f"a chunk could not be taken: {type(error).__name__}: {error}"
            self._add_problem(FormatError(str(name), reason))
            return _REFUSED
        finally:
            with self._lock:
                self._running -= 1
                self._latest = time.monotonic()
        return _TAKEN

    def _take(self, chunk: Mapping[str, Any]) -> None:
        path = self._path(chunk["file_name"])
        with self._lock:
            file = self._files.get(path) or self._files.setdefault(path, _File(path))
        with file.lock:
            file.take(chunk)

    def _path(self, name: str) -> Path:
        path = Path(name)
        for root in self._roots:
            if path != root and path.is_relative_to(root):
                return self.dump_path / path.relative_to(root)
        raise FormatError(
            name,
            f"came by callback and is not below {self.dump_path}: it belongs to another dump of the process",
        )

    def lose(self, reason: str) -> None:
        """Note that chunks went elsewhere, so that the dump is not whole."""
        self._add_problem(FormatError(self.dump_path, reason))

    def _add_problem(self, problem: FormatError) -> None:
        with self._lock:
            if problem not in self._problems:
                self._problems.append(problem)

    @property
    def empty(self) -> bool:
        """Whether nothing has come."""
        with self._lock:
            return not (self._files or self._problems)

    def settle(self, quiet: float, patience: float) -> None:
        """Wait until nothing comes any more: for ``quiet`` seconds, or ``patience`` while a file is open.

        CANN calls from a thread of its own, which waits for Python's lock: chunks may be queued before it
        although the device is idle.
        """
        begun = time.monotonic()
        while True:
            with self._lock:
                last, running = max(begun, self._latest), self._running
                unfinished = any(not (file.complete or file.problem) for file in self._files.values())
            if not running and time.monotonic() - last >= (patience if unfinished else quiet):
                return
            time.sleep(_POLL_SECONDS)

    def dump(self, *, acl: bool = False) -> Dump:
        """Return what has come so far, as if it had been read from files; the tensors have no bytes.

        Args:
            acl: whether statistics are those that CANN's device-side writer computes.

        Raises:
            EmptyDumpError: nothing has come.
            DumpError: what has come belongs to two runs.
        """
        with self._lock:
            files, problems = dict(self._files), list(self._problems)
        if not files and not problems:
            raise EmptyDumpError(
                f"the callback for {self.dump_path} holds no dump file: nothing was handed over"
            )
        tree = tree_of(self.dump_path, {path: file.start for path, file in files.items()})
        problems += [*tree.problems, *_no_tensors(tree)]
        chosen, notes = select_run(tree.files, self.dump_path, latest=False)
        executions: list[Execution] = []
        for found in chosen:
            with files[found.path].lock:
                try:
                    executions += _executions(found, files[found.path], problems, acl=acl)
                except FormatError as error:
                    if error not in problems:
                        problems.append(error)
        return dump_of(self.dump_path, tree, executions, problems, notes)


def _bytes(chunk: Mapping[str, Any], path: Path) -> np.ndarray:
    """Return the bytes of a chunk, uint8 of shape (buf_len,), where they lie."""
    buffer, length = chunk["data_buf"], int(chunk["buf_len"])
    if not length:
        return np.empty(0, np.uint8)
    if isinstance(buffer, int):
        if not buffer:
            raise FormatError(path, f"a chunk of {length} bytes came without an address")
        memory: Any = (ctypes.c_uint8 * length).from_address(buffer)
        return np.frombuffer(memory, np.uint8)
    data = np.frombuffer(buffer, np.uint8)
    if data.size < length:
        raise FormatError(path, f"a chunk of {length} bytes came with {data.size} bytes only")
    return data[:length]


def _no_tensors(tree: Tree) -> list[FormatError]:
    reason = "came by callback and holds no tensors, which alone are read from there: take transport='files'"
    others = [file.path for file in tree.files if file.format != "container"]
    return [
        FormatError(path, reason)
        for path in (*others, *(file.path for file in (*tree.statistics, *tree.cores)))
    ]


def _executions(found: DumpFile, file: _File, problems: list[FormatError], *, acl: bool) -> list[Execution]:
    if found.format != "container":
        return []
    executions: list[Execution] = []
    for reading in list(file.readings()):
        statistics = partial(_statistics, reading=reading, acl=acl)
        done, failed = executions_of(found, [reading.record], (), statistics)
        executions += map(_without_bytes, done)
        problems += failed
    return executions


def _statistics(part: TensorPart, *, reading: RecordReading, acl: bool) -> Stats | None:
    assert part.payload is not None  # noqa: S101 - asked only for tensors with bytes
    assert part.shape is not None  # noqa: S101 - the same
    if why_opaque(part.dtype) or (acl and part.dtype not in ACL_TYPES):
        return None
    result = reading.result(part.payload.offset, part.io, part.slot)
    if result is None:
        raise too_short(part.payload, part.dtype, math.prod(part.shape), part.payload.nbytes)
    return result.device if acl else result.stats


def _without_bytes(execution: Execution) -> Execution:
    return execution._replace(parts=tuple(part._replace(payload=None) for part in execution.parts))
