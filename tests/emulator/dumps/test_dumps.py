"""What a dump of a small model holds under every key of the configuration."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytest_npudump.dump.records import sanitise
from pytest_npudump.emulator.dumps.recorder import DumpSettings, plan, settings
from pytest_npudump.onnxmodels.graph import Operator
from pytest_npudump.onnxmodels.sessions import prepare

ARRAY = np.array([[1, 2, 3], [-4, 5, -6]], np.float32)
EVERY = {"Add.Add_0", "Add.Add_1", "Mul.scale", "Relu.block_relu_1", "Data.x"}


class Dumping:
    """A dump that is on, and the small model or others run under it."""

    def __init__(self, set_dump: Callable[..., Path], program: Any, run_model: Any, model: Path) -> None:
        self.set, self.program, self.run_model, self.model = set_dump, program, run_model, model
        self.mdl = program.acl.mdl

    def __call__(self, *, model: Path | None = None, **keys: Any) -> dict[str, Path]:
        """Run a model once under a configuration; return files by type and name."""
        root = self.set(**keys)
        self.run(self.load(model))
        return files(root)

    def load(self, model: Path | None = None) -> int:
        number: int = self.program.load(model or self.model)
        return number

    def run(self, *models: int, factor: float = 1) -> None:
        for number in models:
            self.run_model(number, ARRAY * np.float32(factor))


@pytest.fixture
def dump(set_dump: Callable[..., Path], program: Any, small_model: Path, run_model: Any) -> Dumping:
    return Dumping(set_dump, program, run_model, small_model)


@pytest.fixture
def save(save_graph: Any) -> Callable[..., Path]:
    """Write a model of these nodes, from x to y, both float32 [2, 3]."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    return lambda *nodes, weights=(): save_graph(helper.make_graph(nodes, "g", [x], [y], weights), "g.onnx")


def files(root: Path) -> dict[str, Path]:
    return {".".join(path.name.split(".")[:2]): path for path in root.rglob("*") if path.is_file()}


def test_default_is_one_file_an_operator_with_its_outputs(dump: Dumping, wire: Any) -> None:
    found = dump()
    assert set(found) == EVERY
    relu = wire.read(found["Relu.block_relu_1"])
    assert relu.version == "2.0"
    assert relu.op_name == "block/relu.1"
    assert relu.inputs == ()
    (output,) = relu.outputs
    assert (output.dtype, output.format, output.shape, output.size) == (1, 2, (2, 3), 24)
    assert output.data == np.maximum(ARRAY * [1, -2, 0.5], 0).astype(np.float32).tobytes()


def test_path_is_time_device_model_id_and_data_index(dump: Dumping, small_model: Path) -> None:
    path = dump()["Mul.scale"]
    level = path.parent
    assert level.name == "0"
    assert [p.name for p in (level.parent, level.parent.parent, level.parent.parent.parent)] == [
        "1",
        small_model.stem,
        "0",
    ]
    assert re.fullmatch(r"\d{14}", level.parent.parent.parent.parent.name)
    assert re.fullmatch(r"Mul\.scale\.1\.3\.\d{16}", path.name)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_operators_come_in_order_each_before_the_data_it_reads(dump: Dumping) -> None:
    level = dump(dump_mode="all")["Mul.scale"].parent
    parts = sorted((path.name.split(".") for path in level.iterdir()), key=lambda part: part[4])
    assert [(part[1], part[2]) for part in parts] == [
        ("scale", "1"),
        ("x", "1"),
        ("block_relu_1", "2"),
        ("Add_0", "3"),
        ("x", "3"),
        ("Add_1", "4"),
    ]
    assert len({part[4] for part in parts}) == len(parts)


def test_data_is_dumped_once_for_each_edge_to_a_dumped_operator(dump: Dumping) -> None:
    root = dump()["Mul.scale"].parents[5]
    assert sorted(path.name.split(".")[2] for path in root.rglob("Data.x.*")) == ["1", "3"]


@pytest.mark.parametrize(("mode", "inputs", "outputs"), [("input", 2, 0), ("output", 0, 1), ("all", 2, 1)])
def test_dump_mode_chooses_directions(dump: Dumping, wire: Any, mode: str, inputs: int, outputs: int) -> None:
    found = dump(dump_mode=mode)
    add = wire.read(found["Add.Add_0"])
    assert (len(add.inputs), len(add.outputs)) == (inputs, outputs)
    assert ("Data.x" in found) == (mode != "input")
    # The constant that Add_1 reads is no input of a dump.
    assert len(wire.read(found["Add.Add_1"]).inputs) == (0 if mode == "output" else 1)


