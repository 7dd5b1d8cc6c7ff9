from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from pytest_npudump.dump.names import Place, context, parse_converted, parse_name, read_place, split_watcher
from tests.dump.conftest import DATA, STAMP, stamped

sanitised = st.text(st.sampled_from("aZ09_@-%#é名\u2028 \U0001f600"), min_size=1, max_size=20).filter(
    str.strip
)
raw = st.text(st.sampled_from("aZ09_@-%#é名./\\ \U0001f600"), min_size=1, max_size=20)
ids = st.integers(0, 2**32 - 1)
stamps = st.integers(10**15, 10**16 - 1)


def test_every_dump_file_of_the_real_trees_is_known() -> None:
    unknown = {
        path.name
        for path in DATA.rglob("*")
        if path.is_file() and parse_name(path.name) is None and path.parent.name != "acl-stats-host"
    }
    assert unknown == {
        *("17662089044247037585", "3343330985831579852", "410769277.npy", "454306933.npy", "op.1.2"),
        *("mapping.csv", "statistic.csv", "config.json", "data_dump.json"),
        "Opdebug.Node_OpDebug.7.2.1795229153283277.output.0.json",
        *(f"ms_execution_order_graph_{graph}.csv" for graph in range(7)),
        "ms_global_execution_order_graph_0.csv",
    }


PLAIN = {
    "suffix": "",
    "dump_number": None,
    "ffts": None,
    "io": "",
    "slot": -1,
    "part": None,
    "format": "",
    "dtype": "",
}
"""What a name says where it says no more."""

TOLD = [
    # Trap 21: from the right, by the number of fields.
    ("Conv2D.net_conv1.12.34.T0", "operator Conv2D net_conv1 12 34", {"time": STAMP, "stamp": str(STAMP)}),
    (
        "Pooling.MaxPool_3.5.1612779097467502",
        "operator Pooling MaxPool_3 5 None",
        {"time": 1612779097467502, "stamp": "1612779097467502"},
    ),
    ("MatMul.net/block_1/mat.mul.7.12.34.T0", "capture MatMul net/block_1/mat.mul 12 34", {"dump_number": 7}),
    ("Add.lx.3.5.1795228705898763.4.1.2.0", "operator Add lx 3 5", {"ffts": (1, 2, 0)}),
    (
        "aclnnBatchMatMul_0_L2.aclnnBatchMatMul.65535.65535.T0.csv",
        "operator aclnnBatchMatMul_0_L2 aclnnBatchMatMul 65535 65535",
        {"suffix": ".csv"},
    ),
    # Trap 22: the literal 4 is a task type and no context id.
    ("Add.lx.3.5.T0.4.10.11.12.csv", "operator Add lx 3 5", {"ffts": (10, 11, 12), "suffix": ".csv"}),
    # Trap 23: names of captures are not sanitised, and end in a word for FFTS+.
    (
        "MatMul.a.b_c\\d.0.3.5.T0.FFTSPLUS.1.2.0",
        "capture MatMul a.b_c\\d 3 5",
        {"dump_number": 0, "ffts": (1, 2, 0)},
    ),
    # Trap 27: stamps of 16, 17 and 20 digits are times; date -u -d '2026-01-01 12:34:56' +%s.
    (
        "MatMul.net_mm.5.20260101123456789",
        "exception MatMul net_mm 5 None",
        {"time": 1_767_270_896_789_000, "stamp": "20260101123456789"},
    ),
    (
        "add_1-aten.add.Tensor.INPUT.0.1.20260101123456789012.npy",
        "torchair aten.add.Tensor add_1 None None",
        {"time": 1_767_270_896_789_012, "suffix": ".npy", "io": "input", "slot": 0, "part": 1},
    ),
    ("exception_info.42.1.1726159207469285", "exception - exception_info 1 42", {"time": 1726159207469285}),
    # Trap 28: the type behind MindSpore's format is optional, and of any case.
    (
        "MatMul.Default_fc1-Dense_MatMul-op0.0.0.T0.input.1.DefaultFormat.BFloat16.npy",
        "mindspore MatMul Default_fc1-Dense_MatMul-op0 0 0",
        {"suffix": ".npy", "io": "input", "slot": 1, "format": "DefaultFormat", "dtype": "BFloat16"},
    ),
    (
        "Parameter.conv1.bias.0.0.T0.output.0.DefaultFormat.npy",
        "mindspore Parameter conv1.bias 0 0",
        {"suffix": ".npy", "io": "output", "slot": 0, "format": "DefaultFormat"},
    ),
    ("display.7.3.AIC.24.20260101123456789", "exception - display.AIC.24 3 7", {}),
    ("MatMul_v2.mix.47.102521368.1.24.20260910085237489", "exception - MatMul_v2.mix.1.24 102521368 47", {}),
    ("my.op.custom.20260101123456789", "exception - my.op None None", {}),
    (
        "te_gatherv2_657c_1__kernel0.47.3.20260910085237489.core",
        "core - te_gatherv2_657c_1__kernel0 3 47",
        {"suffix": ".core"},
    ),
    ("Opdebug.Node_OpDebug.7.2.1795229153283277", "opdebug Opdebug Node_OpDebug 7 2", {}),
    ("Opdebug.Node_OpDebug.7.1795229153283277", "opdebug Opdebug Node_OpDebug 7 None", {}),
]


