from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump
from pytest_npudump.dump.stats.tensor import payload_stats
from pytest_npudump.dump.tree.mindspore import under_first_keys
from pytest_npudump.errors import DumpError
from tests.dump.conftest import DATA, STAMP, STEP


def save(root: Path, name: str, value: float) -> None:
    root.mkdir(parents=True, exist_ok=True)
    np.save(root / name, np.float32([value]))


def test_the_latest_of_two_runs_is_read_whole_and_alone() -> None:
    dump = read_dump(DATA / "mindspore-two_runs_same_path", latest=True)
    assert len(dump.records) == 24
    assert {record.key.turn for record in dump.records} == {0}
    assert min(record.time for record in dump.records) == 1795228738709207
    assert any("latest of 2 runs" in note for note in dump.notes)


@pytest.mark.each("without", ["parameters", "global execution order"])
def test_two_runs_are_found_by_either_of_two_signs(tmp_path: Path, without: str) -> None:
    root = tmp_path / "dump"
    shutil.copytree(DATA / "mindspore-two_runs_same_path", root)
    for path in list(root.rglob("Parameter.*" if without == "parameters" else "ms_global_*")):
        path.unlink()
    with pytest.raises(DumpError, match="two runs"):
        read_dump(root)


def test_a_first_run_that_died_early_is_told_from_the_second(tmp_path: Path) -> None:
    root = tmp_path / "dump"
    shutil.copytree(DATA / "mindspore-two_runs_same_path", root)
    first = sorted(root.rglob("*.npy"), key=lambda path: path.name.split(".")[4])[:24]
    for path in first[5:]:
        path.unlink()
    dump = read_dump(root, latest=True)
    assert len(dump.records) == 24
    assert min(record.time for record in dump.records) == 1795228738709207


def test_where_the_last_run_begins_must_be_certain(tmp_path: Path) -> None:
    folder = tmp_path / "rank_0/net/0/0"
    for at, name in enumerate(("Add.a", "Add.a", "Parameter.p", "Add.a", "Add.a", "Parameter.p")):
        save(folder, f"{name}.0.0.{STAMP + at}.output.0.DefaultFormat.Float32.npy", at)
    with pytest.raises(DumpError, match="where the last one begins cannot be told"):
        read_dump(tmp_path, latest=True)


def test_an_execution_order_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    save(tmp_path / "rank_0/net/0/0", f"Add.a.0.0.{STAMP}.output.0.DefaultFormat.float32.npy", 3)
    order = tmp_path / "rank_0/execution_order/ms_global_execution_order_graph_0.csv"
    order.parent.mkdir()
    with order.open("wb") as file:
        file.truncate(1 << 40)
    (problem,) = read_dump(tmp_path).problems
    assert problem.path == str(order)


def test_a_statistic_csv_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "statistic.csv").write_text(STEP + "Add,x")
    (problem,) = read_dump(tmp_path).problems
    assert problem.offset == len(STEP)


def test_a_type_that_the_file_name_calls_otherwise_is_noted(tmp_path: Path) -> None:
    save(tmp_path / "rank_0/net/0/0", f"Add.a.0.0.{STAMP}.output.0.DefaultFormat.Int4.npy", 1)
    (record,) = read_dump(tmp_path).records
    assert record.note == "stored as float32, called int4 in the file's name"


