"""``mapping.csv``: what files whose names were too long for the file system are called.

The data lie under a short name and ``mapping.csv`` in the same directory tells the long one, a line
``{short},{long}`` each, without a header. CANN's short name is the decimal libstdc++ hash of the full
path (device dumps) or of the file name (exception dumps), with a line per chunk of 128 MiB; MindSpore's
is a number and ``.npy``; CANN's tools use a UUID or random digits.

A hash can be checked where the long name is that of an exception dump, or where another line has its hash;
the path that a device dump hashed is known only to the process that wrote it.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from pytest_npudump.dump.names import parse_name
from pytest_npudump.errors import FormatError
from pytest_npudump.storage.regular_file import read_small

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

MAPPING = "mapping.csv"

_MASK = (1 << 64) - 1
_MULTIPLIER = 0xC6A4A7935BD1E995
_SEED = 0xC70F6907
_RANDOM_DIGITS = 16
"""Digits of the short names of msaicerr; a hash has more but once in 1,800 times."""
_EXCEPTION_STAMP = len("20261120080910123")


def libstdcxx_hash(data: bytes) -> int:
    """Return ``std::hash<std::string>`` of libstdc++ on 64-bit machines: MurmurHash2 with its own seed."""
    whole = len(data) - len(data) % 8
    value = _SEED ^ (len(data) * _MULTIPLIER & _MASK)
    for at in range(0, whole, 8):
        block = int.from_bytes(data[at : at + 8], "little") * _MULTIPLIER & _MASK
        value = (value ^ _mix(block)) * _MULTIPLIER & _MASK
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    return _shift(_mix(value))


def _shift(value: int) -> int:
    return value ^ value >> 47


def _mix(value: int) -> int:
    return _shift(value) * _MULTIPLIER & _MASK


def read_mapping(path: Path) -> dict[str, str]:
    """Read a ``mapping.csv``: the long name of each short one. Equal lines count once.

    Two long names for one short name are settled by CANN's hash of the name, where that decides.

    Raises:
        FormatError: the file cannot be read or is cut short, a line has no comma or an empty side, a name
            cannot be a file's, a short name has two long ones, or is known to be the hash of another name.
    """
    names: dict[str, str] = {}
    places: dict[tuple[str, str], tuple[int, int]] = {}
    for number, offset, short, long in _lines(path):
        if not short or not long:
            raise _error(path, (number, offset), "expected a line of the form short name,long name")
        if not (_is_file_name(short) and _is_file_name(long)):
            reason = f"{short!r} and {long!r} are not the names of two files, without directories"
            raise _error(path, (number, offset), f"{reason}: the file is damaged, collect the dump again")
        places.setdefault((short, long), (number, offset))
        known = names.setdefault(short, long)
        if known != long:
            both = (known, long)
            hashed = [name for name in both if _hash_of(name) == short]
            if len(hashed) != 1:
                raise FormatError(
                    path,
                    f"{short} stands for both {both[0]!r} and {both[1]!r}; the dump mixes two runs",
                    offset=offset,
                )
            names[short] = hashed[0]
    for short, long in names.items():
        # Else a number that another tool made up.
        is_hash = short.isdecimal() and len(short) > _RANDOM_DIGITS and int(short) <= _MASK
        if is_hash and _contradicts(short, long, names):
            raise _error(
                path,
                places[short, long],
                f"{short} is not the hash of {long!r}, which is {_hash_of(long)}: the file is damaged, "
                "collect the dump again",
            )
    return names


def alias(path: Path) -> str:
    """Return the name that ``mapping.csv`` beside the file ``path`` has for it and that hashes to its own.

    "" where there is none, or the mapping cannot be read.
    """
    try:
        long = read_mapping(path.with_name(MAPPING)).get(path.name, "")
    except FormatError:
        return ""
    return long if _hash_of(long) == path.name else ""


def is_short_name(path: Path) -> bool:
    """Whether a name is one that only ``mapping.csv`` explains: CANN's hash, or MindSpore's number."""
    return path.suffix in {"", ".npy"} and path.stem.isdecimal()


def nameless(path: Path) -> FormatError:
    """The error for a file under a short name that nothing explains."""
    return FormatError(path, f"its name tells no operator, and no {MAPPING} beside it does")


def _error(path: Path, place: tuple[int, int], reason: str) -> FormatError:
    number, offset = place
    return FormatError(path, f"line {number}: {reason}", offset=offset)


def _is_file_name(name: str) -> bool:
    return name not in {".", ".."} and not {"/", "\0"} & set(name)


def _hash_of(long: str) -> str:
    return str(libstdcxx_hash(long.encode("utf-8", "surrogateescape")))


def _contradicts(short: str, long: str, names: Collection[str]) -> bool:
    found = _hash_of(long)
    if found == short:
        return False
    name = parse_name(long)
    hashed_alone = name is not None and name.kind == "exception" and len(name.stamp) == _EXCEPTION_STAMP
    return hashed_alone or found in names


def _lines(path: Path) -> Iterator[tuple[int, int, str, str]]:
    """Yield the number, the byte, the short name and the long name of each line that is not empty."""
    offset = 0
    for number, raw in enumerate(read_small(path).splitlines(keepends=True), 1):
        line = raw.rstrip(b"\r\n")
        if line:
            text = line.decode("utf-8", "surrogateescape")
            short, _, long = text.partition(",")
            if long.startswith('"'):
                # Only csv.writer (msaicerr) quotes; an operator's name cannot begin with a quotation mark.
                long = next(csv.reader([long]))[0]
            if not raw.endswith(b"\n"):
                reason = "no line feed at its end: the file was cut short, collect the dump again"
                raise _error(path, (number, offset), reason)
            yield number, offset, short, long
        offset += len(raw)
