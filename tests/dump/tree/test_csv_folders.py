"""A dump of nothing but statistics CSV, read in columns, is what it is when it is read file by file."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pytest_npudump.dump import reader
from pytest_npudump.dump.columns import TensorTable
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.dump.tree.find import Tree, find_files
from pytest_npudump.errors import DumpError
from tests.dump.conftest import HEADER

STAMP = 1795228705000000
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
    st.integers(STAMP, STAMP + 5).map(str),
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


ONE = ("0/net/1/0", f"Add.a.1.3.{STAMP}.csv", [ROWS[0], ROWS[2]], "")
OTHER = ("0/net/1/1", f"Add.b.1.3.{STAMP}.csv", [ROWS[1]], "")


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
        write(root, [ONE, (ONE[0], f"{name}.{STAMP}.csv", *ONE[2:])])
        whole, plain = find_files(root, tables=True), find_files(root)
        assert (whole.files, whole.overflow, whole.tables) == (plain.files, plain.overflow, [])
        assert list(map(str, whole.problems)) == list(map(str, plain.problems))


def test_two_runs_are_found_out_and_the_later_one_is_read(tmp_path: Path) -> None:
    write(tmp_path, [ONE, OTHER])
    shutil.copytree(tmp_path / "20260101010101", tmp_path / "20260101010102")
    later = tmp_path / "20260101010102" / ONE[0] / ONE[1]
    later.rename(later.with_name(f"Add.a.1.3.{STAMP + 9}.csv"))
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
