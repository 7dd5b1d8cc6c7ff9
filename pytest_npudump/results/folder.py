"""The folder of kept results: ``results.jsonl``, and below ``records`` the statistics of each run.

A line of ``results.jsonl`` is what came of a test's last run, and all that a judgement needs; ``schema.json``
describes it for programs, and both have one version. Below ``tensors`` are golden tensors of runs that wait
for a decision, under the hash of their bytes.

A line is appended as each test ends, under a lock, so that several processes may do so and none that is
killed loses what had ended. The last line of a test counts; where several items of one session share its
name, the worst of their last lines does. A record's name carries a part of its hash: it is never replaced,
and what a line names is there before the line is. The end of a session removes lines and records that later
ones have superseded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import NpudumpError, said
from pytest_npudump.language.translation import MESSAGES, carried, restored
from pytest_npudump.scene import SCENES
from pytest_npudump.storage.atomic import held, lock_file, write_whole
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from pytest_npudump.golden.stored_tensors import TensorStore
    from pytest_npudump.golden.tensors import Tensor


LINES = "results.jsonl"
LAST = "last"
"""File in pytest's cache that says where the last session left results, if elsewhere."""
_BELOW = "results"
"""Folder of the results in a session's output folder."""
VERSION = 1
TEST = "test"
SESSION = "session"
PASSED, FAILED, SKIPPED, XFAILED, XPASSED = "passed", "failed", "skipped", "xfailed", "xpassed"
ACCEPTED, REJECTED = "accepted", "rejected"
"""Decisions about a run that differs from its golden."""

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def results_in(folder: Path) -> Path:
    """Return the folder of results that a folder is, or has as the output folder of a session."""
    below = folder / _BELOW
    return below if (below / LINES).is_file() and not (folder / LINES).is_file() else folder


class ResultsError(NpudumpError):
    """Saved results that cannot be read, trusted or written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Saved result of one test.

    Attributes:
        data: the line, as ``schema.json`` describes it.
    """

    data: Mapping[str, Any]

    @property
    def test(self) -> str:
        """The test as a person would name it."""
        return str(self.data["test"])

    @property
    def name(self) -> str:
        """The name of the test, with the rank that ran it where there are several."""
        rank = self.data["rank"]
        return self.test if rank is None else f"{self.test} (rank {rank})"

    @property
    def status(self) -> str:
        """Status of the run, a constant of :mod:`pytest_npudump.regression.result`."""
        return str(self.data["status"])

    @property
    def identity(self) -> tuple[str, str, int | None]:
        """Identity of the result: the test, its golden and its rank."""
        return self.test, self.golden_file, self.data["rank"]

    @property
    def golden_file(self) -> str:
        """The golden file that an update would write, relative to the golden folder."""
        return str(self.data["golden"]["file"])

    @property
    def golden_of_run(self) -> str | None:
        """The SHA-256 of the golden that the run was compared with; None where there was none."""
        told = self.data["golden"]
        found: str | None = told.get("before", told["sha256"])
        return found

    @property
    def record_file(self) -> str:
        """The file of the run's statistics, relative to the folder of results; "" where there is none."""
        return str(self.data["record"]["file"]) if self.data["record"] else ""

    @property
    def objects(self) -> tuple[str, ...]:
        """SHA-256 of the golden tensors that are kept of the run."""
        return tuple((self.data["record"] or {}).get("tensors", ()))

    @property
    def inherited(self) -> frozenset[str]:
        """Sanitised keys of golden tensors that stay as the golden has them."""
        return frozenset((self.data["record"] or {}).get("inherited", ()))

    @property
    def is_open(self) -> bool:
        """Return whether the run is pending: it differs from its golden, or has none, and was not decided.

        What a scene without statistics finds is no golden that anybody could accept.
        """
        scene = SCENES.get(str(self.data["request"].get("scene", "model")))
        decidable = scene is None or scene.statistics
        return decidable and self.data["decision"] is None and self.status in {"failed", "golden missing"}


