from __future__ import annotations

import math
import os
import re
import struct
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.dump.files.mapping import libstdcxx_hash
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
from pytest_npudump.errors import DumpError

DATA = Path(__file__).parents[1] / "data" / "trees"
STAMP = 1795228705872229
HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count\n"
)


def row(io: str, slot: int, value: float) -> str:
    return f"{io},{slot},4,DT_FLOAT,ND,1,{value:g},{value:g},{value:g},1,0,0,0\n"


def table(root: Path, path: str, *rows: str) -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(HEADER + "".join(rows or (row("Output", 0, 1),)))
    return root


def container(
    root: Path, path: str, op_name: str, *, inputs: int = 0, outputs: int = 1, time: int = STAMP
) -> Path:
    """Write a protobuf container with one float32 scalar a tensor, by the format's own definition."""
    message = dump_data_class()(version="2.0", dump_time=time, op_name=op_name)
    for tensor in [message.input.add() for _ in range(inputs)] + [
        message.output.add() for _ in range(outputs)
    ]:
        tensor.data_type, tensor.format, tensor.size, tensor.address = 1, 2, 4, 4096
        tensor.shape.dim.append(1)
    header = message.SerializeToString()
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    values = struct.pack(f"<{inputs + outputs}f", *range(1, inputs + outputs + 1))
    target.write_bytes(target.read_bytes() if target.exists() else b"")
    with target.open("ab") as file:
        file.write(struct.pack("<Q", len(header)) + header + values)
    return root


def keys(dump: Dump) -> list[str]:
    return [str(record.key) for record in dump.records]


def by_key(dump: Dump) -> dict[str, TensorRecord]:
    return {str(record.key): record for record in dump.records}


def test_a_real_statistics_tree_comes_in_execution_order() -> None:
    dump = read_dump(DATA / "acl-stats")
    lines = [
        line.split(",")
        for path in sorted(
            DATA.joinpath("acl-stats").rglob("*.csv"), key=lambda path: path.name.split(".")[-2]
        )
        for line in path.read_text().splitlines()[1:]
    ]
    assert [(record.key.io, record.key.slot) for record in dump.records] == [
        (line[0].lower(), int(line[1])) for line in lines
    ]
    assert [record.stats.max if record.stats else None for record in dump.records] == [
        float(line[6]) for line in lines
    ]
    first = dump.records[0]
    assert first.key == TensorKey("net_Conv@0", "input", 0)
    assert (first.op_type, first.task, first.stream, first.format) == ("Conv", 2, 3, "ND")
    assert [record.time for record in dump.records] == sorted(record.time for record in dump.records)
    assert not dump.problems
    assert not dump.raw_names


def test_a_real_tensor_tree_has_the_statistics_cann_printed_for_it() -> None:
    tensors = by_key(read_dump(DATA / "acl-tensor"))
    printed = {str(record.key): record for record in read_dump(DATA / "acl-stats").records}
    assert set(tensors) == {
        "net/MatMul@0:input.0",
        "net/MatMul@0:output.0",
        "net/Softmax@0:input.0",
        "net/Softmax@0:output.0",
    }
    for key, record in tensors.items():
        twin = printed[key.replace("/", "_")]
        assert record.key.sanitised == twin.key
        assert record.shape == twin.shape
        assert record.stats is not None
        assert twin.stats is not None
        assert twin.stats.max == float(f"{record.stats.max:.6g}")
        assert twin.stats.min == float(f"{record.stats.min:.6g}")


def test_trap_12_the_name_in_a_header_is_raw_and_its_time_that_of_the_file() -> None:
    dump = read_dump(DATA / "acl-mixed-op")
    assert dump.raw_names
    assert {record.key.layer for record in dump.records} == {"net/block 1/mat\\mul.x"}
    assert {record.time for record in dump.records} == {1795228705872229}
    assert [(record.key.io, record.key.slot) for record in dump.records][:3] == [
        ("input", 0),
        ("input", 1),
        ("input", 2),
    ]
    null = dump.records[2]
    assert (null.payload, null.stats) == (None, None)
    assert "null" in null.note
    assert keys(dump)[0] == "net/block%201/mat\\mul.x:input.0"