def test_stats_are_one_csv_an_operator(dump: Dumping) -> None:
    found = dump(dump_data="stats", dump_mode="all")
    assert set(found) == EVERY
    assert found["Mul.scale"].read_text().splitlines()[1:] == [
        "Input,0,24,DT_FLOAT,ND,2x3,5,-6,0.166667,6,0,0,0",
        "Output,0,24,DT_FLOAT,ND,2x3,1.5,-10,-3.08333,6,0,0,0",
    ]


def test_statistics_that_were_asked_for_once_stay_for_the_process(dump: Dumping) -> None:
    first = dump(dump_data="stats", dump_stats=["Max"], dump_list=[{"layer": ["scale"]}])
    assert first["Mul.scale"].read_text().splitlines() == [
        "Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value",
        "Output,0,24,DT_FLOAT,ND,2x3,6,1.5",
    ]
    root = first["Mul.scale"].parents[5]  # of two folders, where the second turned between the runs
    before = set(root.rglob("Mul*.csv"))
    dump(dump_data="stats", dump_stats=["Min"], dump_list=[{"layer": ["scale"]}])
    (new,) = set(root.rglob("Mul*.csv")) - before
    assert new.read_text().splitlines()[1] == "Output,0,24,DT_FLOAT,ND,2x3,6,1.5,-10"


def test_dump_list_chooses_layers_by_their_exact_raw_names(small_model: Path) -> None:
    relu, add = "block/relu.1", "Add_0"

    def ranged(begin: str, end: str) -> dict[str, Any]:
        return {"model_name": "small", "opname_range": [{"begin": begin, "end": end}]}

    chosen: list[tuple[list[dict[str, Any]], set[str]]] = [
        ([{}], EVERY),
        ([{"layer": ["scale"]}], {"Mul.scale", "Data.x"}),
        ([{"layer": [relu, "no such layer"]}], {"Relu.block_relu_1"}),
        ([{"layer": ["block_relu_1"]}], set()),
        ([{"model_name": "small"}], EVERY),
        ([{"model_name": "small graph", "layer": [relu]}], {"Relu.block_relu_1"}),
        ([{"model_name": "other"}], set()),
        ([{"model_name": "other"}, {"model_name": "small", "layer": ["Add_1"]}], {"Add.Add_1"}),
        ([{"model_name": "small", "layer": ["Add_1"]}, {}], EVERY),
        ([{"model_name": "small", "layer": ["Add_1"]}, {"layer": ["scale"]}], {"Mul.scale", "Data.x"}),
        ([{"model_name": "small", "layer": [layer]} for layer in ("Add_1", relu)], {"Relu.block_relu_1"}),
        ([ranged(relu, add)], {"Relu.block_relu_1", "Add.Add_0", "Data.x"}),  # both ends
        ([ranged(add, relu)], set()),  # it ends before it begins
        ([ranged(relu, relu)], {"Relu.block_relu_1"}),
    ]
    prepared = prepare(small_model)
    for dump_list, expected in chosen:
        asked = settings({"dump_list": dump_list}, "d/", 0)
        tasks = plan(asked, ("small", prepared.name), prepared.operators, prepared.inputs).tasks
        assert {f"{task.op_type}.{sanitise(task.op_name)}" for task in tasks} == expected, dump_list


def test_blacklists_take_slots_away_and_the_rest_moves_up(dump: Dumping, wire: Any) -> None:
    item = {
        "opname_blacklist": [{"name": "Add_0", "pos": ["input0", "bad pos"]}],
        "optype_blacklist": [
            {"name": "Relu", "pos": ["output0", "input0"]},
            {"name": "Data", "pos": ["output0"]},
        ],
    }
    found = dump(dump_list=[item], dump_level="op", dump_mode="all")
    assert set(found) == EVERY - {"Relu.block_relu_1", "Data.x"}
    (only,) = wire.read(found["Add.Add_0"]).inputs
    assert only.data == ARRAY.tobytes()


