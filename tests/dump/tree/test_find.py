from __future__ import annotations

import copy
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pytest_npudump.dump import reader
from pytest_npudump.dump.columns import TensorTable
from pytest_npudump.dump.names import Place
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.dump.tree.find import Tree, find_files
from pytest_npudump.errors import DumpError
from tests.dump.conftest import HEADER, STAMP

TLV = b"\x08\0\0\0\0\0\0\0\x5a\x5a\x5a\x5a"


def touch(root: Path, *paths: str, content: bytes = b"") -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


def only(tree: Tree) -> Place:
    (place,) = {file.place for file in tree.files}
    return place


def test_trap_25_the_tlv_writer_swaps_model_id_and_model_name(tmp_path: Path) -> None:
    numbers = touch(tmp_path, f"20260101010101/0/7/12/2/A.b.1.2.{STAMP}", content=TLV)
    assert (only(find_files(numbers)).model, only(find_files(numbers)).model_id) == ("12", 7)
    touch(tmp_path, f"20260101010101/0/7/12/2/A.b.1.2.{STAMP}", content=b"\x10\0\0\0\0\0\0\0\x0a\x032.")
    assert (only(find_files(numbers)).model, only(find_files(numbers)).model_id) == ("7", 12)


def test_a_dump_may_be_given_by_a_directory_inside_it(tmp_path: Path) -> None:
    root = touch(tmp_path, f"20260101010101/3/net/7/2/A.b.1.2.{STAMP}.csv")
    whole = only(find_files(root))
    for inner in ("20260101010101", "20260101010101/3", "20260101010101/3/net/7", "20260101010101/3/net/7/2"):
        assert only(find_files(root / inner)) == whole


def test_trap_24_mapped_csv_files_are_csv(tmp_path: Path) -> None:
    touch(tmp_path, "0/123456789", content=b"Input/Output,Index")
    long = f"Add.{'n' * 300}.3.5.{STAMP}.csv"
    (tmp_path / "0" / "mapping.csv").write_text(f"123456789,{long}\n")
    (table,) = find_files(tmp_path).files
    assert table.name is not None
    assert table.name.suffix == ".csv"


def test_a_hashed_name_whose_mapping_was_lost_is_read_by_its_content_or_reported(tmp_path: Path) -> None:
    touch(tmp_path, "0/3343330985831579852", content=b"\x10\0\0\0\0\0\0\0\x0a\x032.0")
    touch(tmp_path, "0/3343330985831579853", content=b"Input/Output,Index\n")
    touch(tmp_path, "0/410769277.npy", content=b"\x93NUMPY")
    tree = find_files(tmp_path)
    assert [file.path.name for file in tree.files] == ["3343330985831579852"]
    assert {Path(problem.path).name for problem in tree.problems} == {"3343330985831579853", "410769277.npy"}


def test_a_mapping_that_cannot_be_read_is_a_problem_and_a_file_it_misses_a_note(tmp_path: Path) -> None:
    touch(tmp_path, f"0/A.b.1.2.{STAMP}.csv")
    (tmp_path / "0" / "mapping.csv").write_text("broken\n")
    assert [Path(problem.path).name for problem in find_files(tmp_path).problems] == ["mapping.csv"]
    (tmp_path / "0" / "mapping.csv").write_text(f"12,A.c.1.2.{STAMP}\n")
    (note,) = find_files(tmp_path).notes
    assert f"A.c.1.2.{STAMP}" in note


def test_trap_23_slashes_of_a_capture_name_became_directories(tmp_path: Path) -> None:
    touch(tmp_path, f"20260101010101/0/MatMul.net/block 1/mat.mul.0.12.34.{STAMP}")
    (file,) = find_files(tmp_path).files
    assert file.name is not None
    assert (file.name.op_type, file.name.op_name) == ("MatMul", "net/block 1/mat.mul")
    assert file.place == Place(("20260101010101",), device=0)


def test_trap_20_device_statistics_that_were_not_converted_are_a_problem(tmp_path: Path) -> None:
    touch(tmp_path, f"0/A.b.1.2.{STAMP}.bin", content=bytes(6496))
    (problem,) = find_files(tmp_path).problems
    assert "did not convert" in problem.reason


def test_what_cann_s_tools_made_of_a_dump_is_listed_and_not_read(tmp_path: Path) -> None:
    dumped = f"0/MatMul.net_mm.1.2.{STAMP}"
    made = [
        *(f"{dumped}.output.0.npy", f"{dumped}.output.0.2x3.npy", f"{dumped}.output.0.6.float32.ND.bin"),
        *(f"0/MatMul.mm.1.2.{STAMP}.output.0.ND.npy", "0/notes.txt"),
    ]
    touch(tmp_path, dumped, *made)
    tree = find_files(tmp_path)
    assert [file.path.name for file in tree.files] == [f"MatMul.net_mm.1.2.{STAMP}"]
    assert sorted(tree.other) == sorted(made)


