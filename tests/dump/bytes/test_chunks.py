from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.dump.bytes.chunks import file_pieces
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.each(("offset", "nbytes", "limit"), [(0, 100, 7), (3, 90, 90), (3, 90, 1000), (10, 0, 5)])
def test_the_pieces_are_the_bytes_asked_for(tmp_path: Path, offset: int, nbytes: int, limit: int) -> None:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    pieces = [bytes(piece) for piece in file_pieces(tmp_path / "a", offset, nbytes, limit)]
    assert b"".join(pieces) == bytes(range(100))[offset : offset + nbytes]
    assert all(len(piece) == limit for piece in pieces[:-1])


def test_two_files_can_be_read_in_turns(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 100)
    (tmp_path / "b").write_bytes(b"b" * 100)
    both = zip(file_pieces(tmp_path / "a", 0, 100, 7), file_pieces(tmp_path / "b", 0, 100, 7), strict=True)
    assert all(set(bytes(one)) == {ord("a")} and set(bytes(other)) == {ord("b")} for one, other in both)


def test_a_file_that_becomes_shorter_meanwhile_is_an_error_that_names_the_byte(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    pieces = file_pieces(tmp_path / "a", 10, 80, 20)
    next(pieces)
    os.truncate(tmp_path / "a", 45)
    with pytest.raises(FormatError, match=r"byte 45: the file became shorter while the tensor was read"):
        list(pieces)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a regular file"):
        list(file_pieces(tmp_path, 0, 1, 1))
