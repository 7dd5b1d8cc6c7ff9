from __future__ import annotations

import hashlib
import math
import os
import struct
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.dump.names import libstdcxx_hash
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.errors import DumpError, FormatError
from tests.dump.conftest import DATA, HEADER, STAMP, STEP, TITLES, container, keys, row, write


def stats_of(record: TensorRecord) -> Stats:
    assert record.stats is not None
    return record.stats


def test_a_real_tensor_tree_has_the_statistics_cann_printed_for_it() -> None:
    printed = {str(record.key): record for record in read_dump(DATA / "acl-stats").records}
    dump = read_dump(DATA / "acl-tensor")
    layers = ("net/MatMul@0", "net/Softmax@0")
    assert sorted(keys(dump)) == [f"{layer}:{io}.0" for layer in layers for io in ("input", "output")]
    for record in dump.records:
        twin = printed[str(record.key).replace("/", "_")]
        assert (record.key.sanitised, record.shape) == (twin.key, twin.shape)
        assert stats_of(twin).max == float(f"{stats_of(record).max:.6g}")
        assert stats_of(twin).min == float(f"{stats_of(record).min:.6g}")
    for record in read_dump(DATA / "acl-tensor", stats=False).records:
        assert record.stats is None
        assert record.payload is not None


def test_exception_dumps_have_the_time_of_their_header_and_appended_records_their_own(tmp_path: Path) -> None:
    (record,) = read_dump(write(tmp_path / "a", ("MatMul.net_mm.5.20260101123456789", "net/mm"))).records
    assert (record.time, record.op_type, record.task, record.stream) == (STAMP, "MatMul", 5, None)
    first, second = read_dump(write(tmp_path / "b", *[("0/Add.a.4.3.T0", "a")] * 2)).records
    assert (first.time, second.time) == (STAMP, STAMP + len(container("a")))


def test_files_that_cannot_be_read_are_problems_and_cost_no_others(tmp_path: Path) -> None:
    dump = read_dump(
        write(
            tmp_path,
            "0/A.a.1.2.T0.csv",
            ("0/B.b.1.2.T0.csv", f"{HEADER}Input,0,8\n"),
            ("0/C.c.1.2.T0", b"\xff" * 7),
            ("0/D.d.1.2.T0", struct.pack("<Q", 2**62) + b"\x0a\x032.0"),
            ("0/E.e.1.2.T0.csv", [row("Output", 0, 1), row("Output", 0, 2)]),
        )
    )
    assert keys(dump) == ["a:output.0"]
    located = {Path(problem.path).name[0]: problem.offset for problem in dump.problems}
    assert sorted(located) == ["B", "C", "D", "E"]
    assert (located["B"], located["D"]) == (len(HEADER), 0)


def test_a_tensor_file_cut_at_any_byte_is_a_problem(tmp_path: Path) -> None:
    whole = next(DATA.joinpath("acl-tensor").rglob("Softmax*")).read_bytes()
    path = tmp_path / f"Softmax.x.1.2.{STAMP}"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        (problem,) = read_dump(tmp_path).problems
        assert problem.path == str(path)


def test_one_tensor_that_cannot_be_decoded_costs_no_other(tmp_path: Path) -> None:
    message = dump_data_class()(version="2.0", dump_time=STAMP, op_name="a")
    for dims, kind in (([1], 1), ([1000], 1), ([1], 13), ([1], 99)):
        tensor = message.output.add(data_type=kind, format=2, size=4, address=4096)
        tensor.shape.dim.extend(dims)
    header = message.SerializeToString()
    content = struct.pack("<Q", len(header)) + header + struct.pack("<4f", 1, 2, 3, 4)
    dump = read_dump(write(tmp_path, ("A.a.1.2.T0", content)))
    good, small, text, unknown = dump.records
    assert stats_of(good).max == 1.0
    assert small.stats is None
    (problem,) = dump.problems
    assert "output 1" in problem.reason
    assert (text.dtype, text.stats) == ("string", None)
    assert "no numeric meaning" in text.note
    assert (unknown.dtype, unknown.stats) == ("proto:99", None)
    assert "not known" in unknown.note


