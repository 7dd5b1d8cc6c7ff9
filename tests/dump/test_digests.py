"""Hashes of tensors, from the column of a file to the record of the dump."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.records import TensorRecord

STAMP = 1795228705872229
MERGED = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
SINGLE = "Input/Output,Index,Data Size,Data Type,Format,Shape"
VALUES = np.float32([1, -2])
MD5 = hashlib.md5(VALUES.tobytes(), usedforsecurity=False).hexdigest()
SHA1 = hashlib.sha1(VALUES.tobytes(), usedforsecurity=False).hexdigest()
START = f'Add,net_Add-op0,0,0,{STAMP},output,0,8,float32,"(2,)"'


def only(root: Path, path: str, *lines: str) -> TensorRecord:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(f"{line}\n" for line in lines))
    dump = read_dump(root)
    assert not dump.problems
    (record,) = dump.records
    return record


@pytest.mark.each(
    ("titles", "cells", "digest"),
    [
        ("Max Value,MD5", f"1,{MD5.upper()}", f"md5:{MD5}"),
        ("Max Value,MD5", f"1,{MD5},", f"md5:{MD5}"),
        ("L2 Value,MD5", f"1,{MD5}", f"md5:{MD5}"),
        ("SHA1,Max Value,MD5", f"{SHA1},1,{MD5}", f"md5:{MD5} sha1:{SHA1}"),
        ("Max Value,SHA1", f"1,{SHA1}", f"sha1:{SHA1}"),
        ("Max Value,MD5", "1,null", ""),
        ("Max Value", "1", ""),
    ],
)
def test_hashes_of_mindspore_s_statistics_are_kept(
    tmp_path: Path, titles: str, cells: str, digest: str
) -> None:
    assert only(tmp_path, "statistic.csv", f"{MERGED},{titles}", f"{START},{cells}").digest == digest


def test_hashes_of_msprobe_s_merged_statistics_are_kept(tmp_path: Path) -> None:
    header = MERGED.replace("IO", "Input/Output").replace("Shape", "Format,Shape")
    record = only(
        tmp_path,
        "statistic.csv",
        f"{header},Max Value,MD5 Value",
        f"Add,Add_1,0,0,{STAMP},output,0,8,DT_FLOAT,ND,2,1,{MD5}",
    )
    assert (record.digest, record.note) == (f"md5:{MD5}", "")


def test_hashes_of_one_operator_s_statistics_are_kept(tmp_path: Path) -> None:
    record = only(
        tmp_path,
        f"Add.Add_1.0.0.{STAMP}.csv",
        f"{SINGLE},Max Value,MD5 Value",
        f"Output,0,8,DT_FLOAT,ND,2,1,{MD5}",
    )
    assert (record.digest, record.note) == (f"md5:{MD5}", "")


def test_a_file_of_hashes_alone_is_a_dump_of_hashes(tmp_path: Path) -> None:
    record = only(tmp_path, "statistic.csv", f"{MERGED},MD5", f"{START},{MD5}")
    assert (record.stats, record.digest, record.note) == (None, f"md5:{MD5}", "")


def test_an_npy_file_has_the_hash_of_its_row_beside_what_was_computed(tmp_path: Path) -> None:
    np.save(tmp_path / f"Add.net_Add-op0.0.0.{STAMP}.output.0.DefaultFormat.Float32.npy", VALUES)
    record = only(tmp_path, "statistic.csv", f"{MERGED},MD5", f"{START},{MD5}")
    assert record.stats is not None
    assert (record.stats.max, record.digest, record.path.suffix) == (1.0, f"md5:{MD5}", ".npy")


def test_a_tensor_file_has_the_hash_and_the_notes_of_its_row(tmp_path: Path) -> None:
    message = dump_data_class()(version="2.0", dump_time=STAMP, op_name="Add/1")
    tensor = message.output.add(data_type=1, format=2, size=8, address=4096)
    tensor.shape.dim.append(2)
    header = message.SerializeToString()
    name = f"Add.Add_1.0.0.{STAMP}"
    (tmp_path / name).write_bytes(struct.pack("<Q", len(header)) + header + VALUES.tobytes())
    record = only(
        tmp_path,
        f"{name}.csv",
        f"{SINGLE},Max Value,Median Value,MD5 Value",
        f"Output,0,8,DT_FLOAT,ND,2,1,-0.5,{MD5}",
    )
    assert (record.digest, record.payload is not None) == (f"md5:{MD5}", True)
    assert record.note == "unknown columns were not read: Median Value"


def test_a_hash_that_is_no_word_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "statistic.csv").write_text(f"{MERGED},MD5\n{START},{MD5[:8]} {MD5[8:]}\n")
    (problem,) = read_dump(tmp_path).problems
    assert isinstance(problem, FormatError)
    assert "line 2: " in str(problem)
    assert "is no md5 of a tensor" in str(problem)


@pytest.mark.parametrize("path", ["statistic.csv", f"Add.Add_1.0.0.{STAMP}.csv"])
def test_columns_that_no_record_holds_are_named_in_its_note(tmp_path: Path, path: str) -> None:
    merged = path == "statistic.csv"
    titles = "Max Value,Negative Zero Count,Positive Zero Count,Zero Count"
    start = START if merged else "Output,0,8,DT_FLOAT,ND,2"
    # MindSpore counts the elements below zero, those above it, and the zeros: 1 and -2 have no zero.
    record = only(tmp_path, path, f"{MERGED if merged else SINGLE},{titles}", f"{start},1,1,1,0")
    assert record.note == "columns were not read: Negative Zero Count, Positive Zero Count"
    assert record.stats is not None
    assert record.stats.zero == 0