def test_statistics_are_not_computed_where_they_are_not_asked_for() -> None:
    for record in read_dump(DATA / "acl-tensor", stats=False).records:
        assert record.stats is None
        assert record.payload is not None


def test_exception_dumps_have_the_time_of_their_header(tmp_path: Path) -> None:
    container(tmp_path, "MatMul.net_mm.5.20260101123456789", "net/mm")
    (record,) = read_dump(tmp_path).records
    assert (record.time, record.op_type, record.task, record.stream) == (STAMP, "MatMul", 5, None)
    real = read_dump(DATA / "acl-exception")
    assert keys(real)[0] == "net/op.name%201:input.0"
    assert len({record.key for record in real.records}) == 6


def test_trap_11_one_collective_operator_in_two_files_is_one_execution(tmp_path: Path) -> None:
    for turn in range(2):
        container(tmp_path, f"0/HcomAllReduce.ar.7.3.{STAMP + 10 * turn}", "ar", inputs=2, outputs=0)
        container(tmp_path, f"0/HcomAllReduce.ar.7.3.{STAMP + 10 * turn + 5}", "ar", outputs=2)
    assert keys(read_dump(tmp_path)) == [
        "ar:input.0",
        "ar:input.1",
        "ar:output.0",
        "ar:output.1",
        "ar#turn=1:input.0",
        "ar#turn=1:input.1",
        "ar#turn=1:output.0",
        "ar#turn=1:output.1",
    ]


def test_inputs_and_outputs_of_two_operators_are_not_joined(tmp_path: Path) -> None:
    container(tmp_path, f"0/Send.a_b.7.3.{STAMP}", "a_b", inputs=1, outputs=0)
    container(tmp_path, f"0/Send.a_b.8.3.{STAMP + 1}", "a_b")
    assert keys(read_dump(tmp_path)) == ["a_b:input.0", "a_b#turn=1:output.0"]


def test_trap_26_a_watcher_s_two_outputs_are_two_layers(tmp_path: Path) -> None:
    container(tmp_path, f"0/Relu.A_To_C.4.3.{STAMP + 3}", "A_To_C")
    container(tmp_path, f"0/Conv.A.4.3.{STAMP + 2}", "A")
    container(tmp_path, f"0/Relu.C.9.3.{STAMP}", "C")
    dump = read_dump(tmp_path)
    assert keys(dump) == ["C:output.0", "A:output.0", "A_To_C:output.0"]
    assert [record.task for record in dump.records] == [9, 4, 4]


def test_turns_of_a_loop_are_numbered_by_time(tmp_path: Path) -> None:
    for turn, value in enumerate((5.0, 6.0, 7.0)):
        table(tmp_path, f"0/Add.loop_add.4.3.{STAMP + turn}.csv", row("Output", 0, value))
    dump = read_dump(tmp_path)
    assert keys(dump) == ["loop_add:output.0", "loop_add#turn=1:output.0", "loop_add#turn=2:output.0"]
    assert [record.stats.max for record in dump.records if record.stats] == [5.0, 6.0, 7.0]
    assert dump.notes == ()


def test_two_raw_names_under_one_sanitised_name_are_turns_with_a_note(tmp_path: Path) -> None:
    table(tmp_path, f"0/Add.a_b.4.3.{STAMP + 1}.csv", row("Output", 0, 2.0))
    table(tmp_path, f"0/Add.a_b.9.3.{STAMP}.csv", row("Output", 0, 1.0))
    dump = read_dump(tmp_path)
    assert keys(dump) == ["a_b:output.0", "a_b#turn=1:output.0"]
    assert [record.task for record in dump.records] == [9, 4]
    (note,) = dump.notes
    assert "a_b" in note
    assert "several operators" in note


def test_raw_names_of_tensor_files_need_no_turns(tmp_path: Path) -> None:
    container(tmp_path, f"0/Add.a_b.4.3.{STAMP}", "a.b")
    container(tmp_path, f"0/Add.a_b.9.3.{STAMP + 1}", "a/b")
    assert keys(read_dump(tmp_path)) == ["a.b:output.0", "a/b:output.0"]