def line_of(data: Mapping[str, Any]) -> bytes:
    """Return one object as a line of ``results.jsonl``, strict JSON: NaN and infinities are text."""
    data = carried(data)
    try:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False, default=str)
    return text.encode() + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_finite, value)]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def parse_line(text: bytes, *, spoken: bool = True) -> Mapping[str, Any]:
    """Return the object of a line that this version writes.

    Args:
        text: the line.
        spoken: whether its texts are to be spoken; else they are as they lie there, to be written again.

    Raises:
        ValueError: it is none; says why.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(data, dict) or data.get("kind") not in {TEST, SESSION}:
        raise ValueError(f"no object of the kind {TEST!r} or {SESSION!r}")
    if data.get("version") != VERSION:
        raise ValueError(f"of version {data.get('version')!r}, this pytest-npudump reads version {VERSION}")
    _check(data, _schema()[data["kind"]], "the line")
    return restored(data) if spoken and MESSAGES in data else data


@lru_cache(maxsize=1)
def _schema() -> Mapping[str, Any]:
    text = Path(__file__).with_name("schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)["$defs"]
    return schema


def _check(value: Any, schema: Mapping[str, Any], name: str) -> None:
    """Raise ValueError where a value is not as its schema says: its type, its keys, and texts in it."""
    kinds = schema.get("type", ())
    allowed = [kind for word in ([kinds] if isinstance(kinds, str) else kinds) for kind in _TYPES[word]]
    pattern = schema.get("pattern")
    spelt = not isinstance(value, str) or pattern is None or re.fullmatch(pattern, value)
    if allowed and not (type(value) in allowed and spelt):
        raise ValueError(f"{name} is {str(value)[:80]!r}")
    if isinstance(value, list):
        for item in value:
            _check(item, schema.get("items", {}), f"a part of {name}")
    if isinstance(value, dict):
        for key in schema.get("required", ()):
            if key not in value:
                raise ValueError(f"{name} has no {key!r}")
        for key, expected in schema.get("properties", {}).items():
            if key in value:
                _check(value[key], expected, f"{key!r} of {name}")


@lru_cache(maxsize=1024)
def file_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, read once a process; None where it cannot be read."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


RECORDS = "records"
_TENSORS = "tensors"
_LOCK_SECONDS = 60
_FROM_GOOD_TO_BAD = (PASSED, XPASSED, XFAILED, SKIPPED, FAILED)
_SHOWN = 6
"""Digits of a record's hash in its name: with them it has at most the bytes of the longest golden's."""


@dataclass(frozen=True, slots=True)
class Results:
    """Content of a results folder.

    Attributes:
        entries: what each test came to in its last session, in the order of the lines.
        problems: what cannot be read, in words; tests may be missing because of each.
        session: the last session that wrote to it; "" where that is not known.
    """

    entries: tuple[Entry, ...]
    problems: tuple[str, ...] = ()
    session: str = ""


class ResultsFolder:
    """A folder of results, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = path / LINES

    @property
    def tensors(self) -> TensorStore:
        """Store of golden tensors of pending runs."""
        from pytest_npudump.golden.stored_tensors import TensorStore  # noqa: PLC0415 - numpy and yaml come with it

        return TensorStore(folder=str(self.path / _TENSORS))

    def add(
        self,
        lines: Sequence[Mapping[str, Any]],
        records: Mapping[str, bytes],
        tensors: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> None:
        """Append lines, behind the records and tensors that they name.

        Args:
            lines: objects as :func:`parse_line` returns them.
            records: content by file name, relative to the folder.
            tensors: by the SHA-256 of their bytes.

        Raises:
            OSError: something cannot be written; what was there before is as it was.
            StoreError: the same, of a tensor.
            ResultsError: the folder holds results of another version, or is locked for long.
        """
        content = b"".join(map(line_of, lines))
        with self._locked(lasting=True):
            for name, record in records.items():
                self._write_record(name, record)
            if tensors:
                from pytest_npudump.golden.tensors import chunks, portable  # noqa: PLC0415 - the same
            for digest, array in tensors.items():
                little = portable(array)
                if not self.tensors.cache.has(digest, little.nbytes):
                    self.tensors.cache.write(digest, chunks(little), "the tensor")
            descriptor = os.open(self._lines, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                end = _end_of_lines(file.fileno(), self._lines)
                try:
                    file.truncate(end)
                    file.seek(end)
                    if file.write(content) != len(content):
                        raise OSError("not all of it was written")  # noqa: TRY301 - the handler below undoes it
                except OSError:
                    with suppress(OSError):
                        file.truncate(end)
                    raise

    def _write_record(self, name: str, content: bytes) -> None:
        path = self.path / name
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # No flush to the disk: a power cut may cost a record, which its hash tells, and a flush costs most.
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def read(self) -> Results:
        """Read the result of each test in its last session.

        Raises:
            ResultsError: there are no results, or none can be read.
        """
        try:
            content = read_regular(self._lines)
        except OSError as error:
            raise ResultsError(
                said(
                    "{path}: no results can be read: {error}; run the tests with "
                    "--npudump-output=DIR, or with pytest's cache, and name that folder",
                    path=self._lines,
                    error=error.strerror or error,
                )
            ) from error
        lines, problems = _parsed(content, self._lines)
        tests = _standing(lines)
        if not tests:
            raise ResultsError(
                next(iter(problems), said("{path} has no tests: run the tests again", path=self._lines))
            )
        problems += _missing(lines, self._lines)
        session = next((str(line["session"]) for line in reversed(lines) if line["kind"] == SESSION), "")
        return Results(tuple(tests), tuple(problems), session)

    def record(self, entry: Entry) -> bytes:
        """Return the record of an entry that has one.

        Raises:
            ResultsError: it cannot be read, or is not the one that the entry was written with.
        """
        path = self.path / entry.record_file
        try:
            content = read_regular(path)
        except OSError as error:
            raise ResultsError(
                f"{path}: the record of {entry.test} cannot be read: {error.strerror or error}; run it again"
            ) from error
        if sha256(content).hexdigest() != entry.data["record"]["sha256"]:
            raise ResultsError(f"{path}: not the record that was kept of {entry.test}; run it again")
        return content

    def update(self, changed: Iterable[Entry]) -> None:
        """Put entries in the place of those of the same tests.

        Raises:
            OSError: they cannot be written; all is as it was.
            ResultsError: the folder is locked for long.
        """
        new = {entry.identity: entry for entry in changed}
        with self._locked():
            lines, problems = _parsed(read_regular(self._lines), self._lines)
            if problems:
                raise ResultsError(problems[0])
            kept = [
                line if line["kind"] == SESSION else new.get(Entry(line).identity, Entry(line)).data
                for line in lines
            ]
            write_whole(self._lines, map(line_of, kept))

    def compact(self) -> list[Entry]:
        """Remove lines and records that later ones of the same tests have superseded, and return the rest.

        Raises:
            OSError: something cannot be written; all is as it was.
            ResultsError: the folder is locked for long.
        """
        if not self._lines.exists():
            return []
        with self._locked():
            lines, problems = _parsed(read_regular(self._lines), self._lines, spoken=False)
            if problems:  # what a person should look at
                return []
            entries = _standing(lines)
            sessions_used = {entry.data["session"] for entry in entries}
            sessions = {line["session"]: line for line in lines if line["kind"] == SESSION}
            last = [*sessions][-1:]
            kept = [line for name, line in sessions.items() if name in {*sessions_used, *last}]
            kept += [entry.data for entry in entries]
            if len(kept) != len(lines):
                write_whole(self._lines, map(line_of, kept))
            objects = (name for one in entries if one.is_open for name in one.objects)
            files = (self.path / one.record_file for one in entries)
            used = {*map(self.tensors.cache.path, objects), *files}
            for path in (*(self.path / RECORDS).rglob("*"), *(self.path / _TENSORS).rglob("*")):
                if path.is_file() and path not in used:
                    with suppress(OSError):
                        path.unlink()
        return entries

    @contextmanager
    def _locked(self, *, lasting: bool = False) -> Iterator[None]:
        from filelock import Timeout  # noqa: PLC0415 - 25 ms that only writing needs

        self.path.mkdir(parents=True, exist_ok=True)
        lock = lock_file(self._lines)
        try:
            with held(lock, _LOCK_SECONDS, lasting=lasting):
                yield
        except Timeout:
            raise ResultsError(
                f"{self.path}: another process has held the lock {lock} for {_LOCK_SECONDS} seconds: wait "
                f"for it to end, or remove the lock if nothing is writing"
            ) from None


def record_name(golden_file: str, content: bytes) -> str:
    """Return the name of a record, relative to the folder: where the golden lies in its own, and a hash."""
    return f"{RECORDS}/{golden_file.removesuffix('.yaml')}~{sha256(content).hexdigest()[:_SHOWN]}.yaml"


def _end_of_lines(descriptor: int, path: Path) -> int:
    """Return the end of the last whole line; a killed writer may have left a piece behind it.

    Raises:
        ResultsError: the first line is not of this version.
    """
    size = os.fstat(descriptor).st_size
    if size == 0:
        return 0
    line, end, _ = os.pread(descriptor, 1 << 16, 0).partition(b"\n")
    try:
        if end:
            parse_line(line)
    except ValueError as error:
        raise ResultsError(f"{path}, line 1: {error}: remove the folder, and run the tests again") from None
    if os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    return os.pread(descriptor, size, 0).rfind(b"\n") + 1


def _parsed(content: bytes, path: Path, *, spoken: bool = True) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the lines, and what is wrong with those that are none."""
    lines, problems = [], []
    *whole, rest = content.split(b"\n")
    for number, text in enumerate(whole, 1):
        try:
            lines.append(parse_line(text, spoken=spoken))
        except ValueError as error:  # noqa: PERF203 - each line is told
            problems.append(f"{path}, line {number}: {error}: remove the folder, and run the tests again")
    if rest:
        problems.append(f"{path}: ends within a line: a test's result is lost; run the tests again")
    return lines, problems


def _standing(lines: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Return the line of each test that counts: of its last session, there of the item that fared worst."""
    tests: dict[object, dict[object, Entry]] = {}
    for entry in (Entry(line) for line in lines if line["kind"] != SESSION):
        items = tests.setdefault(entry.identity, {})
        if any(other.data["session"] != entry.data["session"] for other in items.values()):
            items.clear()
        items.pop(entry.data.get("item"), None)  # it ran again
        items[entry.data.get("item")] = entry
    return [max(reversed([*items.values()]), key=_badness) for items in tests.values()]


def _badness(entry: Entry) -> tuple[int, bool]:
    outcome = entry.data["outcome"]
    known = _FROM_GOOD_TO_BAD.index(outcome) if outcome in _FROM_GOOD_TO_BAD else len(_FROM_GOOD_TO_BAD)
    return known, entry.data["incomplete"] is not None


def _missing(lines: Sequence[Mapping[str, Any]], path: Path) -> list[str]:
    """Count the tests of the last session without a result, as after a kill or with a full disk."""
    last = next((line for line in reversed(lines) if line["kind"] == SESSION), None)
    if last is None:
        return []
    own = [line for line in lines if line["kind"] != SESSION and line["session"] == last["session"]]
    left = last["tests"] - len({Entry(line).identity for line in own})
    words = said(
        "{path}: {left} of the {tests} tests of the last session left no result; run them again",
        path=path,
        left=left,
        tests=last["tests"],
    )
    return [words] if left > 0 else []
