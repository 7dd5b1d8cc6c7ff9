"""The line of one test in ``results.jsonl``: what came of its last run, and all that a judgement needs.

``schema.json`` describes it for programs; both have one version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_npudump.errors import NpudumpError
from pytest_npudump.language.translation import MESSAGES, carried, restored
from pytest_npudump.scene import SCENES

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
_SHA = re.compile(r"[0-9a-f]{64}")


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
    if data["kind"] == TEST:
        _check_files(data)
    return restored(data) if spoken and MESSAGES in data else data


@lru_cache(maxsize=1)
def _schema() -> Mapping[str, Any]:
    text = Path(__file__).with_name("schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)["$defs"]
    return schema


def _check(data: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> None:
    """Raise ValueError where an object lacks a key that its schema requires, or has one of another type."""
    for key in schema.get("required", ()):
        if key not in data:
            raise ValueError(f"{name} has no {key!r}")
    for key, expected in schema.get("properties", {}).items():
        if key not in data:
            continue
        kinds = expected.get("type", ())
        allowed = [kind for word in ([kinds] if isinstance(kinds, str) else kinds) for kind in _TYPES[word]]
        if allowed and type(data[key]) not in allowed:
            raise ValueError(f"{key!r} of {name} is {str(data[key])[:80]!r}")
        if isinstance(data[key], dict):
            _check(data[key], expected, repr(key))


def _check_files(data: Mapping[str, Any]) -> None:
    golden, record = data["golden"], data["record"]
    files = [("golden", golden.get("file")), ("record", record.get("file")) if record else None]
    files += [("golden", golden["judged_with"])] if golden.get("judged_with") else []
    for key, file in filter(None, files):
        if not is_inside(file):
            raise ValueError(f"{key!r} names the file {file!r}, expected one inside its folder")
        digest = data[key].get("sha256")
        if digest is not None and not (isinstance(digest, str) and _SHA.fullmatch(digest)):
            raise ValueError(f"{key!r} has no SHA-256")
    for name in ("tensors", "inherited"):
        listed = (record or {}).get(name, [])
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise ValueError(f"{name!r} of 'record' is no list of names")
    if not all(map(_SHA.fullmatch, (record or {}).get("tensors", []))):
        raise ValueError("'tensors' of 'record' are no SHA-256")


def is_inside(name: object) -> bool:
    """Return whether a path of a file is relative and stays inside: results may come from elsewhere."""
    if not isinstance(name, str) or not name or "\\" in name or "\0" in name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and path.suffix == ".yaml"


@lru_cache(maxsize=1024)
def file_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, read once a process; None where it cannot be read."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
