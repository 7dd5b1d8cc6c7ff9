"""Facts of a golden's origin besides a runtime's, and the history of its changes."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pytest_npudump.dump.records import ARGMAX, BESIDE_MASK, WEIGHED, parted_digest
from pytest_npudump.dump.table import PROJECTIONS, STATISTICS, StatsTable
from pytest_npudump.golden.store import KEY
from pytest_npudump.language.text import first_of, number_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.record.model_lines import change_of_models
from pytest_npudump.record.noise import CALIBRATION, REPEATS
from pytest_npudump.record.record import MODELS, POINTERS, REASON, RECORDED, SHARDS, Record
from pytest_npudump.record.rows import differing_keys, render_projections

_SECONDS = 10
"""That git may take to name a commit."""
_FLAGS = ("flags", "Features")
"""Linux's names of the line of a processor's extensions, on x86-64 and on aarch64."""
_EXTENSIONS = (
    *(
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avx_vnni",
        "avx512f",
        "avx512_vnni",
        "avx512_bf16",
        "amx_bf16",
        "amx_int8",
    ),
    *("asimdhp", "asimddp", "asimdfhm", "i8mm", "bf16", "sve", "sve2"),
)
"""Extensions that onnxruntime has kernels of its own for, which sum in an order of their own."""


@lru_cache(maxsize=32)
def installed(package: str) -> dict[str, str]:
    """Return the version of an installed distribution under its name; nothing where there is none.

    Each answer reads and parses the package's metadata, which takes longer than comparing small goldens.
    """
    try:
        return {package: version(package)}
    except PackageNotFoundError:
        return {}


@lru_cache(maxsize=4)
def revision(folder: Path) -> str | None:
    """Return git's name of the commit that is checked out around a folder; None where there is none."""
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return None
    command = ("git", "-C", str(folder), "rev-parse", "--verify", "-q", "HEAD")
    try:
        done = subprocess.run(  # noqa: S603 - git, of the user's own path
            command, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


@lru_cache(maxsize=1)
def processor() -> dict[str, str]:
    """Return ``machine``, the architecture, and ``vector``, the extensions by which a kernel is chosen."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        cpuinfo = ""
    found = extensions(cpuinfo)
    return {"machine": platform.machine()} | ({"vector": found} if found else {})


def extensions(cpuinfo: str) -> str:
    """Return a processor's extensions that matter, joined by ``+``; "" where none is known.

    Args:
        cpuinfo: the text of ``/proc/cpuinfo``.
    """
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in _FLAGS:
            told = frozenset(value.split())
            return "+".join(flag for flag in _EXTENSIONS if flag in told)
    return ""


_SHORT = 12
"""Digits of a commit's name that git itself shows of repositories of a million commits."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The day of an acceptance, and what was checked out where the values were computed.

    Attributes:
        day: as ``2026-11-23``, UTC.
        revision: git's name of the commit; "" where there is none.
    """

    day: str
    revision: str = ""

    @classmethod
    def today(cls, revision: str | None) -> Stamp:
        """Return the stamp of an acceptance now."""
        return cls(datetime.now(timezone.utc).date().isoformat(), (revision or "")[:_SHORT])

    def __str__(self) -> str:
        """Return the text at the end of a tensor's line, and under the key ``recorded``."""
        return f"{self.day} {self.revision}".rstrip()


def stamped(golden: Record, previous: Record | None, stamp: Stamp) -> Record:
    """Return the golden of an acceptance, with its time and revision.

    Args:
        golden: what it writes.
        previous: what the same file was before; None where it is a new one.
        stamp: that of the acceptance.

    Raises:
        RowError: a line of either cannot be written.
    """
    rest = {name: value for name, value in golden.extra.items() if name != RECORDED}
    if previous is None:
        return replace(golden, changed={}, extra={RECORDED: str(stamp), **rest})
    before = previous.extra.get(RECORDED)
    changed = changed_tensors(golden.table, previous.table)
    whole = changed and len(changed) == len(golden.table)
    if (
        whole
        or golden.facts != previous.facts
        or (
            not golden.table.keys
            and (rest != {name: value for name, value in previous.extra.items() if name != RECORDED})
        )
    ):
        before = str(stamp)
    told = {} if whole else {**previous.changed, **dict.fromkeys(changed, str(stamp))}
    extra = rest if before is None else {RECORDED: before, **rest}
    kept = {
        name: extra[name] for name in (RECORDED, *previous.extra) if name in extra
    }  # what stays is not moved
    return replace(golden, changed=told, extra={**kept, **extra})


def in_words(stamp: object) -> str:
    """Return a day and commit in words; "" where there is no day."""
    day, _blank, commit = str(stamp or "").partition(" ")
    return _("{day} at {commit}").format(day=day, commit=commit) if commit else day


def changed_tensors(table: StatsTable, previous: StatsTable) -> list[str]:
    """Return the tensors whose values are not those of before, noise apart."""
    before, now = (replace(one, noise=()) for one in (previous, table))
    return differing_keys(before, now, summed_by_both=True)


_BY_TENSOR = (PROJECTIONS, POINTERS)
"""Blocks with a line each tensor, which are told with it."""
_QUIET = (REASON, REPEATS, CALIBRATION, KEY, SHARDS)
"""Keys whose values say nothing in a line: they are named."""
_UNTOLD = (REASON, RECORDED)
"""Keys that are told with the revision itself."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference of two revisions.

    Attributes:
        key: the tensor; "" for what concerns the whole file.
        words: what changed.
    """

    key: str
    words: str


def changes(before: Record | None, after: Record) -> tuple[Change, ...]:
    """Return the changes: the head first, then tensors in the order of execution, then those that have gone.

    Args:
        before: the earlier revision; None where there is none.
        after: the later one.
    """
    if before is None:
        return (Change("", f"recorded, {number_of(len(after.table), 'tensor')}"),)
    rows = {key: row for row, key in enumerate(before.table.keys)}
    found = [*_head(before, after)]
    summed = _named(*(render_projections(golden.table) for golden in (before, after)))
    pointed = _named(*(golden.blocks.get(POINTERS, "") for golden in (before, after)))
    for row, key in enumerate(after.table.keys):
        if key not in rows:
            found.append(Change(key, "new"))
            continue
        words = [
            *_row(before.table, rows[key], after.table, row),
            *(["projections"] if key in summed else []),
            *(["stored tensor"] if key in pointed else []),
        ]
        found += [Change(key, ", ".join(words))] if words else []
    gone = rows.keys() - set(after.table.keys)
    found += [Change(key, "gone") for key in rows if key in gone]
    kept = [
        [key for key in golden.table.keys if key in rows and key not in gone] for golden in (before, after)
    ]
    return (*found, *([Change("", "another order of execution")] if kept[0] != kept[1] else []))


def _head(before: Record, after: Record) -> Iterator[Change]:
    if before.test != after.test:
        yield Change("", f"test {before.test} -> {after.test}")
    for name in dict.fromkeys([*before.producer, *after.producer]):
        old, new = (golden.producer.get(name, "-") for golden in (before, after))
        if old != new:
            yield Change("", f"{name} {old} -> {new}")
    for name in dict.fromkeys([*before.extra, *after.extra]):
        if before.extra.get(name) != after.extra.get(name) and name not in _UNTOLD:
            values = (golden.extra.get(name, "-") for golden in (before, after))
            yield Change("", name if name in _QUIET else f"{name} {' -> '.join(map(str, values))}")
    for name in dict.fromkeys([*before.blocks, *after.blocks]):
        told = name in before.blocks, name in after.blocks
        if before.blocks.get(name) != after.blocks.get(name) and name not in _BY_TENSOR:
            words = name if all(told) else f"{name} {'new' if told[1] else 'gone'}"
            yield Change("", _models(before, after) if all(told) and name == MODELS else words)


def _models(before: Record, after: Record) -> str:
    """Describe how two blocks of digests differ."""
    found = change_of_models(before.blocks[MODELS], after.blocks[MODELS])
    if found is None:
        return MODELS
    parts = ("weights", "attributes", "types", "operators")
    told = [f"{what} of {first_of(names)}" for what in parts if (names := getattr(found, what))]
    told += [f"inputs of {first_of(found.fed)}"] if found.fed else []
    words = "; ".join(told) or first_of(found.files)
    return f"{MODELS}: {words}" if words else MODELS


def _named(before: str, after: str) -> set[str]:
    """Return the names whose entries differ between two blocks."""
    sides = [dict.fromkeys(text.splitlines()) for text in (before, after)]
    return {line.partition(" ")[0] for line in sides[0].keys() ^ sides[1].keys()}


_SUMS = re.compile(rf"( ?{ARGMAX}:)?[{BESIDE_MASK}{WEIGHED}]\S+")
"""Projections among hashes, which nobody reads."""


def _row(before: StatsTable, old: int, after: StatsTable, new: int) -> Iterator[str]:
    """Yield the differences of one tensor's line."""
    facts = (("dtype", "dtypes"), ("shape", "shapes"), ("count", "counts"), ("digest", "digests"))
    sides = (before, old), (after, new)
    hashes = [table.digests[row] if table.digests else "" for table, row in sides]
    sums, others = zip(*map(parted_digest, hashes), strict=True)
    if all(sums) and sums[0] != sums[1]:
        yield f"checksum {' -> '.join(sums)}"
    for name, column in (*facts, ("noise", "noise")):
        cells = [
            str(getattr(table, column)[row] or "") if getattr(table, column) else "" for table, row in sides
        ]
        if name == "digest":
            cells = [_SUMS.sub("", one) for one in others]
        if cells[0] != cells[1]:
            yield f"{name} {cells[0] or '-'} -> {cells[1] or '-'}"
    for at, name in enumerate(STATISTICS):
        values = (before.value(old, at), after.value(new, at))
        if values[0] != values[1] and not all(value != value for value in values):  # noqa: PLR0124 - NaN
            yield f"{name} {' -> '.join('-' if value is None else f'{value:g}' for value in values)}"
