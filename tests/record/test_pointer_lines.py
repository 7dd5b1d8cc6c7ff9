"""Lines that tell where tensors are: read as they are written, and nothing else is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.record.rows import Pointer, RowError, read_pointers

DIGEST = "30c148aa6693ffd0a191f004de6bbf978acb6deca2cd429d8d27256a219042b3"
LINE = f"fc:output.0 float32 1x4x6x6 sha256:{DIGEST} 576 0613f9d9"


def test_a_line_is_read() -> None:
    assert read_pointers(f"{LINE}\n") == {
        "fc:output.0": Pointer("fc:output.0", "float32", (1, 4, 6, 6), DIGEST, 576, "0613f9d9")
    }


@given(
    st.lists(st.integers(0, 9), max_size=5),
    st.sampled_from(["float32", "bool", "float8_e4m3fn", "complex64"]),
    st.binary(min_size=32, max_size=32),
)
def test_what_is_written_is_read_back(shape: list[int], dtype: str, digest: bytes) -> None:
    size = 4
    for dim in shape:
        size *= dim
    pointer = Pointer("a#2:input.1", dtype, tuple(shape), digest.hex(), size, "00000000")
    assert read_pointers(pointer.line()) == {"a#2:input.1": pointer}


@pytest.mark.each(
    "line",
    [
        "",
        "fc:output.0",
        LINE.replace("sha256:", "md5:"),
        LINE.replace(DIGEST, DIGEST.upper()),
        LINE.replace(DIGEST, DIGEST[:-1]),
        LINE.replace(DIGEST, f"../{DIGEST[3:]}"),
        LINE.replace("1x4x6x6", "?"),
        LINE.replace("1x4x6x6", "1x-4x6x6"),
        LINE.replace("576", "-576"),
        LINE.replace("576", "577"),
        f"{LINE} more",
        LINE.replace("float32", "Float32"),
    ],
)
def test_what_is_no_line_is_refused_and_named(line: str) -> None:
    with pytest.raises(RowError) as raised:
        read_pointers(f"{LINE.replace('fc', 'other')}\n{line}\n")
    assert raised.value.row == 1


def test_a_tensor_that_stands_there_twice_is_refused() -> None:
    with pytest.raises(RowError, match=r"fc:output\.0 stands here a second time"):
        read_pointers(f"{LINE}\n{LINE}\n")


def test_a_last_line_that_is_cut_is_refused() -> None:
    with pytest.raises(RowError, match="ends within this line"):
        read_pointers(LINE)
