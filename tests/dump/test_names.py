from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.dump.names import DumpName, parse_name, split_watcher

DATA = Path(__file__).parents[1] / "data" / "trees"
STAMP = 1795228705872229

sanitised = st.text(st.characters(codec="utf-8", exclude_characters="./\\ \0"), min_size=1, max_size=40)
raw = st.text(st.characters(codec="utf-8", exclude_characters="\0\n"), min_size=1, max_size=40)
ids = st.integers(0, 2**32 - 1)
stamps = st.integers(10**15, 10**16 - 1)


def test_every_dump_file_of_the_real_trees_is_known() -> None:
    unknown = {
        path.name
        for path in DATA.rglob("*")
        if path.is_file() and parse_name(path.name) is None and path.parent.name != "acl-stats-host"
    }
    assert unknown == {
        "17662089044247037585",
        "3343330985831579852",
        "410769277.npy",
        "454306933.npy",
        "op.1.2",
        "mapping.csv",
        "statistic.csv",
        "config.json",
        "data_dump.json",
        "Opdebug.Node_OpDebug.7.2.1795229153283277.output.0.json",
        *(f"ms_execution_order_graph_{graph}.csv" for graph in range(7)),
        "ms_global_execution_order_graph_0.csv",
    }


def test_trap_21_names_are_parsed_from_the_right_by_their_number_of_fields() -> None:
    assert parse_name(f"Conv2D.net_conv1.12.34.{STAMP}") == DumpName(
        "operator", "Conv2D", "net_conv1", 12, 34, STAMP, str(STAMP)
    )
    old = parse_name("Pooling.MaxPool_3.5.1612779097467502")
    assert old == DumpName("operator", "Pooling", "MaxPool_3", 5, None, 1612779097467502, "1612779097467502")
    capture = parse_name(f"MatMul.net/block 1/mat.mul.7.12.34.{STAMP}")
    assert capture == DumpName(
        "capture", "MatMul", "net/block 1/mat.mul", 12, 34, STAMP, str(STAMP), dump_number=7
    )
    slice_of_ffts = parse_name("Add.lx.3.5.1795228705898763.4.1.2.0")
    assert slice_of_ffts is not None
    assert (slice_of_ffts.task, slice_of_ffts.stream, slice_of_ffts.ffts) == (3, 5, (1, 2, 0))
    exception = parse_name("MatMul.net_mm.5.20260101123456789")
    assert exception is not None
    assert (exception.kind, exception.op_name, exception.task, exception.stream) == (
        "exception",
        "net_mm",
        5,
        None,
    )


def test_trap_22_the_literal_4_is_a_task_type_and_no_context_id() -> None:
    found = parse_name(f"Add.lx.3.5.{STAMP}.4.10.11.12.csv")
    assert found is not None
    assert found.ffts == (10, 11, 12)
    assert found.suffix == ".csv"
    assert parse_name(f"Add.lx.3.5.{STAMP}.5.10.11.12") is None


def test_trap_23_capture_names_are_not_sanitised_and_end_in_a_word_for_ffts() -> None:
    found = parse_name(f"MatMul.a.b c\\d.0.3.5.{STAMP}.FFTSPLUS.1.2.0")
    assert found is not None
    assert (found.kind, found.op_name, found.dump_number, found.ffts) == ("capture", "a.b c\\d", 0, (1, 2, 0))


def test_trap_26_a_watcher_s_output_is_told_by_both_of_its_names() -> None:
    layers, nodes = {"A", "B_To_C"}, {"C", "D"}
    assert split_watcher("A_To_C", layers, nodes) == ("A", "C")
    assert split_watcher("B_To_C_To_D", layers, nodes) == ("B_To_C", "D")
    assert split_watcher("Cast_To_C", layers, nodes) is None
    assert split_watcher("A_To_B", layers, nodes) is None


def test_trap_27_stamps_of_16_17_and_20_digits_are_times() -> None:
    exception = parse_name("MatMul.net_mm.5.20260101123456789")
    assert exception is not None
    assert exception.time == 1_767_270_896_789_000  # date -u -d '2026-01-01 12:34:56' +%s
    assert exception.stamp == "20260101123456789"
    torchair = parse_name("add_1-aten.add.Tensor.INPUT.0.1.20260101123456789012.npy")
    assert torchair == DumpName(
        "torchair",
        "aten.add.Tensor",
        "add_1",
        None,
        None,
        1_767_270_896_789_012,
        "20260101123456789012",
        ".npy",
        io="input",
        slot=0,
        part=1,
    )
    brief = parse_name("exception_info.42.1.1726159207469285")
    assert brief is not None
    assert (brief.kind, brief.stream, brief.task, brief.time) == ("exception", 42, 1, 1726159207469285)


@pytest.mark.parametrize("stamp", ["20261301123456789", "20260132123456789", "20260101243456789", "0" * 17])
def test_seventeen_digits_that_are_no_date_are_no_stamp(stamp: str) -> None:
    assert parse_name(f"MatMul.net_mm.5.{stamp}") is None
    assert parse_name(f"exception_info.42.1.{stamp}") is None
    assert parse_name(f"x.custom.{stamp}") is None