@pytest.mark.each(("name", "said", "more"), TOLD)
def test_what_a_name_says(name: str, said: str, more: dict[str, object]) -> None:
    found = parse_name(stamped(name))
    assert found is not None
    fields = found.kind, found.op_type or "-", found.op_name, found.task, found.stream
    assert " ".join(map(str, fields)) == said
    expected = PLAIN | more
    assert {field: getattr(found, field) for field in expected} == expected


@pytest.mark.each(
    "name",
    [
        *("", ".", "....", "statistic.csv", "mapping.csv", "Conv2D", "T0", "Conv2D.T0", "Conv2D.a.T0"),
        *(".a.1.2.T0", "Conv2D..1.2.T0", "Conv2D.a.1.x.T0", "Conv2D.a.1.-2.T0", "Conv2D.a.1.2.T0.txt"),
        *("Conv2D.a.1.2.T0.csv.csv", "Conv2D.a.1.2.T0.output.0.npy", "Conv2D.a.1.2.T0.output.0.2x3.npy"),
        *("Conv2D.a.1.2.T0\n", "Conv2D.a.\u0661.2.T0", "Conv2D.a.1.2.123", f"Conv2D.a.1.2.1{STAMP}0"),
        *("Add.lx.3.5.T0.5.10.11.12", "k.47.3.1.24.20261301123456789", "kernel.47.20260910085237489.core"),
        "kernel.47.3.20261310085237489.core",
        *(
            name + stamp
            for name in ("MatMul.net_mm.5.", "exception_info.42.1.", "x.custom.")
            for stamp in ("20261301123456789", "20260132123456789", "20260101243456789", "0" * 17)
        ),
    ],
)
def test_other_names_are_no_dump_files(name: str) -> None:
    assert parse_name(stamped(name)) is None


def test_trap_26_a_watcher_s_output_is_told_by_both_of_its_names() -> None:
    layers, nodes = {"A", "B_To_C"}, {"C", "D"}
    assert split_watcher("A_To_C", layers, nodes) == ("A", "C")
    assert split_watcher("B_To_C_To_D", layers, nodes) == ("B_To_C", "D")
    assert split_watcher("Cast_To_C", layers, nodes) is None
    assert split_watcher("A_To_B", layers, nodes) is None


@given(sanitised, sanitised, raw, st.tuples(ids, ids, ids), stamps)
def test_any_name_comes_back(
    op_type: str, op_name: str, other: str, numbers: tuple[int, int, int], stamp: int
) -> None:
    number, task, stream = numbers
    found = parse_name(f"{op_type}.{op_name}.{task}.{stream}.{stamp}")
    assert found is not None
    assert (found.op_type, found.op_name, found.task, found.stream) == (op_type, op_name, task, stream)
    assert found.time == stamp
    found = parse_name(f"{op_type}.{other}.{number}.{task}.{stream}.{stamp}")
    assert found is not None
    assert (found.kind, found.op_name, found.dump_number, found.task) == ("capture", other, number, task)


@settings(max_examples=100)
@given(st.text("a.0129_-@\n", max_size=60))
def test_no_name_makes_the_parser_fail(name: str) -> None:
    found = parse_name(name)
    assert found is None or found.time >= 0


ADD = "Add.net_add.3.5.T0"