def test_dump_step_chooses_executions_by_data_index(dump: Dumping) -> None:
    root = dump.set(dump_step="0|2-3|7")
    dump.run(*[dump.load()] * 5)
    assert sorted(int(path.name) for path in root.glob("*/0/small/1/*")) == [0, 2, 3]


def test_model_loaded_before_the_first_set_dump_is_not_dumped(dump: Dumping) -> None:
    early, root, late = dump.load(), dump.set(), dump.load()
    dump.run(early, late, early)
    assert {path.name for path in root.glob("*/0/small/*")} == {str(late)}


def test_finalize_dump_ends_it_and_a_new_set_dump_reaches_no_model_loaded_before_it(dump: Dumping) -> None:
    root = dump.set(dump_step="0|2")
    model = dump.load()
    dump.run(model)
    assert dump.mdl.finalize_dump() == 0
    dump.run(model)
    dump.set(dump_step="2", dump_mode="all", dump_list=[{"layer": ["scale"]}])
    dump.run(model)
    assert {path.parent.name for path in root.rglob("Relu.*")} == {"0"}


def test_configuration_that_needs_no_dump_leaves_a_running_one_on(dump: Dumping) -> None:
    root = dump.set()
    dump.set(dump_list=None)
    dump.run(dump.load())
    assert files(root)


@pytest.mark.parametrize(
    "keys",
    [
        {"dump_debug": "on", "dump_list": None},
        {"dump_scene": "lite_exception", "dump_list": None},
        {"dump_level": "kernel"},
    ],
)
def test_scenes_that_wait_for_a_fault_and_kernels_leave_nothing_of_a_healthy_model(
    dump: Dumping, keys: dict[str, Any]
) -> None:
    assert dump(**keys) == {}