def test_an_npy_file_of_another_operator_is_no_copy_of_a_dump_file_with_its_ids(tmp_path: Path) -> None:
    names = [f"MatMul.net_mm.1.2.{STAMP}", f"MatMul.x.1.2.{STAMP}.output.0.DefaultFormat.Float32.npy"]
    touch(tmp_path, *names)
    tree = find_files(tmp_path)
    assert [file.path.name for file in tree.files] == names
    assert not tree.other


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    outside = touch(tmp_path / "outside", f"A.b.1.2.{STAMP}.csv")
    inside = touch(tmp_path / "dump", f"0/A.c.1.2.{STAMP}.csv")
    (inside / "link").symlink_to(outside)
    (inside / f"A.d.1.2.{STAMP}.csv").symlink_to(outside / f"A.b.1.2.{STAMP}.csv")
    tree = find_files(inside)
    assert [file.path.name for file in tree.files] == [f"A.c.1.2.{STAMP}.csv"]
    assert len(tree.notes) == 2


def test_an_unnamed_file_that_cannot_be_opened_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "0/unnamed")

    def refuse(path: Path, _mode: str) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    (problem,) = find_files(tmp_path).problems
    assert problem.path == str(tmp_path / "0" / "unnamed")


def test_a_pipe_in_a_dump_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"A.a.1.2.{STAMP}.csv")
    tree = find_files(tmp_path)
    assert not tree.files
    assert tree.notes == [f"neither a file nor a directory: {tmp_path}/A.a.1.2.{STAMP}.csv"]


def test_a_dump_path_that_is_no_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="does not exist"):
        find_files(tmp_path / "gone")
    with pytest.raises(DumpError, match="is a file"):
        find_files(touch(tmp_path, "file") / "file")


def test_names_that_are_no_utf_8_are_taken(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    name = os.fsencode(tmp_path / "0") + b"/A.b\xff.1.2.1795228705872229.csv"
    Path(os.fsdecode(name)).write_bytes(b"")
    (file,) = find_files(tmp_path).files
    assert file.name is not None
    assert file.name.op_name == "b\udcff"


@pytest.mark.each("kinds", [("csv", "tensor"), ("tensor", "csv"), ("csv", "csv", "tensor", "csv")])
def test_folders_of_statistics_beside_one_of_tensors_give_their_files_in_the_order_of_their_paths(
    kinds: tuple[str, ...], tmp_path: Path
) -> None:
    for step, kind in enumerate(kinds):
        suffix = ".csv" if kind == "csv" else ""
        names = [f"20261120080910/0/net/1/{step}/Relu.r{at}.{at}.3.{STAMP + at}{suffix}" for at in range(3)]
        touch(tmp_path, *names, f"20261120080910/0/net/1/{step}/notes.txt" if kind == "tensor" else names[0])
    mixed, plain = find_files(tmp_path, tables=True), find_files(tmp_path)
    assert mixed.tables == []
    assert (mixed.files, mixed.other, mixed.notes) == (plain.files, plain.other, plain.notes)
    assert len(mixed.files) == 3 * len(kinds)


CLOCK = 1795228705000000
PLACES = ("0", "1", "0/net/1/0", "0/net/1/7", "0/net/2/0", "0/other/3/0", "0/1/2/3", "1/net/1/0/deep")
ROWS = (
    ("Input,0,8,DT_FLOAT,ND,2", "2,1,1.5,2,0,0,0"),
    ("Input,1,8,DT_INT64,NCHW,2", "9007199254740993,-5,0,2,0,0,0"),
    ("Output,0,8,DT_BF16,ND,2x3", ",,,,,,"),
    ("Output,1,8,DT_FLOAT16,-,-", "nan,nan,nan,1,1,0,0"),
)
names = st.builds(
    "{}.{}.{}{}.{}{}.csv".format,
    st.sampled_from(["Add", "Data", "Hcom", "Conv2D", "aclnnAdd_17_L2"]),
    st.sampled_from(["a", "b", "a_To_b", "名", "x" * 80]),
    st.sampled_from(["0", "1", "007"]),
    st.sampled_from(["", ".3", ".3", ".4"]),
    st.integers(CLOCK, CLOCK + 5).map(str),
    st.sampled_from(["", "", "", "", "", "", "", ".4.0.1.0"]),
)
files = st.tuples(
    st.sampled_from(PLACES),
    names,
    st.lists(st.sampled_from(ROWS), min_size=1, max_size=3, unique=True),
    st.sampled_from(["", "", "", "", "cut"]),
)


def write(root: Path, dump: list[tuple[str, str, list[tuple[str, str]], str]]) -> None:
    for place, name, rows, damage in dump:
        path = root / "20260101010101" / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = HEADER + "".join(f"{head},{values}\n" for head, values in rows)
        path.write_text(text[:-1] if damage else text)


def file_by_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> Dump:
    def without_tables(root: Path, *, tables: bool = False) -> Tree:
        assert tables
        return find_files(root)

    with monkeypatch.context() as patch:
        patch.setattr(reader, "find_files", without_tables)
        return read_dump(root)


def said(dump: Dump) -> tuple[object, ...]:
    return list(dump.records), [str(problem) for problem in dump.problems], dump.notes, dump.raw_names


def table(dump: Dump) -> tuple[object, ...] | str:
    try:
        found = StatsTable.from_records(dump.records)
    except DumpError as error:
        return str(error)
    plain = (found.keys, found.op_types, found.dtypes, found.shapes, found.counts, found.wide, found.digests)
    return (*plain, found.values.tobytes(), found.known.tobytes(), found.digits.tobytes())


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(files, min_size=1, max_size=9))
def test_in_columns_a_dump_is_what_it_is_file_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dump: list[tuple[str, str, list[tuple[str, str]], str]]
) -> None:
    shutil.rmtree(tmp_path)
    write(tmp_path, dump)
    columns, objects = read_dump(tmp_path), file_by_file(tmp_path, monkeypatch)
    assert repr(said(columns)) == repr(said(objects))
    assert table(columns) == table(objects)


