"""Headers, hashes and the clock against files that CANN's own code wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pytest_npudump.dump.dtypes import BY_NAME, BY_PROTO
from pytest_npudump.emulator.dumps.writer import (
    NO_OFFSET,
    Clock,
    Slot,
    TaskFile,
    append,
    encode_header,
    prefix,
    write,
)
from pytest_npudump.onnxmodels.tensor_types import Tensor, from_array

DATA = Path(__file__).parents[2] / "data" / "emulator"
SAMPLES = sorted((DATA / "all-dtypes").glob("*.bin")) + sorted((DATA / "ppocr").glob("*.bin"))


def slot(found: Any) -> Slot:
    tensor = Tensor(BY_PROTO[found.dtype], found.shape, np.frombuffer(found.data, np.uint8))
    return Slot(tensor, found.address, found.offset, found.format, found.original_shape)


def test_files_rebuilt_from_their_values_are_cann_s_byte_for_byte(wire: Any) -> None:
    for path in SAMPLES:
        dump = wire.read(path)
        inputs, outputs = [slot(t) for t in dump.inputs], [slot(t) for t in dump.outputs]
        header = encode_header(dump.time, dump.op_name, inputs, outputs)
        payload = b"".join(t.data for t in (*dump.inputs, *dump.outputs))
        assert prefix(header) + payload == path.read_bytes(), path


def test_scalar_of_a_single_operator_is_encoded_as_in_a_real_header(wire: Any) -> None:
    raw = (DATA / "mixed-op.bin").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    outputs = [value for number, value in wire.fields(raw[8 : 8 + length]) if number == 3]
    real = dict(wire.fields(outputs[1]))
    assert (real[3], real[7], real[11]) == (b"", b"", NO_OFFSET)
    scalar = Tensor(BY_NAME["int64"], (), np.zeros(3, np.int64))
    header = encode_header(1, "n", [], [Slot(scalar, real[9], NO_OFFSET)])
    assert [value for number, value in wire.fields(header) if number == 3] == [outputs[1]]


def test_existing_file_is_extended(tmp_path: Path) -> None:
    path = tmp_path / "file"
    append(str(path), [b"one"])
    append(str(path), [b"two", memoryview(b"three")])
    assert path.read_bytes() == b"onetwothree"


def test_name_with_a_nul_byte_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    values = Slot(from_array(BY_NAME["int8"], np.zeros(1, np.int8)), 1)
    with pytest.raises(OSError, match="NUL"):
        write(str(tmp_path), TaskFile("T", "a\0b", 1, 2, [], [values]), 5)


def test_operator_without_any_byte_leaves_no_file(tmp_path: Path) -> None:
    nothing = Slot(from_array(BY_NAME["float32"], np.zeros((0, 3), np.float32)), 0)
    write(str(tmp_path / "deep"), TaskFile("T", "n", 1, 2, [], [nothing]), 5)
    assert not (tmp_path / "deep").exists()


def test_clock_never_shows_the_same_time_twice() -> None:
    clock = Clock()
    times = [clock() for _ in range(10000)]
    assert times == sorted(set(times))
    assert len(str(times[0])) == 16


@given(
    name=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    shape=st.lists(st.integers(0, 3), max_size=4),
    time=st.integers(1, 2**63),
)
def test_header_says_what_was_put_in(
    name: str, shape: list[int], time: int, tmp_path_factory: Any, wire: Any
) -> None:
    array = np.arange(int(np.prod(shape)), dtype=np.int16).reshape(shape)
    one = Slot(from_array(BY_NAME["int16"], array), 64 if array.size else 0)
    path = tmp_path_factory.mktemp("header") / "file"
    path.write_bytes(prefix(encode_header(time, name or "n", [one], [one])) + array.tobytes() * 2)
    dump = wire.read(path)
    assert (dump.time, dump.op_name) == (time, name or "n")
    for found in (*dump.inputs, *dump.outputs):
        assert (found.shape, found.size, found.data) == (tuple(shape), array.nbytes, array.tobytes())