def test_trap_28_the_type_behind_mindspore_s_format_is_optional_and_of_any_case() -> None:
    new = parse_name(f"MatMul.Default_fc1-Dense_MatMul-op0.0.0.{STAMP}.input.1.DefaultFormat.BFloat16.npy")
    assert new is not None
    assert (new.kind, new.op_name, new.io, new.slot, new.format, new.dtype) == (
        "mindspore",
        "Default_fc1-Dense_MatMul-op0",
        "input",
        1,
        "DefaultFormat",
        "BFloat16",
    )
    old = parse_name(f"Parameter.conv1.bias.0.0.{STAMP}.output.0.DefaultFormat.npy")
    assert old is not None
    assert (old.op_type, old.op_name, old.dtype) == ("Parameter", "conv1.bias", "")


def test_older_single_operators_carry_65535_for_both_ids() -> None:
    found = parse_name("aclnnBatchMatMul_0_L2.aclnnBatchMatMul.65535.65535.1725960383079645.csv")
    assert found is not None
    assert (found.op_type, found.task, found.stream) == ("aclnnBatchMatMul_0_L2", 65535, 65535)


def test_exception_dumps_of_a_callback_and_of_a_custom_name() -> None:
    callback = parse_name("display.7.3.AIC.24.20260101123456789")
    assert callback is not None
    assert (callback.op_name, callback.stream, callback.task) == ("display.AIC.24", 7, 3)
    named = parse_name("MatMul v2.mix.47.102521368.1.24.20260910085237489")
    assert named is not None
    assert (named.kind, named.op_name, named.stream, named.task) == (
        "exception",
        "MatMul v2.mix.1.24",
        47,
        102521368,
    )
    assert parse_name("k.47.3.1.24.20261301123456789") is None
    custom = parse_name("my.op.custom.20260101123456789")
    assert custom is not None
    assert (custom.op_type, custom.op_name, custom.task) == ("", "my.op", None)


def test_the_core_of_a_kernel_names_stream_and_task() -> None:
    found = parse_name("te_gatherv2_657c_1__kernel0.47.3.20260910085237489.core")
    assert found is not None
    assert (found.kind, found.op_name, found.stream, found.task, found.suffix) == (
        "core",
        "te_gatherv2_657c_1__kernel0",
        47,
        3,
        ".core",
    )
    assert parse_name("kernel.47.20260910085237489.core") is None
    assert parse_name("kernel.47.3.20261310085237489.core") is None


def test_overflow_records_are_told_from_operators() -> None:
    for name in ("Opdebug.Node_OpDebug.7.2.1795229153283277", "Opdebug.Node_OpDebug.7.1795229153283277"):
        found = parse_name(name)
        assert found is not None
        assert found.kind == "opdebug"


@pytest.mark.each(
    "name",
    [
        "",
        ".",
        "....",
        "statistic.csv",
        "mapping.csv",
        "Conv2D",
        f"{STAMP}",
        f"Conv2D.{STAMP}",
        f"Conv2D.a.{STAMP}",
        f".a.1.2.{STAMP}",
        f"Conv2D..1.2.{STAMP}",
        f"Conv2D.a.1.x.{STAMP}",
        f"Conv2D.a.1.-2.{STAMP}",
        f"Conv2D.a.1.2.{STAMP}.txt",
        f"Conv2D.a.1.2.{STAMP}.csv.csv",
        f"Conv2D.a.1.2.{STAMP}.output.0.npy",
        f"Conv2D.a.1.2.{STAMP}.output.0.2x3.npy",
        f"Conv2D.a.1.2.{STAMP}\n",
        f"Conv2D.a.\u0661.2.{STAMP}",
        "Conv2D.a.1.2.123",
        f"Conv2D.a.1.2.1{STAMP}0",
    ],
)
def test_other_names_are_no_dump_files(name: str) -> None:
    assert parse_name(name) is None


@given(sanitised, sanitised, ids, ids, stamps)
def test_any_sanitised_operator_name_comes_back(
    op_type: str, op_name: str, task: int, stream: int, stamp: int
) -> None:
    name = f"{op_type}.{op_name}.{task}.{stream}.{stamp}"
    if name.startswith(("exception_info.", "display.")):
        return
    found = parse_name(name)
    assert found is not None
    assert (found.op_type, found.op_name, found.task, found.stream, found.time) == (
        op_type,
        op_name,
        task,
        stream,
        stamp,
    )


@given(sanitised, raw, st.tuples(ids, ids, ids), stamps)
def test_any_capture_name_comes_back(
    op_type: str, op_name: str, numbers: tuple[int, int, int], stamp: int
) -> None:
    number, task, stream = numbers
    name = f"{op_type}.{op_name}.{number}.{task}.{stream}.{stamp}"
    if name.startswith(("exception_info.", "display.")):
        return
    found = parse_name(name)
    assert found is not None
    assert (found.kind, found.op_name, found.dump_number, found.task) == ("capture", op_name, number, task)


@given(st.text(max_size=120))
def test_no_name_makes_the_parser_fail(name: str) -> None:
    found = parse_name(name)
    assert found is None or found.time >= 0
