from __future__ import annotations

import json
import struct
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.dump.filebytes import raw_bytes
from pytest_npudump.dump.files.container import read_container
from pytest_npudump.dump.files.overflow import Candidates, DumpedOperators, parse_overflow, read_overflow
from pytest_npudump.dump.tree.find import find_files
from pytest_npudump.errors import FormatError

DATA = Path(__file__).parents[2] / "data" / "dump" / "overflow"


def _record(name: str) -> Any:
    return read_overflow(read_container(DATA / name)[0].tensors[0].payload)


@pytest.mark.each("name", ["old", "aic", "aic_v1", "aiv", "aicpu", "sdma"])
def test_the_text_is_that_of_canns_tool(name: str) -> None:
    assert json.dumps(_record(name).to_json(), indent=4) == (DATA / f"{name}.json").read_text()


def test_the_task_is_that_of_the_record_not_of_the_file_name() -> None:
    (unit,) = _record("sdma").overflowed
    assert unit.name == "SDMA"
    assert (unit.fields["task_id"], unit.fields["dst_addr"], unit.status) == (3, 0xBB, (8,))


def test_undocumented_bits_are_not_dropped() -> None:
    data = struct.pack("<6I11Q", 0x5A5A5A5A, 0, 1, 0, 0, 88, *[0] * 10, 0x1108)
    (unit,) = parse_overflow(data, "f").units
    assert unit.describe() == (
        "negation of the smallest signed integer",
        "overflow in converting float32 or int32 to float16",
        "undocumented status bits 0x1000",
    )


def test_an_old_record_without_overflow() -> None:
    data = bytearray(2048)
    struct.pack_into("<6Q", data, 256, 5, 2, 3, 0, 0, 0)
    record = parse_overflow(bytes(data), "f")
    assert record.overflowed == ()
    assert [unit.describe() for unit in record.units] == [(), (), ()]


@pytest.mark.each(
    ("data", "message"),
    [
        (b"", "no overflow record: 0 bytes"),
        (bytes(2047), "no overflow record: 2047 bytes, expected 2048"),
        (bytes(2048), "no overflow record: 2048 zeros, which name no task"),
        (bytes(4096), "no overflow record: 4096 zeros, which name no task"),
        (struct.pack("<6I", 0x5A5A5A5A, 0, 1, 0, 0, 88), "data_len 88 in 24 bytes"),
        (struct.pack("<6I88x", 0x5A5A5A5A, 0, 1, 0, 0, 80), "data_len 80 in 112 bytes, expected 88"),
        (struct.pack("<6I88x", 0x5A5A5A5A, 0, 1, 4, 0, 88), "accelerator 4"),
        (struct.pack("<6I88x", 0x5A5A5A5A, 2, 1, 0, 0, 88), "version 2"),
    ],
)
def test_damage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_overflow(data, "file", 84)


def _payload(name: str) -> bytes:
    return raw_bytes(read_container(DATA / name)[0].tensors[0].payload).tobytes()


@pytest.mark.each("name", ["aic", "aic_v1", "aiv", "aicpu", "sdma"])
def test_a_damaged_head_is_unreadable_or_changes_no_verdict(name: str) -> None:
    data = _payload(name)
    whole = parse_overflow(data, "f")
    unreadable = set()
    for at, bit in product(range(24), range(8)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << bit
        try:
            damaged = parse_overflow(bytes(flipped), "f")
        except FormatError:
            unreadable.add(at)
            continue
        (before,), (after,) = whole.overflowed, damaged.overflowed
        assert (after.fields, after.status) == (before.fields, before.status)
    assert {0, 1, 2, 3} <= unreadable


@pytest.mark.each("name", ["aic", "aic_v1", "aiv", "aicpu", "sdma"])
@pytest.mark.each("length", range(4, 25, 4))
@pytest.mark.each("byte", [0x00, 0xA5, 0xFF])
def test_a_record_whose_head_is_overwritten_is_unreadable(name: str, length: int, byte: int) -> None:
    data = _payload(name)
    with pytest.raises(FormatError, match=r"^file, byte 100: no overflow record of either layout"):
        parse_overflow(bytes([byte]) * length + data[length:], "file", 100)


def test_an_old_record_that_tells_an_overflow_may_have_anything_between_its_fields() -> None:
    data = bytearray(_payload("old"))
    data[100] = data[2000] = 1
    assert len(parse_overflow(bytes(data), "f").overflowed) == 3


@pytest.mark.each(("at", "named"), [(4, 0), (31, 24), (284, 280), (100, 100), (2047, 2047)])
def test_bytes_that_no_old_record_has_are_named(at: int, named: int) -> None:
    data = bytearray(2048)
    data[at] = 1
    with pytest.raises(FormatError, match=rf"^file, byte 84: .*unlike byte {84 + named}:"):
        parse_overflow(bytes(data), "file", 84)


def _meant(root: Path, record: str, *operators: str, model: int = 5) -> Candidates:
    """What a record of stream 2 and task 3 means, by the directories of the record and of operators."""
    data = struct.pack("<6I11Q", 0x5A5A5A5A, 0, 1, 0, 0, 88, model, 2, 3, *[0] * 7, 0x20)
    for at, place in enumerate(operators):
        path = root / place / f"Add.op{at}.3.2.1700000000000000"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (unit,) = parse_overflow(data, "f").units
    return DumpedOperators.of(root, find_files(root).files).meant_by(
        unit, root / record / "Opdebug.Node_OpDebug.7.2.1"
    )


T = "20261121000000"


@pytest.mark.each(
    ("record", "operators", "expected"),
    [
        (f"{T}/0/m/5/0", (f"{T}/0/m/5/0", f"{T}/0/m/6/0", f"{T}/1/m/5/0"), Candidates(("Add op0",))),
        (f"{T}/0/m/5/0", (f"{T}/1/m/5/0",), Candidates()),
        (f"{T}/0/m/5/0", (f"{T}/0/m/5/7",), Candidates(("Add op0",))),
        (f"{T}/0/6/7/0", (f"{T}/0/7/6/0", f"{T}/0/6/8/0"), Candidates(("Add op0",))),
        (f"{T}/0", (f"{T}/0/m/4/0", f"{T}/0/m/5/0"), Candidates(("Add op1",))),
        (f"{T}/0", (f"{T}/0/m/4/0", f"{T}/0/m/6/0"), Candidates(("Add op0", "Add op1"), ("model",))),
        (f"{T}/0/m/5/0", (f"{T}/0",), Candidates(("Add op0",), ("model",))),
        (T, (f"{T}/0/m/5/0",), Candidates(("Add op0",), ("device",))),
        (".", (".",), Candidates(("Add op0",), ("device", "model"))),
        (f"{T}/0/m/5/0", (f"{T}/{T[:-1]}1/0/m/5/0", "20261121000009/0/m/5/0"), Candidates(("Add op0",))),
    ],
    ids=[
        *("place", "device", "step", "either-order", "record-id", "no-such-id", "operator-without-model"),
        *("no-device", "nothing", "time-within-time"),
    ],
)
def test_the_operator_meant_is_that_of_the_same_place(
    tmp_path: Path, record: str, operators: tuple[str, ...], expected: Candidates
) -> None:
    assert _meant(tmp_path, record, *operators) == expected