def test_directory_with_a_space_is_accepted_and_dumps_nothing(dump: Dumping, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    dump.set(dump_path=f"{tmp_path}/a b")
    assert "GE refuses" in dump.program.acl.get_recent_err_msg()
    dump.run(dump.load())
    assert files(tmp_path / "a b") == {}


def test_watched_node_is_dumped_after_itself_and_after_each_layer(dump: Dumping, wire: Any) -> None:
    found = dump(
        dump_scene="watcher", dump_list=[{"layer": ["scale", "Add_0"], "watcher_nodes": ["block/relu.1"]}]
    )
    assert set(found) == {"Relu.block_relu_1", "Relu.scale_To_block_relu_1", "Relu.Add_0_To_block_relu_1"}
    own = wire.read(found["Relu.block_relu_1"])
    before = wire.read(found["Relu.scale_To_block_relu_1"])
    after = wire.read(found["Relu.Add_0_To_block_relu_1"])
    assert before.op_name == "scale_To_block/relu.1"
    assert found["Relu.scale_To_block_relu_1"].name.split(".")[2] == "1"
    assert found["Relu.Add_0_To_block_relu_1"].name.split(".")[2] == "3"
    assert after.outputs[0].data == own.outputs[0].data
    assert before.outputs[0].data == bytes(24)
    assert before.outputs[0].address == own.outputs[0].address


def test_no_other_output_is_dumped_after_a_collective_or_a_watched_operator() -> None:
    operators = [
        Operator(name, kind, (), (f"{name}.out",), at)
        for at, (name, kind) in enumerate(
            (("w", "Add"), ("sum", "HcomAllReduce"), ("v", "Add"), ("a", "Relu")), 1
        )
    ]
    for layers in ((), ("sum", "a", "v")):
        watched = DumpSettings("d/", "output", 0, (), {"": frozenset(layers)}, watcher_nodes=frozenset("wv"))
        tasks = plan(watched, ("m",), operators, ()).tasks
        assert [task.op_name for task in tasks] == ["w", "v", "a_To_w", "a_To_v"]
    seen = plan(replace(watched, watcher_nodes=frozenset({"sum"})), ("m",), operators, ()).tasks
    assert [task.op_name for task in seen] == ["sum", "v_To_sum", "a_To_sum"]


def test_watched_node_shows_the_last_execution_until_it_runs(dump: Dumping, wire: Any) -> None:
    item = {"layer": ["scale"], "watcher_nodes": ["block/relu.1"]}
    root = dump.set(dump_scene="watcher", dump_list=[item])
    model = dump.load()
    for factor in (1, 10):
        dump.run(model, factor=factor)
    reads = {
        (path.parent.name, path.name.split(".")[1]): wire.read(path).outputs[0].data
        for path in root.rglob("Relu*")
    }
    assert reads["1", "scale_To_block_relu_1"] == reads["0", "block_relu_1"]
    assert reads["1", "block_relu_1"] != reads["0", "block_relu_1"]


def test_name_over_255_bytes_is_hashed_and_mapped(dump: Dumping, save: Any, wire: Any) -> None:
    name = "n" * 300
    (mapping,) = (
        path
        for path in dump(model=save(helper.make_node("Neg", ["x"], ["y"], name=name))).values()
        if path.name == "mapping.csv"
    )
    short, original = mapping.read_text().rstrip("\n").split(",")
    assert original.startswith(f"Neg.{name}.1.3.")
    hashed = wire.read(mapping.parent / short)
    assert hashed.op_name == name
    assert hashed.outputs[0].data == (-ARRAY).tobytes()


def test_types_that_numpy_lacks_keep_their_bytes(dump: Dumping, save: Any, wire: Any) -> None:
    model = save(
        helper.make_node("Cast", ["x"], ["half"], name="half", to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["x"], ["brain"], name="brain", to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["brain"], ["back"], name="back", to=TensorProto.FLOAT),
        helper.make_node("Cast", ["half"], ["other"], name="other", to=TensorProto.FLOAT),
        helper.make_node("Add", ["back", "other"], ["y"], name="sum"),
        helper.make_node("Greater", ["x", "back"], ["greater"], name="greater"),
    )
    found = dump(model=model)
    brain = wire.read(found["Cast.brain"]).outputs[0]
    assert (brain.dtype, brain.size) == (27, 12)
    upper = (ARRAY.view(np.uint32) >> 16).astype("<u2")
    assert brain.data == upper.tobytes()
    assert wire.read(found["Cast.half"]).outputs[0].data == ARRAY.astype(np.float16).tobytes()
    assert wire.read(found["Greater.greater"]).outputs[0].dtype == 11


def test_scalars_and_empty_tensors_have_empty_shapes_and_no_bytes(
    dump: Dumping, save: Any, wire: Any
) -> None:
    model = save(
        helper.make_node("ReduceSum", ["x"], ["total"], name="total", keepdims=0),
        helper.make_node("Slice", ["x", "zero", "also"], ["nothing"], name="nothing"),
        helper.make_node("Add", ["x", "total"], ["y"], name="sum"),
        weights=[helper.make_tensor(name, TensorProto.INT64, [1], [0]) for name in ("zero", "also")],
    )
    found = dump(model=model, dump_mode="all")
    total = wire.read(found["ReduceSum.total"])
    assert total.outputs[0].shape == ()
    assert b"\x1a\x00" in total.header
    empty = wire.read(found["Slice.nothing"]).outputs[0]
    assert (empty.shape, empty.size, empty.address) == ((0, 3), 0, 0)


def test_sequences_and_strings_have_no_bytes_and_cost_nothing_else(dump: Dumping, save: Any) -> None:
    model = save(
        helper.make_node("SequenceConstruct", ["x", "x"], ["pair"], name="pair"),
        helper.make_node("SequenceAt", ["pair", "zero"], ["one"], name="one"),
        helper.make_node("Cast", ["one"], ["text"], name="text", to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["y"], name="back", to=TensorProto.FLOAT),
        weights=[helper.make_tensor("zero", TensorProto.INT64, [], [0])],
    )
    assert set(dump(model=model)) == {"SequenceAt.one", "Cast.back", "Data.x"}
    np.testing.assert_array_equal(dump.run_model(dump.load(model), ARRAY)[0], ARRAY)


def test_dump_lies_under_the_device_the_model_was_loaded_on(dump: Dumping) -> None:
    root = dump.set()
    dump.program.acl.rt.set_device(3)
    dump.run(dump.load())
    assert {path.name for path in root.glob("*/*")} == {"3"}


def test_unwritable_directory_is_an_error_of_the_execution(dump: Dumping) -> None:
    root = dump.set()
    model = dump.load()
    os.rmdir(root)  # noqa: PTH106 - pairs with the file put in its place
    root.write_text("a file where the directory was")
    source, target, _ = dump.program.datasets()
    assert dump.mdl.execute(model, source, target) == 500000
    assert "cannot be written" in dump.program.acl.get_recent_err_msg()
