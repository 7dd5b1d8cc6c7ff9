"""Cores of kernels that failed (``aic_err_detail_dump``): ELF files, made for CANN's debugger.

A core is a 64-bit little-endian ELF file of type ``ET_CORE`` (``dump_ELF.cpp`` of adump). The memory of the
device that it holds has no data types.
"""

from __future__ import annotations

import struct
from pathlib import Path

from pytest_npudump.dump.filebytes import open_raw
from pytest_npudump.errors import FormatError

_HEADER = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MAGIC = b"\x7fELF"
_CLASS_64, _LITTLE_ENDIAN, _CORE = 2, 1, 4
_NO_BITS = 8


def core_damage(path: Path) -> FormatError | None:
    """Return why a core is truncated or none at all, without a look at its sections' content; else None."""
    try:
        with open_raw(path) as file:
            magic, bits, order, _, kind, *rest = _HEADER.unpack(file.read(0, _HEADER.size, "the ELF header"))
            if (magic, bits, order, kind) != (_MAGIC, _CLASS_64, _LITTLE_ENDIAN, _CORE):
                raise file.error(0, "not a 64-bit little-endian ELF core: this is no core of adump")
            table, entry, count, names = rest[4], rest[-3], rest[-2], rest[-1]
            if entry != _SECTION.size or names >= count:
                reason = f"{count} sections of {entry} bytes, names in {names}: the ELF header is damaged"
                raise file.error(0, reason)
            for _, form, _, _, offset, size, *_ in _SECTION.iter_unpack(
                file.read(table, entry * count, "the section table")
            ):
                if form != _NO_BITS:
                    file.check(offset, size, "a section")
    except FormatError as error:
        return error
    return None