ONE = ("0/net/1/0", f"Add.a.1.3.{CLOCK}.csv", [ROWS[0], ROWS[2]], "")
OTHER = ("0/net/1/1", f"Add.b.1.3.{CLOCK}.csv", [ROWS[1]], "")


def test_such_a_dump_is_read_in_columns_and_its_records_are_a_sequence(tmp_path: Path) -> None:
    write(tmp_path, [ONE, OTHER])
    records = read_dump(tmp_path).records
    assert isinstance(records, TensorTable)
    assert [str(record.key) for record in records] == list(records.texts)
    assert records.texts == ("a:input.0", "a:output.0", "b#step=1:input.1")
    assert records[1:] == (records[1], records[2])
    assert records[-1] == records[2]
    assert records == read_dump(tmp_path).records
    assert records == tuple(records[:1]) + tuple(records[1:])
    assert records != records[:2]
    assert records != ()
    assert records[2].path == tmp_path / "20260101010101" / OTHER[0] / OTHER[1]
    assert records[1].stats is None
    assert records[1].note
    assert list(copy.deepcopy(records)) == list(records)
    with pytest.raises(IndexError):
        records[3]
    with pytest.raises(TypeError):
        hash(records)


def test_names_that_look_like_other_kinds_of_files_are_not_taken_for_operators(tmp_path: Path) -> None:
    for name in ("exception_info.x.1.2", "display.x.1.2", "Opdebug.x.1.2"):
        root = tmp_path / name
        write(root, [ONE, (ONE[0], f"{name}.{CLOCK}.csv", *ONE[2:])])
        whole, plain = find_files(root, tables=True), find_files(root)
        assert (whole.files, whole.overflow, whole.tables) == (plain.files, plain.overflow, [])
        assert list(map(str, whole.problems)) == list(map(str, plain.problems))


def test_two_runs_are_found_out_and_the_later_one_is_read(tmp_path: Path) -> None:
    write(tmp_path, [ONE, OTHER])
    shutil.copytree(tmp_path / "20260101010101", tmp_path / "20260101010102")
    later = tmp_path / "20260101010102" / ONE[0] / ONE[1]
    later.rename(later.with_name(f"Add.a.1.3.{CLOCK + 9}.csv"))
    with pytest.raises(DumpError, match="two runs in one dump"):
        read_dump(tmp_path)
    records = read_dump(tmp_path, latest=True).records
    assert {record.path.parts[-6] for record in records} == {"20260101010102"}


def test_a_tree_gives_its_tables_back_as_files(tmp_path: Path) -> None:
    write(tmp_path, [ONE, OTHER])
    tree = find_files(tmp_path, tables=True)
    assert len(tree.tables) == 2
    assert not tree.files
    assert tree.without_tables() == find_files(tmp_path)


def test_files_that_are_no_dump_files_beside_them_are_told_of(tmp_path: Path) -> None:
    write(tmp_path, [ONE, OTHER])
    (tmp_path / "readme.txt").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    dump = read_dump(tmp_path)
    assert isinstance(dump.records, TensorTable)
    assert any("readme.txt" in note for note in dump.notes)
    assert any("symbolic link not followed" in note for note in dump.notes)
