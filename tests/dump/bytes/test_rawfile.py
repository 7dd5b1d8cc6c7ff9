from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.bytes.chunks import c_order_chunks, chunks
from pytest_npudump.dump.bytes.rawfile import raw_bytes, release
from pytest_npudump.dump.records import Payload
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable


_MEBIBYTES = 96


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "values"
    with path.open("wb") as file:
        file.write(b"odd")
        for number in range(_MEBIBYTES):
            file.write(np.full(1 << 18, number, np.float32).tobytes())
    return path


def _view(path: Path) -> np.ndarray:
    return load(Payload(path, 3, _MEBIBYTES << 20), "float32", (_MEBIBYTES, 1 << 18))


def _resident() -> int:
    """MiB of memory this process has, mapped files included."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10


@pytest.mark.parametrize(
    "pieces", [chunks, lambda array: c_order_chunks(array, 1 << 17, flat=True)], ids=["memory", "c order"]
)
def test_a_large_tensor_is_read_without_being_held(
    large: Path, pieces: Callable[[np.ndarray], list[np.ndarray]]
) -> None:
    array = _view(large)
    before, sums, most = _resident(), 0.0, 0
    for piece in pieces(array):
        sums += float(piece.sum(dtype=np.float64))
        most = max(most, _resident())
    assert sums == sum(range(_MEBIBYTES)) * float(1 << 18)
    assert most - before < 40


def test_released_pages_are_read_again(large: Path) -> None:
    array = _view(large)
    expected = array.copy()
    release(array[10:20])
    np.testing.assert_array_equal(array, expected)


def test_memory_that_is_no_file_is_left_alone() -> None:
    array = np.arange(1 << 16)
    release(array)
    np.testing.assert_array_equal(array, np.arange(1 << 16))


def test_changes_to_a_private_map_are_not_lost(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(1 << 16))
    array = np.memmap(tmp_path / "f", np.uint8, "c")
    array[:] = 7
    release(array)
    assert array.min() == 7


@pytest.mark.each("nbytes", [0, 8, 1 << 15])
@pytest.mark.each("kind", ["missing", "directory", "pipe", "short"])
def test_bytes_of_a_file_that_has_changed_are_refused_whatever_their_number(
    kind: str, nbytes: int, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "short":
        path.write_bytes(b"1234")
    with pytest.raises(FormatError):
        raw_bytes(Payload(path, 5, nbytes))


@pytest.mark.parametrize("nbytes", [0, 1, 1 << 14, (1 << 14) + 1])
def test_bytes_of_a_payload_are_those_of_the_file_and_read_only(nbytes: int, tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(1 << 15)
    (tmp_path / "file").write_bytes(content)
    found = raw_bytes(Payload(tmp_path / "file", 3, nbytes))
    assert found.tobytes() == content[3 : 3 + nbytes]
    assert not nbytes or not found.flags.writeable