def test_a_sanitised_name_that_two_raw_ones_share_stays_as_it_is(tmp_path: Path) -> None:
    container(tmp_path, f"0/Add.a_b.4.3.{STAMP}", "a.b")
    container(tmp_path, f"0/Add.a_b.9.3.{STAMP + 1}", "a/b")
    table(tmp_path, f"0/Add.a_b.4.3.{STAMP + 2}.csv")
    dump = read_dump(tmp_path)
    assert keys(dump) == ["a.b:output.0", "a/b:output.0", "a_b:output.0"]
    assert not dump.raw_names


def test_slices_of_an_ffts_operator_are_counted_by_thread_and_not_by_time(tmp_path: Path) -> None:
    for time, thread in ((0, 1), (1, 0), (2, 0), (3, 1)):
        table(
            tmp_path, f"0/Add.lx.3.5.{STAMP + time}.4.1.{thread}.0.csv", row("Output", 0, 10 * time + thread)
        )
    found = {record.key.turn: record.stats.max for record in read_dump(tmp_path).records if record.stats}
    assert found == {0: 10.0, 1: 1.0, 2: 20.0, 3: 31.0}


def test_a_csv_and_a_tensor_file_of_one_execution_are_one_record(tmp_path: Path) -> None:
    table(tmp_path, f"0/Add.a_b.4.3.{STAMP}.csv", row("Input", 0, 9.5), row("Output", 1, 3.0))
    container(tmp_path, f"0/Add.a_b.4.3.{STAMP}", "a.b", inputs=1)
    table(tmp_path, f"0/Mul.a_b_c.5.3.{STAMP + 1}.csv")
    found = by_key(read_dump(tmp_path))
    assert list(found) == ["a.b:input.0", "a.b:output.0", "a.b:output.1", "a_b_c:output.0"]
    both = found["a.b:input.0"]
    assert both.payload is not None
    assert both.stats is not None
    assert (both.stats.max, both.stats.digits) == (9.5, 6)
    computed = found["a.b:output.0"].stats
    assert computed is not None
    assert (computed.max, computed.digits) == (2.0, None)
    assert found["a.b:output.1"].payload is None


def test_csv_files_get_the_raw_name_that_tensor_files_tell(tmp_path: Path) -> None:
    container(tmp_path, f"0/Add.a_b.4.3.{STAMP}", "a.b")
    table(tmp_path, f"0/Add.a_b.4.3.{STAMP + 5}.csv")
    dump = read_dump(tmp_path)
    assert keys(dump) == ["a.b:output.0", "a.b#turn=1:output.0"]


def test_records_appended_to_one_file_are_several_executions(tmp_path: Path) -> None:
    container(tmp_path, f"0/Add.a.4.3.{STAMP}", "a")
    container(tmp_path, f"0/Add.a.4.3.{STAMP}", "a", time=STAMP + 7)
    dump = read_dump(tmp_path)
    assert keys(dump) == ["a:output.0", "a#turn=1:output.0"]
    assert [record.time for record in dump.records] == [STAMP, STAMP + 7]


def test_equal_times_are_ordered_by_task_and_inputs_come_first(tmp_path: Path) -> None:
    table(tmp_path, f"0/B.b.2.3.{STAMP}.csv", row("Output", 0, 1), row("Input", 1, 1), row("Input", 0, 1))
    table(tmp_path, f"0/A.a.10.3.{STAMP}.csv")
    assert keys(read_dump(tmp_path)) == ["b:input.0", "b:input.1", "b:output.0", "a:output.0"]


def test_an_input_of_the_graph_stands_before_its_consumer(tmp_path: Path) -> None:
    table(tmp_path, f"0/Relu.first.3.7.{STAMP}.csv")
    table(tmp_path, f"0/Conv.conv.4.7.{STAMP + 1}.csv")
    table(tmp_path, f"0/Data.image.4.7.{STAMP + 2}.csv")
    table(tmp_path, f"0/Data.mask.3.7.{STAMP + 3}.csv")
    table(tmp_path, f"0/Data.unused.9.7.{STAMP + 4}.csv")
    assert [record.key.layer for record in read_dump(tmp_path).records] == [
        "mask",
        "first",
        "image",
        "conv",
        "unused",
    ]


