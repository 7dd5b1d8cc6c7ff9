"""Cores of kernels that failed (``aic_err_detail_dump``): ELF files, made for CANN's debugger.

A core is a 64-bit little-endian ELF file of type ``ET_CORE`` whose sections are named ``.ascend...``. A
section ``.ascend.global`` holds a region of device memory; ``.ascend.auxinfo.global`` says of each what it is
(``dump_ELF.cpp``, ``dump_core.cpp`` and ``dump_common.h`` of adump).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_npudump.dump.filebytes import RawFile, open_raw
from pytest_npudump.dump.records import Payload
from pytest_npudump.errors import FormatError

_HEADER = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_REGION = struct.Struct("<QQIHHI4x")
_DIMENSION = struct.Struct("<Q")
_DIMENSIONS = 25
_MAGIC = b"\x7fELF"
_CLASS_64, _LITTLE_ENDIAN, _CORE = 2, 1, 4
_NO_BITS = 8
_INVALID = 1 << 63
_SMALL = 1 << 24

AUXILIARY = ".ascend.auxinfo.global"
KERNEL = ".ascend.kernel_info"

REGION_NAMES = {
    1: "tensor",
    2: "input",
    3: "output",
    4: "workspace",
    5: "log",
    6: "mc2 context",
    7: "tiling data",
    8: "L1",
    9: "L2",
    10: "overflow address",
    11: "FFTS address",
    12: "shapes",
    101: "arguments",
    102: "stack",
    103: "kernel object",
    104: "SIMT stack",
}
"""``DfxTensorType`` of ``adx_exception_callback.h``, in words."""

_PER_CORE = frozenset({102, 104})
"""Regions of one AI Core, whose number stands where a tensor has its rank."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the file: its name, and where its bytes lie."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Region:
    """A region of device memory that the failed kernel worked on; the core tells no data type.

    Attributes:
        kind: number of ``DfxTensorType``.
        address: on the device.
        shape: of a tensor, where the core tells one; else None.
        payload: its bytes; None where the device memory could not be read.
    """

    kind: int
    address: int
    shape: tuple[int, ...] | None
    payload: Payload | None

    @property
    def name(self) -> str:
        """Name of the region, in words."""
        return REGION_NAMES.get(self.kind, f"type {self.kind}")


@dataclass(frozen=True, slots=True)
class Core:
    """A core.

    Attributes:
        kernel: name of the kernel as the core has it; "" where it has none.
        sections: all of them, in the order of the file.
        regions: device memory, in the order in which CANN saved it.
    """

    kernel: str
    sections: tuple[Section, ...]
    regions: tuple[Region, ...]


def read_core(path: Path) -> Core:
    """Read a core's content; the bytes of the regions stay in the file.

    Raises:
        FormatError: it is truncated, damaged or no core.
    """
    with open_raw(path) as file:
        sections = _sections(file)
        return Core(_kernel(file, sections), sections, tuple(_regions(file, sections)))


def core_damage(path: Path) -> FormatError | None:
    """Return why a core is truncated or none at all, without a look at its sections' content; else None."""
    try:
        with open_raw(path) as file:
            _sections(file)
    except FormatError as error:
        return error
    return None


def _sections(file: RawFile) -> tuple[Section, ...]:
    magic, bits, order, _, kind, *rest = _HEADER.unpack(file.read(0, _HEADER.size, "the ELF header"))
    if (magic, bits, order, kind) != (_MAGIC, _CLASS_64, _LITTLE_ENDIAN, _CORE):
        raise file.error(0, "not a 64-bit little-endian ELF core: this is no core of adump")
    table, entry, count, names = rest[4], rest[-3], rest[-2], rest[-1]
    if entry != _SECTION.size or names >= count:
        raise file.error(0, f"{count} sections of {entry} bytes, names in {names}: the ELF header is damaged")
    raw = file.read(table, entry * count, "the section table")
    rows = [_SECTION.unpack_from(raw, at * entry) for at in range(count)]
    for row in rows:
        if row[1] != _NO_BITS:
            file.check(row[4], row[5], "a section")
    text = _read(file, rows[names][4], rows[names][5], "the names of the sections")
    return tuple(Section(_string(text, row[0]), row[4], row[5]) for row in rows)


def _read(file: RawFile, offset: int, size: int, what: str) -> bytes:
    if size > _SMALL:
        raise file.error(offset, f"{what} take {size} bytes, more than any core needs: the file is damaged")
    return file.read(offset, size, what)


def _string(table: bytes, offset: int) -> str:
    return table[offset : max(table.find(b"\0", offset), offset)].decode("utf-8", "surrogateescape")


def _kernel(file: RawFile, sections: Sequence[Section]) -> str:
    """Return the kernel's name: a u32 with its length, then its bytes (``DumpKernelInfo``)."""
    for section in sections:
        if section.name == KERNEL:
            data = _read(file, section.offset, section.size, "the kernel's name")
            return data[4:].decode("utf-8", "surrogateescape")
    return ""


def _regions(file: RawFile, sections: Sequence[Section]) -> Iterator[Region]:
    step = _REGION.size + _DIMENSIONS * _DIMENSION.size
    for listed in (section for section in sections if section.name == AUXILIARY):
        if listed.size % step:
            raise file.error(listed.offset, f"{listed.size} bytes of {AUXILIARY} are no multiple of {step}")
        raw = _read(file, listed.offset, listed.size, "the list of memory regions")
        for at in range(0, listed.size, step):
            address, size, index, kind, _, rank = _REGION.unpack_from(raw, at)
            if index >= len(sections) or sections[index].size < size & ~_INVALID:
                raise file.error(listed.offset + at, f"a memory region is said to be section {index}")
            dims = [dim for (dim,) in _DIMENSION.iter_unpack(raw[at + _REGION.size : at + step])]
            shape = tuple(dims[:rank]) if kind not in _PER_CORE and 0 < rank <= _DIMENSIONS else None
            held = Payload(file.path, sections[index].offset, size)
            yield Region(kind, address, shape, None if size & _INVALID else held)