@pytest.mark.each(
    ("name", "op_name", "io", "slot", "part"),
    [
        (f"{ADD}.output.0.npy", "net_add", "output", 0, None),
        (f"{ADD}.input.12.npy", "net_add", "input", 12, None),
        (f"{ADD}.workspace.1.npy", "net_add", "workspace", 1, None),
        (f"{ADD}.output.0.2x3.npy", "net_add", "output", 0, None),
        (f"{ADD}.output.0.6.npy", "net_add", "output", 0, 6),
        (f"{ADD}.4.1.2.0.output.0.npy", "net_add", "output", 0, None),
        ("Add.net/x.0.4.3.T0.output.1.npy", "net/x", "output", 1, None),
        ("Add.net_add.3.20261120080910123.input.0.npy", "net_add", "input", 0, None),
    ],
)
def test_names_of_converted_tensors_tell_dump_file_and_tensor(
    name: str, op_name: str, io: str, slot: int, part: int | None
) -> None:
    found = parse_converted(stamped(name))
    assert found is not None
    assert (found.op_type, found.op_name, found.io, found.slot, found.part) == (
        "Add",
        op_name,
        io,
        slot,
        part,
    )


@pytest.mark.each(
    "name",
    [
        *(ADD, f"{ADD}.npy", f"{ADD}.output.npy", f"{ADD}.output.0.bin", f"{ADD}.csv.output.0.npy"),
        *(f"{ADD}.output.0.2x.npy", f"{ADD}.output.0.npy.output.0.npy", "x.output.0.npy"),
        *("Opdebug.Node_OpDebug.3.5.T0.output.0.npy", "k.2.3.20261120080910123.core.output.0.npy"),
    ],
)
def test_other_names_are_none_of_converted_tensors(name: str) -> None:
    assert parse_converted(stamped(name)) is None


T = "20260101010101"


@pytest.mark.each(
    ("directories", "place"),
    [
        ("", Place()),
        (f"{T}/0", Place((T,), device=0)),
        (f"{T}/3/net/7/2", Place((T,), -1, 3, "net", 7, 2)),
        (f"{T}/3/7/net/2", Place((T,), -1, 3, "net", 7, 2)),  # trap 25: the TLV writer swaps the two
        (f"{T}/3/net/7", Place((T,), -1, 3, "net", 7)),
        (f"{T}/3/2", Place((T,), device=3, iteration=2)),
        ("3/net/7/2", Place((), -1, 3, "net", 7, 2)),
        (f"worldsize8_global_rank5/{T}/5/graph_1/11/2", Place((T,), 5, 5, "graph_1", 11, 2)),
        (f"worldsize2_global_rank1/gm_{T}123456_dump/4", Place((f"gm_{T}123456_dump",), rank=1, step=4)),
        ("rank_2/LeNet/0/9", Place((), 2, -1, "LeNet", 0, step=9, mindspore=True)),
        ("rank_2/LeNet/0/constants", Place((), 2, -1, "LeNet", 0, mindspore=True)),
        (f"rank_2/{T}/step_3", Place((T,), rank=2, step=3)),
        (f"rank_2/{T}/step_3/20260101010102/1/net/7/0", Place((T, "20260101010102"), 2, 1, "net", 7, 0, 3)),
        (f"{T}/20260101010105/0", Place((T, "20260101010105"), device=0)),
        (f"6/{T}/0", Place((T,), device=0, step=6)),
        (f"6/{T}/0/2", Place((T,), device=0, iteration=2, step=6)),
        (f"6/{T}/0/net/7/2", Place((T,), -1, 0, "net", 7, 2, 6)),
        (f"6/{T}/0/7/2", Place((T,), -1, 0, "", 7, 2, 6)),
        ("rank_2/1733905446819790/step_3", Place(("1733905446819790",), rank=2, step=3)),
        ("pid4711/device2", Place(("pid4711",), device=2)),
        ("extra-info/data-dump/1", Place(device=1)),
    ],
)
def test_directories_say_what_every_writer_s_layout_means(directories: str, place: Place) -> None:
    assert read_place(directories.split("/") if directories else ()) == place


def test_a_date_above_the_dump_path_is_not_taken_for_its_time() -> None:
    assert context(("/", T, "job", "dump")) == ()
    assert context(("/", "x", T, "0")) == (T, "0")
    assert context(("/", "rank_3", "net", "0")) == ("rank_3", "net", "0")