def test_qualifiers_are_set_only_where_a_dump_has_more_than_one(tmp_path: Path) -> None:
    name = f"A.a.1.2.{STAMP}.csv"
    one = table(tmp_path / "one", f"20260101010101/3/net/17/5/{name}")
    assert keys(read_dump(one)) == ["a:output.0"]
    steps = table(tmp_path / "steps", f"20260101010101/3/net/17/5/{name}")
    table(steps, f"20260101010101/3/net/17/9/{name}")
    assert keys(read_dump(steps)) == ["a:output.0", "a#step=4:output.0"]
    loads = table(tmp_path / "loads", f"20260101010101/3/net/17/5/{name}")
    table(loads, f"20260101010101/3/net/4/2/A.a.1.2.{STAMP + 1}.csv")
    assert keys(read_dump(loads)) == ["a#load=1:output.0", "a:output.0"]
    models = table(tmp_path / "models", f"20260101010101/3/net/17/5/{name}")
    table(models, f"20260101010101/3/other/18/0/{name}")
    assert keys(read_dump(models)) == ["a#model=net:output.0", "a#model=other:output.0"]
    devices = table(tmp_path / "devices", f"20260101010101/0/net/1/0/{name}")
    table(devices, f"20260101010101/1/net/1/0/{name}")
    assert keys(read_dump(devices)) == ["a#device=0:output.0", "a#device=1:output.0"]


def test_ranks_of_torchair_are_told_by_rank_alone(tmp_path: Path) -> None:
    for rank in range(2):
        table(
            tmp_path,
            f"worldsize2_global_rank{rank}/2026010101010{rank}/{rank}/g/{11 + rank}/0/A.a.1.2.{STAMP}.csv",
        )
    assert keys(read_dump(tmp_path)) == ["a#rank=0:output.0", "a#rank=1:output.0"]


def test_trap_25_two_time_directories_of_one_run_are_one_dump(tmp_path: Path) -> None:
    table(tmp_path, f"20260101010101/0/net/1/0/A.a.1.2.{STAMP}.csv")
    table(tmp_path, f"20260101010101/20260101010105/0/A.a.1.2.{STAMP + 1}.csv")
    table(tmp_path, f"20260101010102/0/B.b.1.2.{STAMP + 2}.csv")
    assert keys(read_dump(tmp_path)) == ["a#model=net:output.0", "a:output.0", "b:output.0"]


def test_two_runs_in_one_path_are_an_error_that_names_both(tmp_path: Path) -> None:
    table(tmp_path, f"20260101010101/0/net/1/0/A.a.1.2.{STAMP}.csv", row("Output", 0, 1.0))
    table(tmp_path, f"20260101010101/0/net/1/0/B.b.1.2.{STAMP + 1}.csv", row("Output", 0, 1.0))
    table(tmp_path, f"20260101010102/20260101010103/0/C.c.1.2.{STAMP + 2}.csv")
    table(tmp_path, f"20260101020202/0/net/1/0/A.a.1.2.{STAMP + 9}.csv", row("Output", 0, 2.0))
    with pytest.raises(DumpError, match=r"two runs.*20260101010101 and .*20260101020202 hold the same"):
        read_dump(tmp_path)
    dump = read_dump(tmp_path, latest=True)
    assert [record.stats.max for record in dump.records if record.stats and record.key.layer == "a"] == [2.0]
    assert "b:output.0" not in keys(dump)
    assert any("20260101010101" in note for note in dump.notes)


@pytest.mark.parametrize("given", ["", "worldsize2_global_rank1"])
def test_two_runs_of_a_rank_are_named_by_directories_that_exist(tmp_path: Path, given: str) -> None:
    table(tmp_path, f"worldsize2_global_rank0/20260101010101/0/net/1/0/B.b.1.2.{STAMP}.csv")
    for number in range(2):
        table(
            tmp_path, f"worldsize2_global_rank1/2026010101010{number}/0/net/1/0/A.a.1.2.{STAMP + number}.csv"
        )
    with pytest.raises(DumpError, match="two runs in one dump") as caught:
        read_dump(tmp_path / given)
    named = re.findall(r"(/\S+/2026\d+)", str(caught.value))
    assert named == [
        str(tmp_path / "worldsize2_global_rank1" / f"2026010101010{number}") for number in range(2)
    ]
    assert all(Path(path).is_dir() for path in named)


