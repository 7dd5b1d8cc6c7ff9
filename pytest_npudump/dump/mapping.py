"""``mapping.csv``: what files whose names were too long for the file system are called.

The data lie under a short name and ``mapping.csv`` in the same directory tells the long one, a line
``{short},{long}`` each, without a header. CANN's short name is the decimal libstdc++ hash of the full
path (device dumps) or of the file name (exception dumps), with a line per chunk of 128 MiB; MindSpore's
is a number and ``.npy``; CANN's tools use a UUID or random digits.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from pytest_npudump.dump.textfile import read_small
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MASK = (1 << 64) - 1
_MULTIPLIER = 0xC6A4A7935BD1E995
_SEED = 0xC70F6907


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
        FormatError: the file cannot be read, a line has no comma or an empty side, or a short name has
            two long ones.
    """
    names: dict[str, str] = {}
    for offset, short, long in _lines(path):
        if not short or not long:
            raise FormatError(path, "expected a line of the form short name,long name", offset=offset)
        known = names.setdefault(short, long)
        if known != long:
            names[short] = _settle(path, offset, short, (known, long))
    return names


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the byte, the short name and the long name of each line that is not empty."""
    offset = 0
    for raw in read_small(path).splitlines(keepends=True):
        line = raw.rstrip(b"\r\n")
        if line:
            text = line.decode("utf-8", "surrogateescape")
            short, _, long = text.partition(",")
            if long.startswith('"'):
                # Only csv.writer (msaicerr) quotes; an operator's name cannot begin with a quotation mark.
                long = next(csv.reader([long]))[0]
            yield offset, short, long
        offset += len(raw)


def _settle(path: Path, offset: int, short: str, names: tuple[str, str]) -> str:
    hashed = [name for name in names if str(libstdcxx_hash(name.encode("utf-8", "surrogateescape"))) == short]
    if len(hashed) != 1:
        raise FormatError(
            path,
            f"{short} stands for both {names[0]!r} and {names[1]!r}; the dump mixes two runs",
            offset=offset,
        )
    return hashed[0]