def test_a_type_the_device_has_no_statistics_for_says_so_and_its_quirks_are_computed(tmp_path: Path) -> None:
    records = read_dump(DATA / "acl-dtypes" / "27_BF16", acl=True).records
    record = next(record for record in records if record.payload)
    assert (record.dtype, record.stats) == ("bfloat16", None)
    assert record.note == "CANN computes no statistics for bfloat16"
    content = container("a")[:-4] + struct.pack("<f", math.nan)
    (quirky,) = read_dump(write(tmp_path, ("A.a.1.2.T0", content)), acl=True).records
    assert math.isnan(stats_of(quirky).max or 0)


def test_both_files_of_a_pair_may_be_damaged(tmp_path: Path) -> None:
    dump = read_dump(
        write(
            tmp_path,
            *("0/A.a.1.2.T0.csv", ("0/A.b.1.2.T0", "b"), ("0/A.b.1.2.T0.csv", "broken")),
            "0/Add.n.0.0.T0.output.0.DefaultFormat.npy",
        )
    )
    assert sorted(keys(dump)) == ["a:output.0", "b:output.0", "n:output.0"]
    (problem,) = dump.problems
    assert problem.path.endswith(".csv")


def test_errors_of_the_disk_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> object:
        raise OSError(5, "Input/output error", str(path))

    def refuse(path: str) -> object:
        if str(path).endswith("1"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    write(tmp_path, ("0/A.a.1.2.T0", "a"), "1/B.b.1.2.T0.csv")
    scandir = os.scandir
    monkeypatch.setattr("pytest_npudump.dump.files.container._records", fail)
    monkeypatch.setattr(os, "scandir", refuse)
    folder, file = map(str, read_dump(tmp_path).problems)
    assert "Permission denied" in folder
    assert "Input/output error" in file


def test_an_empty_dump_is_an_error_with_likely_causes_and_what_is_no_tensor_is_listed(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"holds nothing.*loaded before the dump was set"):
        read_dump(tmp_path)
    (tmp_path / "plog.txt").write_text("")
    with pytest.raises(DumpError, match=r"holds only plog\.txt"):
        read_dump(tmp_path)
    with pytest.raises(DumpError, match="does not exist"):
        read_dump(tmp_path / "gone")
    write(tmp_path / "b", "0/A.a.1.2.T0.csv", *((f"{number}.json", b"{}") for number in range(7)))
    (note,) = read_dump(tmp_path / "b").notes
    assert note.startswith("skipped 7 files not of a dump: 0.json, 1.json")
    assert note.endswith("and 2 more")


def test_a_tensor_file_under_a_hash_that_nothing_explains_is_a_problem_unless_its_header_names_it(
    tmp_path: Path,
) -> None:
    long = "m" * 300
    short = libstdcxx_hash(long.encode())
    (problem,) = read_dump(write(tmp_path, (f"0/{short}", ("", 0, 1)))).problems
    assert f"{short}: its name tells no operator, and no mapping.csv beside it does" in str(problem)
    assert keys(read_dump(write(tmp_path, ("0/mapping.csv", f"{short},{long}\n")))) == [f"{long}:output.0"]
    assert keys(read_dump(write(tmp_path / "named", (f"0/{short}", "net/Add")))) == ["net/Add:output.0"]
    assert keys(read_dump(write(tmp_path / "any", ("0/my_tensors", ("", 0, 1))))) == ["my_tensors:output.0"]


@pytest.mark.each("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_reads_the_same_records(pool: type[ThreadPoolExecutor | ProcessPoolExecutor]) -> None:
    with pool(2) as executor:
        for tree in ("acl-stats", "acl-tensor", "mindspore-dtypes"):
            assert read_dump(DATA / tree, executor=executor).records == read_dump(DATA / tree).records


def test_statistics_files_are_read_without_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = next((DATA / "acl-stats").rglob("*.csv")).read_text()
    write(tmp_path, *((f"0/Add.layer_{number}.{number}.3.T{number}.csv", text) for number in range(300)))
    seen: list[tuple[int, int]] = []
    with ThreadPoolExecutor(2) as executor:
        monkeypatch.setattr(executor, "map", None)
        dump = read_dump(
            tmp_path, executor=executor, workers=2, progress=lambda done, count: seen.append((done, count))
        )
    assert dump.records == read_dump(tmp_path).records
    assert {record.key.layer for record in dump.records} == {f"layer_{number}" for number in range(300)}
    assert seen == [(256, 300), (300, 300)]
    seen.clear()
    read_dump(DATA / "acl-tensor", progress=lambda done, count: seen.append((done, count)))
    assert seen == [(1, 2), (2, 2)]


def test_statistics_are_of_shape_s_elements_and_cann_s_own_of_every_byte_of_the_size(tmp_path: Path) -> None:
    values = np.array([1, 2, 3, -7, -7, -7, -7, -7], np.float32)
    message = dump_data_class()(version="2.0", dump_time=STAMP, op_name="a/b")
    output = message.output.add(data_type=1, format=2, size=values.nbytes, address=4096)
    output.shape.dim.append(3)
    output.original_shape.dim.append(3)
    header = message.SerializeToString()
    content = struct.pack("<Q", len(header)) + header + values.tobytes()
    write(tmp_path, ("20261120080910/0/m/1/0/Add.a_b.1.3.T0", content))
    ours, theirs = (stats_of(read_dump(tmp_path, acl=acl).records[0]) for acl in (False, True))
    assert (ours.count, ours.max, ours.min, ours.avg) == (3, 3.0, 1.0, 2.0)
    assert (theirs.count, theirs.max, theirs.min) == (8, 3.0, -7.0)
    assert theirs.avg == float(values.mean(dtype=np.float64))


NPY = "Add.z.3.5.T0.output.0.DefaultFormat.Float32.npy"


@pytest.mark.each(
    "name",
    [
        *("x.npy", "Add.z.3.5.output.0.npy", "Add.z.3.5.T0.output.0.DefaultFormat.Float32.x.npy"),
        *("Add.z.3.5.T0.result.0.DefaultFormat.npy", "x.csv", "my_statistic.csv", "Add.z.3.5.T0.csv.csv"),
        *(f"Add.z.3.5.{STAMP}1", "Add.z.3.5.1795228705872", "Add.3.T0"),
    ],
)
def test_a_file_that_looks_like_data_and_has_no_tensor_is_a_problem(tmp_path: Path, name: str) -> None:
    write(tmp_path, (f"rank_0/Net/0/0/{name}", b"not a tensor of any kind"))
    (alone,) = read_dump(tmp_path).problems
    assert alone.path == str(next(tmp_path.rglob("*.*")))
    dump = read_dump(write(tmp_path, f"rank_0/Net/0/0/{NPY}"))
    assert [problem.path for problem in dump.problems] == [alone.path]
    assert len(dump.records) == 1


@pytest.mark.each(
    "path",
    [
        *("ops.json", "notes.txt", "plog.log", "net.om", "graph.pbtxt", "add_1.pt", "libascendcl.so.8.2.1"),
        *("Add.z.3.5.T0.output.0.6.float32.ND.bin", "Opdebug.Node_OpDebug.3.5.T0.output.0.json"),
        "rank_0/execution_order/ms_execution_order_graph_0.csv",
        "rank_0/execution_order/ms_global_execution_order_graph_0.csv",
    ],
)
def test_a_file_that_is_none_of_a_dump_s_is_no_problem(tmp_path: Path, path: str) -> None:
    dump = read_dump(write(tmp_path, NPY, f"rank_0/Net/0/0/{NPY}", (path, b"0\n")))
    assert not dump.problems
    assert len(dump.records) == 2
    if path.startswith("rank_0"):
        assert not read_dump(tmp_path / "rank_0").problems


# Hashes of tensors, from the column of a file to the record of the dump.

VALUES = np.float32([1, -2])
MD5 = hashlib.md5(VALUES.tobytes(), usedforsecurity=False).hexdigest()
SHA1 = hashlib.sha1(VALUES.tobytes(), usedforsecurity=False).hexdigest()
MERGED = STEP.removesuffix(",Max Value,Min Value\n")
MSPROBE = MERGED.replace("IO", "Input/Output").replace("Shape", "Format,Shape")
OPERATOR = f"Add.Add_1.0.0.{STAMP}.csv"
START = f'Add,net_Add-op0,0,0,{STAMP},output,0,8,float32,"(2,)"'
UNREAD = "columns were not read: Negative Zero Count, Positive Zero Count"
SIGNS = "Max Value,Negative Zero Count,Positive Zero Count,Zero Count"


@pytest.mark.each(
    ("path", "text", "digest", "note"),
    [
        ("statistic.csv", f"{MERGED},Max Value,MD5\n{START},1,{MD5.upper()}\n", f"md5:{MD5}", ""),
        ("statistic.csv", f"{MERGED},Max Value,MD5\n{START},1,{MD5},\n", f"md5:{MD5}", ""),
        ("statistic.csv", f"{MERGED},L2 Value,MD5\n{START},1,{MD5}\n", f"md5:{MD5}", ""),
        (
            "statistic.csv",
            f"{MERGED},SHA1,Max Value,MD5\n{START},{SHA1},1,{MD5}\n",
            f"md5:{MD5} sha1:{SHA1}",
            "",
        ),
        ("statistic.csv", f"{MERGED},Max Value,SHA1\n{START},1,{SHA1}\n", f"sha1:{SHA1}", ""),
        ("statistic.csv", f"{MERGED},Max Value,MD5\n{START},1,null\n", "", ""),
        ("statistic.csv", f"{MERGED},Max Value\n{START},1\n", "", ""),
        ("statistic.csv", f"{MERGED},MD5\n{START},{MD5}\n", f"md5:{MD5}", ""),
        (
            "statistic.csv",
            f"{MSPROBE},Max Value,MD5 Value\nAdd,Add_1,0,0,{STAMP},output,0,8,DT_FLOAT,ND,2,1,{MD5}\n",
            f"md5:{MD5}",
            "",
        ),
        (OPERATOR, f"{TITLES},Max Value,MD5 Value\nOutput,0,8,DT_FLOAT,ND,2,1,{MD5}\n", f"md5:{MD5}", ""),
        # MindSpore counts the elements below zero, those above it, and the zeros: 1 and -2 have no zero.
        ("statistic.csv", f"{MERGED},{SIGNS}\n{START},1,1,1,0\n", "", UNREAD),
        (OPERATOR, f"{TITLES},{SIGNS}\nOutput,0,8,DT_FLOAT,ND,2,1,1,1,0\n", "", UNREAD),
    ],
)
def test_hashes_of_statistics_are_kept_and_columns_without_a_place_named(
    tmp_path: Path, path: str, text: str, digest: str, note: str
) -> None:
    (tmp_path / path).write_text(text)
    dump = read_dump(tmp_path)
    (record,) = dump.records
    assert not dump.problems
    assert (record.digest, record.note) == (digest, note)
    assert (record.stats is None) is ("Value" not in text.replace("MD5 Value", ""))
    assert not note or stats_of(record).zero == 0


def test_a_tensor_has_the_hash_and_the_notes_of_its_row_beside_what_was_computed(tmp_path: Path) -> None:
    np.save(tmp_path / f"Add.net_Add-op0.0.0.{STAMP}.output.0.DefaultFormat.Float32.npy", VALUES)
    (tmp_path / "statistic.csv").write_text(f"{MERGED},MD5\n{START},{MD5}\n")
    (record,) = read_dump(tmp_path).records
    assert (stats_of(record).max, record.digest, record.path.suffix) == (1.0, f"md5:{MD5}", ".npy")
    text = f"{TITLES},Max Value,Median Value,MD5 Value\nOutput,0,8,DT_FLOAT,ND,1,1,-0.5,{MD5}\n"
    write(tmp_path / "raw", (OPERATOR, text), (OPERATOR.removesuffix(".csv"), "Add/1"))
    (record,) = read_dump(tmp_path / "raw").records
    assert (record.digest, record.payload is not None) == (f"md5:{MD5}", True)
    assert record.note == "unknown columns were not read: Median Value"


def test_a_hash_that_is_no_word_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "statistic.csv").write_text(f"{MERGED},MD5\n{START},{MD5[:8]} {MD5[8:]}\n")
    (problem,) = read_dump(tmp_path).problems
    assert isinstance(problem, FormatError)
    assert "line 2: " in str(problem)
    assert "is no md5 of a tensor" in str(problem)


@dataclass(frozen=True)
class OneFile:
    layer: str
    op_type: str
    task: int
    time: int
    place: str
    thread: str
    tensors: tuple[str, ...]

    def write(self, root: Path, value: int, *, later: int = 0) -> Path:
        rows = [
            f"{tensor},8,DT_INT64,ND,1,{value * 10 + at},{value * 10 + at},{value * 10 + at},1,0,0,0\n"
            for at, tensor in enumerate(self.tensors)
        ]
        path = root / "20260101010101" / self.place
        name = f"{self.op_type}.{self.layer}.{self.task}.3.{STAMP + self.time + later}{self.thread}.csv"
        write(path, (name, rows))
        return path / name


dumps = st.lists(
    st.builds(
        OneFile,
        layer=st.sampled_from(["a", "b", "a_To_b", "conv_1", "x" * 90, "名"]),
        op_type=st.sampled_from(["Add", "Hcom", "Data"]),
        task=st.integers(0, 3),
        time=st.integers(0, 5),
        place=st.sampled_from(["0", "1", "0/net/1/0", "0/net/1/7", "0/net/2/0", "0/other/3/0"]),
        thread=st.sampled_from(["", "", ".4.0.1.0", ".4.0.2.0"]),
        tensors=st.sampled_from([("Input,0",), ("Output,0",), ("Input,0", "Input,1", "Output,0")]),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=40)
@given(dumps, st.integers(1, 10**9))
def test_no_row_is_lost_or_doubled_and_every_key_is_its_own_whatever_the_clock(
    tmp_path_factory: pytest.TempPathFactory, files: list[OneFile], later: int
) -> None:
    root, again = tmp_path_factory.mktemp("dump"), tmp_path_factory.mktemp("again")
    written = {file.write(root, value): (value, file) for value, file in enumerate(files)}
    dump = read_dump(root)
    assert not dump.problems
    found = [record.key for record in dump.records]
    assert len(set(found)) == len(found)
    assert [TensorKey.parse(str(key)) for key in found] == found
    assert Counter((record.path, stats_of(record).max) for record in dump.records) == Counter(
        (path, value * 10 + at) for path, (value, file) in written.items() for at in range(len(file.tensors))
    )
    assert {record.path: record.key.layer for record in dump.records} == {
        path: file.layer for path, (_, file) in written.items()
    }
    for value, file in enumerate(files):
        file.write(again, value, later=later)
    assert {record.key: stats_of(record).max for record in read_dump(again).records} == {
        record.key: stats_of(record).max for record in dump.records
    }