def test_dumps_without_a_known_name_take_no_part_in_telling_runs_apart(tmp_path: Path) -> None:
    container(tmp_path, "20260101010101/0/first", "a")
    container(tmp_path, "20260101020202/0/second", "b")
    assert keys(read_dump(tmp_path)) == ["a:output.0", "b:output.0"]


def test_the_latest_run_is_the_one_dumped_last_and_not_the_last_by_name(tmp_path: Path) -> None:
    table(tmp_path, f"z_old/20260101010101/0/A.a.1.2.{STAMP}.csv", row("Output", 0, 1.0))
    table(tmp_path, f"a_new/20260101010101/0/A.a.1.2.{STAMP + 9}.csv", row("Output", 0, 2.0))
    (record,) = read_dump(tmp_path, latest=True).records
    assert record.stats is not None
    assert record.stats.max == 2.0


def test_statistics_and_tensors_of_two_runs_are_not_mixed(tmp_path: Path) -> None:
    table(tmp_path, f"20260101010101/0/net/1/0/A.a.1.2.{STAMP}.csv")
    container(tmp_path, f"20260101020202/0/net/1/0/A.a.1.2.{STAMP + 9}", "a")
    with pytest.raises(DumpError, match="two runs"):
        read_dump(tmp_path)
    assert [record.payload is None for record in read_dump(tmp_path, latest=True).records] == [False]


def test_directories_of_mindspore_s_asynchronous_dump_tell_the_steps(tmp_path: Path) -> None:
    for at, layout in enumerate(("0", "0/3", "0/net/1/3", "0/1/3")):
        root = tmp_path / str(at)
        for step in (5, 6, 9):
            table(root, f"{step}/2026010101010{step}/{layout}/A.a.1.2.{STAMP + step}.csv")
        assert keys(read_dump(root)) == ["a:output.0", "a#step=1:output.0", "a#step=4:output.0"], layout
        table(root, f"6/20260101020202/{layout}/A.a.1.2.{STAMP + 99}.csv")
        with pytest.raises(DumpError, match="two runs"):
            read_dump(root)


def test_steps_are_counted_by_the_process_and_executions_in_a_step_are_turns(tmp_path: Path) -> None:
    table(tmp_path, f"5/20260101010101/0/A.a.1.2.{STAMP}.csv")
    for number, iteration in enumerate((7, 8)):
        table(tmp_path, f"6/20260101010102/0/net/1/{iteration}/B.b.1.2.{STAMP + 5 + number}.csv")
    assert keys(read_dump(tmp_path)) == [
        "a:output.0",
        "b#model=net,step=1:output.0",
        "b#model=net,step=1,turn=1:output.0",
    ]


def test_a_later_directory_with_an_earlier_step_is_a_second_run(tmp_path: Path) -> None:
    for at, step in enumerate((5, 6, 7, 5, 6)):
        table(tmp_path, f"{step}/2026010101010{at}/0/A.a.1.2.{STAMP + at}.csv", row("Output", 0, at))
    dump = read_dump(tmp_path, latest=True)
    assert [record.stats.max for record in dump.records if record.stats] == [3, 4]
    apart = tmp_path / "apart"
    for at, step in enumerate((5, 3)):
        table(apart, f"{step}/2026010101010{at}/0/A.a.1.2.{STAMP + at}.csv")
    with pytest.raises(DumpError, match="two runs"):
        read_dump(apart)


def test_merged_statistics_of_two_runs_are_not_mixed(tmp_path: Path) -> None:
    head = (
        "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value\n"
    )
    for at in range(2):
        folder = tmp_path / f"5/2026010101010{at}/0"
        folder.mkdir(parents=True)
        (folder / "statistic.csv").write_text(
            f'{head}A,a,1,2,{STAMP + at},output,0,4,float32,"(1,)",{at},{at}\n'
        )
    with pytest.raises(DumpError, match="two runs"):
        read_dump(tmp_path)
    (record,) = read_dump(tmp_path, latest=True).records
    assert record.stats is not None
    assert record.stats.max == 1


