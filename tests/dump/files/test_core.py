"""Cores of failed kernels, put together here from the structures of adump's headers."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from pytest_npudump.dump.filebytes import raw_bytes
from pytest_npudump.dump.files.core import read_core
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import FormatError

NAME = "te_mul_1__kernel0.47.3.20260910085237489.core"


def region(size: int, section: int, kind: int, *dims: int) -> bytes:
    """GlobalMemInfo of dump_common.h."""
    shape = struct.pack("<I4x25Q", len(dims), *dims, *[0] * (25 - len(dims)))
    return struct.pack("<QQIHH", 0x12C000000000, size, section, kind, 0) + shape


def core(*sections: tuple[str, bytes]) -> bytes:
    """An ELF file as dump_ELF.cpp lays it out: data, then the section table, aligned to 16."""
    named = [("", b""), *sections, (".shstrtab", b"")]
    names = b"".join(name.encode() + b"\0" for name, _ in named)
    named[-1] = (".shstrtab", names)
    body, table, at = b"", b"", 0
    for name, data in named:
        kind = 3 if name == ".shstrtab" else 0x30000000 if name else 0
        table += struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(body), len(data), 0, 0, 0, 0)
        body += data
        at += len(name) + 1
    body += b"\0" * (-len(body) % 16)
    ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
    count = len(named)
    head = struct.pack(
        "<HHIQQQIHHHHHH", 4, 0x1029, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1
    )
    return ident + head + body + table


def sample() -> bytes:
    kernel = b"te_mul_1__kernel0"
    return core(
        (".ascend.devtbl", b"\0" * 40),
        (".ascend.global", b"args"),
        (".ascend.global", b"abcdefgh"),
        (".ascend.global", b"\0" * 4),
        (".ascend.kernel_info", struct.pack("<I", len(kernel)) + kernel),
        (".ascend.auxinfo.global", region(4, 2, 101) + region(8, 3, 2, 2, 4) + region(4 | 1 << 63, 4, 3, 4)),
    )


def test_a_core_tells_its_kernel_and_what_it_worked_on(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(sample())
    found = read_core(path)
    assert found.kernel == "te_mul_1__kernel0"
    assert [section.name for section in found.sections[1:3]] == [".ascend.devtbl", ".ascend.global"]
    arguments, given, result = found.regions
    assert (arguments.name, arguments.shape) == ("arguments", None)
    assert (given.name, given.shape, given.address) == ("input", (2, 4), 0x12C000000000)
    assert given.payload is not None
    assert raw_bytes(given.payload).tobytes() == b"abcdefgh"
    assert (result.name, result.shape, result.payload) == ("output", (4,), None)


def test_the_core_put_together_here_is_one_for_an_elf_reader() -> None:
    elf = ELFFile(io.BytesIO(sample()))
    assert elf["e_type"] == "ET_CORE"
    assert ".ascend.auxinfo.global" in [section.name for section in elf.iter_sections()]


@pytest.mark.each("size", [0, 3, 63, 64, 200, -1])
def test_a_core_cut_short_is_an_error_of_the_file(tmp_path: Path, size: int) -> None:
    path = tmp_path / NAME
    path.write_bytes(sample()[:size])
    with pytest.raises(FormatError, match="truncated"):
        read_core(path)


@pytest.mark.each("at", range(0, len(sample()), 3))
def test_a_damaged_byte_never_ends_in_another_error(tmp_path: Path, at: int) -> None:
    path = tmp_path / NAME
    data = bytearray(sample())
    data[at] ^= 0xFF
    path.write_bytes(data)
    try:
        read_core(path)
    except FormatError as error:
        assert error.path == str(path)  # noqa: PT017 - most bytes may change without harm


def test_a_core_in_a_dump_is_told_and_is_no_unreadable_file(tmp_path: Path) -> None:
    folder = tmp_path / "extra-info" / "data-dump" / "0"
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(sample())
    (folder / "te_mul_1.o").write_bytes(b"\x7fELF")
    (folder / "te_mul_1.json").write_text("{}")
    dump = read_dump(tmp_path)
    assert dump.problems == ()
    assert dump.records == ()
    assert f"1 core of failed kernels, for msdebug: {folder / NAME}" in dump.notes


@pytest.mark.each("content", [b"\x7fELF" + bytes(100), sample()[:-1], b""])
def test_a_damaged_core_in_a_dump_is_an_unreadable_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    (problem,) = read_dump(tmp_path).problems
    assert problem.path == str(tmp_path / NAME)