def save_float32_as(descr: str, path: Path, values: list[float]) -> np.ndarray:
    """Write a file as MindSpore 2.10 writes what its CPU kernels computed in float32."""
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.float32(values)
    header = {"descr": descr, "fortran_order": False, "shape": array.shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(array.tobytes())
    return array


@pytest.mark.each(("descr", "name"), [("<f2", "Float16"), ("<f8", "Float64")])
def test_float32_under_the_header_of_another_float_is_read_as_what_it_is_and_noted(
    tmp_path: Path, descr: str, name: str
) -> None:
    path = tmp_path / f"rank_0/net/0/0/MatMul.a.0.0.{STAMP}.output.0.DefaultFormat.{name}.npy"
    array = save_float32_as(descr, path, [1.5, -70000, 3.1415927])
    dump = read_dump(tmp_path)
    (record,) = dump.records
    assert not dump.problems
    assert (record.dtype, record.shape, record.size) == ("float32", (3,), 12)
    assert record.stats is not None
    assert (record.stats.max, record.stats.min) == (float(array.max()), float(array.min()))
    assert record.payload is not None
    np.testing.assert_array_equal(load(record.payload, record.dtype, record.shape), array)
    assert payload_stats(record.payload, record.dtype, 3) == record.stats
    assert record.note == f"computed and stored as float32, called {name.lower()} in the file's header"
    (note,) = dump.notes
    assert "read, recorded and compared as float32" in note


@pytest.mark.each(
    ("folder", "descr", "nbytes"),
    [
        ("rank_0/net/0/0", "<f2", 11),
        ("rank_0/net/0/0", "<f2", 13),
        ("rank_0/net/0/0", "<f2", 5),
        ("rank_0/net/0/0", "<f2", 24),
        ("rank_0/net/0/0", "<i2", 12),
        ("rank_0/net/0/0", "<E2", 12),
        ("rank_0/net/0/0", "<f4", 6),
        ("rank_0/net/0/0", "<f8", 11),
        ("20260801120000/0/net/0/0", "<f2", 12),
    ],
)
def test_any_other_number_of_bytes_is_damage_and_so_is_float32_in_another_producers_tree(
    tmp_path: Path, folder: str, descr: str, nbytes: int
) -> None:
    path = tmp_path / folder / f"MatMul.a.0.0.{STAMP}.output.0.DefaultFormat.Float16.npy"
    save_float32_as(descr, path, [1.5, 2.5, 3.5])
    data = path.read_bytes()
    path.write_bytes((data[:-12] + bytes(24))[: len(data) - 12 + nbytes])
    dump = read_dump(tmp_path)
    assert not dump.records
    (problem,) = dump.problems
    assert "truncated or damaged" in str(problem)


def test_an_empty_tensor_of_float16_keeps_its_type(tmp_path: Path) -> None:
    path = tmp_path / f"rank_0/net/0/0/MatMul.a.0.0.{STAMP}.output.0.DefaultFormat.Float16.npy"
    save_float32_as("<f2", path, [])
    (record,) = read_dump(tmp_path).records
    assert (record.dtype, record.note) == ("float16", "")


def test_what_is_known_to_be_one_run_is_read_as_further_executions() -> None:
    root = DATA / "mindspore-two_runs_same_path"
    with pytest.raises(DumpError, match="two runs in one dump"):
        read_dump(root)
    dump = read_dump(root, one_run=True)
    assert len(dump.records) == len(list(root.rglob("*.npy")))
    assert len({record.key for record in dump.records}) == len(dump.records)
    assert {record.key.turn for record in dump.records} == {0, 1}


def test_what_mindspore_adds_to_any_dump_is_no_news(tmp_path: Path) -> None:
    save(tmp_path / "rank_0" / "N" / "0" / "0", f"Add.a.0.0.{STAMP}.output.0.DefaultFormat.Float32.npy", 1)
    for name in (".dump_metadata/config.json", "graphs/ms_output_trace_code_graph_0.ir", "notes.txt"):
        path = tmp_path / "rank_0" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert read_dump(tmp_path).notes == ("skipped 1 file not of a dump: rank_0/notes.txt",)


def test_single_operators_dumped_anew_each_second_are_turns_of_one_run(tmp_path: Path) -> None:
    """MindSpore switches the dump on and off around each aclop kernel: one time directory a second."""
    source = next((DATA / "acl-stats").rglob("*.csv"))
    op_type, _, _ = source.name.partition(".")
    for second in (1, 2, 3):
        folder = tmp_path / f"2026010101010{second}" / "0"
        folder.mkdir(parents=True)
        shutil.copy(source, folder / f"{op_type}.layer.1.2.{STAMP + second}.csv")
    with pytest.raises(DumpError, match="two runs in one dump"):
        read_dump(tmp_path)
    dump = read_dump(tmp_path, one_run=True)
    assert {record.key.turn for record in dump.records} == {0, 1, 2}
    assert len({record.key for record in dump.records}) == len(dump.records)


TREE = DATA / "mindspore-control_flow_multigraph"
ACL = DATA / "acl-stats"


def part_of(tree: Path, target: Path, layer: str) -> Path:
    """Copy the files of one layer, as a dump would have them whose ``kernels`` name it, under later times."""
    for path in tree.rglob("*.npy"):
        op_type, name, task, stream, time, *rest = path.name.split(".")
        if name == layer:
            folder = target / path.parent.relative_to(tree)
            folder.mkdir(parents=True, exist_ok=True)
            later = ".".join((op_type, name, task, stream, str(int(time) + 10**9), *rest))
            shutil.copyfile(path, folder / later)
    return target


def layers_of(tree: Path) -> list[str]:
    return sorted({record.key.layer for record in read_dump(tree, stats=False).records})


@pytest.mark.each("layer", layers_of(TREE))
def test_graphs_steps_and_turns_of_a_real_dump_are_those_of_the_first_run(tmp_path: Path, layer: str) -> None:
    first = read_dump(TREE, stats=False)
    again = read_dump(part_of(TREE, tmp_path, layer), stats=False, one_run=True)
    keyed = under_first_keys(first, again)
    assert {r.key for r in keyed.records} == {r.key for r in first.records if r.key.layer == layer}
    assert [r.path for r in keyed.records] == [r.path for r in again.records]
    by_key = {record.key: record.path for record in first.records}
    for record in keyed.records:
        assert record.path.read_bytes() == by_key[record.key].read_bytes()


def test_without_the_first_run_the_keys_would_be_others(tmp_path: Path) -> None:
    layers = [record.key for record in read_dump(TREE, stats=False).records if record.key.model == "CF/4"]
    again = read_dump(part_of(TREE, tmp_path, layers[0].layer), stats=False, one_run=True)
    assert not {record.key for record in again.records} & set(layers)


def test_a_tensor_that_the_first_run_lacks_keeps_its_key(tmp_path: Path) -> None:
    first = read_dump(TREE, stats=False)
    layer = layers_of(TREE)[0]
    fewer = Dump(first.root, tuple(r for r in first.records if r.key.layer != layer))
    again = read_dump(part_of(TREE, tmp_path, layer), stats=False, one_run=True)
    assert under_first_keys(fewer, again) == again


def test_dumps_of_other_producers_stay_as_they_are() -> None:
    dump = read_dump(ACL)
    renamed = Dump(dump.root, dump.records[:1])
    assert under_first_keys(renamed, dump) == dump


@pytest.mark.each(("place", "qualifier"), [("0/other/1/0", "model=other"), ("1/ppocr_cls/1/0", "device=1")])
def test_one_of_several_models_or_devices_has_the_keys_that_it_has_beside_others(
    tmp_path: Path, place: str, qualifier: str
) -> None:
    for run in ("first", "again"):
        (tmp_path / run).mkdir()
        (source,) = (DATA / "acl-tensor").glob("*/0/ppocr_cls/1/0")
        time = tmp_path / run / source.relative_to(DATA / "acl-tensor").parts[0]
        for one in ("0/ppocr_cls/1/0", place)[run == "again" :]:
            shutil.copytree(source, time / one)
    first, again = (read_dump(tmp_path / run, stats=False) for run in ("first", "again"))
    wanted = {record.key for record in first.records if qualifier in str(record.key)}
    assert len(wanted) == len(again.records) > 1
    assert {record.key for record in under_first_keys(first, again).records} == wanted
    assert under_first_keys(first, first) == first


def test_a_layer_of_later_steps_keeps_their_numbers_in_an_asynchronous_dump(tmp_path: Path) -> None:
    name = "Add.{}.0.0.179522870587222{}.output.0.DefaultFormat.float32.npy"
    dumps = (("first", "20260101010101", {5: "ab", 6: "b"}), ("again", "20260202020202", {6: "b"}))
    for run, time, steps in dumps:
        for step, layers in steps.items():
            folder = tmp_path / run / f"{step}/{time}/0"
            folder.mkdir(parents=True)
            for layer in layers:
                np.save(folder / name.format(layer, step), np.float32([step]))
    first, again = (read_dump(tmp_path / run, one_run=True) for run, *_ in dumps)
    assert [str(record.key) for record in under_first_keys(first, again).records] == ["b#step=1:output.0"]