def test_a_capture_replayed_gives_turns(tmp_path: Path) -> None:
    for number in range(2):
        container(tmp_path, f"20260101010101/0/Add.net.x.{number}.4.3.{STAMP + number}", "net.x")
    assert keys(read_dump(tmp_path)) == ["net.x:output.0", "net.x#turn=1:output.0"]


def test_files_that_cannot_be_read_are_problems_and_cost_no_others(tmp_path: Path) -> None:
    table(tmp_path, f"0/A.a.1.2.{STAMP}.csv")
    (tmp_path / "0" / f"B.b.1.2.{STAMP}.csv").write_text(HEADER + "Input,0,8\n")
    (tmp_path / "0" / f"C.c.1.2.{STAMP}").write_bytes(b"\xff" * 7)
    (tmp_path / "0" / f"D.d.1.2.{STAMP}").write_bytes(struct.pack("<Q", 2**62) + b"\x0a\x032.0")
    table(tmp_path, f"0/E.e.1.2.{STAMP}.csv", row("Output", 0, 1), row("Output", 0, 2))
    dump = read_dump(tmp_path)
    assert keys(dump) == ["a:output.0"]
    assert sorted(Path(problem.path).name[0] for problem in dump.problems) == ["B", "C", "D", "E"]
    located = {Path(problem.path).name[0]: problem.offset for problem in dump.problems}
    assert located["B"] == len(HEADER)
    assert located["D"] == 0


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
        tensor = message.output.add()
        tensor.data_type, tensor.format, tensor.size, tensor.address = kind, 2, 4, 4096
        tensor.shape.dim.extend(dims)
    header = message.SerializeToString()
    path = tmp_path / f"A.a.1.2.{STAMP}"
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<4f", 1, 2, 3, 4))
    dump = read_dump(tmp_path)
    good, small, text, unknown = dump.records
    assert good.stats is not None
    assert good.stats.max == 1.0
    assert small.stats is None
    (problem,) = dump.problems
    assert "output 1" in problem.reason
    assert (text.dtype, text.stats) == ("string", None)
    assert "no numeric meaning" in text.note
    assert (unknown.dtype, unknown.stats) == ("proto:99", None)
    assert "not known" in unknown.note


def test_a_type_the_device_has_no_statistics_for_says_so() -> None:
    record = next(
        record for record in read_dump(DATA / "acl-dtypes" / "27_BF16", acl=True).records if record.payload
    )
    assert (record.dtype, record.stats) == ("bfloat16", None)
    assert record.note == "CANN computes no statistics for bfloat16"


def test_both_files_of_a_pair_may_be_damaged(tmp_path: Path) -> None:
    table(tmp_path, f"0/A.a.1.2.{STAMP}.csv")
    container(tmp_path, f"0/A.b.1.2.{STAMP}", "b")
    (tmp_path / "0" / f"A.b.1.2.{STAMP}.csv").write_text("broken")
    np.save(tmp_path / "0" / f"Add.n.0.0.{STAMP}.output.0.DefaultFormat.npy", np.float32([1]))
    dump = read_dump(tmp_path)
    assert sorted(keys(dump)) == ["a:output.0", "b:output.0", "n:output.0"]
    (problem,) = dump.problems
    assert problem.path.endswith(".csv")


def test_an_input_error_of_the_disk_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> object:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("pytest_npudump.dump.files.container.read_container", fail)
    container(tmp_path, f"A.a.1.2.{STAMP}", "a")
    (problem,) = read_dump(tmp_path).problems
    assert "Input/output error" in str(problem)


def test_an_empty_dump_is_an_error_with_likely_causes(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"holds nothing.*loaded before the dump was set"):
        read_dump(tmp_path)
    (tmp_path / "plog.txt").write_text("")
    with pytest.raises(DumpError, match=r"holds only plog\.txt"):
        read_dump(tmp_path)
    with pytest.raises(DumpError, match="does not exist"):
        read_dump(tmp_path / "gone")


def test_a_dump_of_overflow_records_alone_is_not_empty() -> None:
    dump = read_dump(DATA / "acl-overflow")
    assert dump.records == ()
    assert any("1 overflow records" in note and "Node_OpDebug" in note for note in dump.notes)


def test_files_that_are_no_dump_files_are_listed(tmp_path: Path) -> None:
    table(tmp_path, f"0/A.a.1.2.{STAMP}.csv")
    for number in range(7):
        (tmp_path / f"{number}.json").write_text("{}")
    (note,) = read_dump(tmp_path).notes
    assert note.startswith("7 files that are no dump files were not read: 0.json, 1.json")
    assert note.endswith("and 2 more")


def test_a_tensor_file_under_a_hash_that_nothing_explains_is_a_problem_unless_its_header_names_it(
    tmp_path: Path,
) -> None:
    long = "m" * 300
    short = libstdcxx_hash(long.encode())
    container(tmp_path, f"0/{short}", "")
    (problem,) = read_dump(tmp_path).problems
    assert f"{short}: its name tells no operator, and no mapping.csv beside it does" in str(problem)
    (tmp_path / "0" / "mapping.csv").write_text(f"{short},{long}\n")
    assert keys(read_dump(tmp_path)) == [f"{long}:output.0"]
    (tmp_path / "0" / "mapping.csv").unlink()
    container(tmp_path / "named", f"0/{short}", "net/Add")
    assert keys(read_dump(tmp_path / "named")) == ["net/Add:output.0"]
    container(tmp_path / "custom", "0/my_tensors", "")
    assert keys(read_dump(tmp_path / "custom")) == ["my_tensors:output.0"]


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_reads_the_same_records(
    pool: type[ThreadPoolExecutor | ProcessPoolExecutor],
) -> None:
    for tree in ("acl-stats", "acl-tensor", "mindspore-dtypes"):
        alone = read_dump(DATA / tree)
        with pool(2) as executor:
            assert read_dump(DATA / tree, executor=executor).records == alone.records


def test_progress_counts_files_up_to_all_of_them() -> None:
    seen: list[tuple[int, int]] = []
    read_dump(DATA / "acl-tensor", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_torchair_s_tensors_in_lists_get_slots_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "worldsize1_global_rank0" / "gm_20260101010101123456_dump" / "0"
    folder.mkdir(parents=True)
    for tail in ("INPUT.0.0", "INPUT.0.1", "INPUT.1", "OUTPUT.0"):
        np.save(folder / f"cat-aten.cat.default.{tail}.20260101123456789012.npy", np.float32([len(tail)]))
    dump = read_dump(tmp_path)
    assert keys(dump) == ["cat:input.0", "cat:input.1", "cat:input.2", "cat:output.0"]
    assert [record.op_type for record in dump.records] == ["aten.cat.default"] * 4


def test_unreadable_directories_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path, f"0/A.a.1.2.{STAMP}.csv")
    (tmp_path / "1").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("1"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    (problem,) = read_dump(tmp_path).problems
    assert "Permission denied" in str(problem)


def test_the_quirks_of_the_device_are_computed_on_demand(tmp_path: Path) -> None:
    path = tmp_path / f"A.a.1.2.{STAMP}"
    container(tmp_path, path.name, "a")
    path.write_bytes(path.read_bytes()[:-4] + struct.pack("<f", math.nan))
    (quirky,) = read_dump(tmp_path, acl=True).records
    assert quirky.stats is not None
    assert quirky.stats.max is not None
    assert math.isnan(quirky.stats.max)


def test_statistics_files_are_read_without_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = next((DATA / "acl-stats").rglob("*.csv")).read_text()
    for number in range(600):
        folder = tmp_path / "20260101010101" / "0" / "net" / "1" / "0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"Add.layer_{number}.{number}.3.{1795228705000000 + number}.csv").write_text(text)
    with ThreadPoolExecutor(2) as executor:
        monkeypatch.setattr(executor, "map", None)
        dump = read_dump(tmp_path, executor=executor, workers=2)
    assert dump.records == read_dump(tmp_path).records
    assert {record.key.layer for record in dump.records} == {f"layer_{number}" for number in range(600)}
